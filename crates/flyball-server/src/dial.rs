//! Calls of webhooks and of aggregated API servers over TLS.
//!
//! Server certificates are verified: by the CA bundle of the webhook or the APIService, or by the system's certificates
//! if it has none. Only an APIService can turn that off. Proxies of the environment are not used.

use crate::aggregation::{ForwardFuture, ForwardedRequest, Forwarder};
use crate::webhook::{Caller, ResponseMemory, WebhookCall, WebhookFuture, WebhookResponse};
use bytes::{Bytes, BytesMut};
use flyball_tls::{ConfigError, Identity, Trust};
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, Error};
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Bytes of a response that are reserved when it begins.
const FIRST_RESPONSE_BYTES: usize = 8 << 10;

/// Resolves the in-cluster address of a service to a reachable address.
type Resolve = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Calls webhooks over the network.
///
/// Services cannot be reached from outside of the cluster: a resolver can map them to other addresses.
#[derive(Clone, Default)]
pub struct Dialer {
    resolve: Option<Arc<Resolve>>,
    /// The certificate by which aggregated API servers recognize this server.
    identity: Option<Arc<Identity>>,
}

impl Dialer {
    /// Creates a caller with a resolver for every address; `None` keeps the address.
    pub fn with_resolver(resolve: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { resolve: Some(Arc::new(resolve)), identity: None }
    }

    /// Presents this certificate to aggregated API servers, which then trust the headers with the user.
    #[must_use]
    pub fn with_identity(self, identity: Identity) -> Self {
        Self { identity: Some(Arc::new(identity)), ..self }
    }

    fn resolved(&self, address: &str) -> String {
        let resolved = self.resolve.as_ref().and_then(|resolve| resolve(address));
        resolved.unwrap_or_else(|| address.to_owned())
    }
}

impl Forwarder for Dialer {
    fn forward(&self, request: ForwardedRequest) -> ForwardFuture {
        let (address, identity) = (self.resolved(&request.address), self.identity.clone());
        Box::pin(async move {
            let tls = forwarding_connector(&request, identity.as_deref());
            let tls = tls.map_err(|error| format!("unable to load certificates: {error}"))?;
            let connection = Connection::open(&address, &request.server_name, &tls).await?;
            let (server_name, memory) = (request.server_name.clone(), request.memory.clone());
            let mut sent = Request::new(Full::new(request.body));
            *sent.method_mut() = request.method;
            *sent.uri_mut() = request.uri.parse().map_err(|_| "invalid URL".to_owned())?;
            *sent.headers_mut() = request.headers;
            let host = HeaderValue::from_str(&server_name).map_err(|_| "invalid host".to_owned())?;
            sent.headers_mut().insert(HOST, host);
            let receive = move |response: Response<Incoming>| async move {
                let (head, body) = response.into_parts();
                let body = receive(body, &memory).await?;
                Ok(Response::from_parts(head, body))
            };
            connection.exchange(sent, receive).await
        })
    }
}

impl Caller for Dialer {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        Box::pin(dial(WebhookCall { address: self.resolved(&call.address), ..call }))
    }
}

async fn dial(call: WebhookCall) -> Result<WebhookResponse, String> {
    let tls = connector(&call.ca_bundle).map_err(|error| format!("unable to load root certificates: {error}"))?;
    let connection = Connection::open(&call.address, &call.server_name, &tls).await?;
    let (request, memory) = (request(&call)?, call.memory);
    let receive = move |response: Response<Incoming>| async move {
        let (head, body) = response.into_parts();
        let body = match receive(body, &memory).await {
            Ok(body) => body,
            // For errors the code is sufficient: some servers close the connection before the body is read.
            Err(_) if !head.status.is_success() => Bytes::new(),
            Err(error) => return Err(error),
        };
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Ok(WebhookResponse { code: head.status.as_u16(), content_type: content_type.to_owned(), body })
    };
    connection.exchange(request, receive).await
}

/// A connection for one request.
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    connection: http1::Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>,
}

impl Connection {
    async fn open(address: &str, server_name: &str, tls: &TlsConnector) -> Result<Self, String> {
        let name = ServerName::try_from(server_name.to_owned()).map_err(|_| {
            format!("tls: either ServerName or InsecureSkipVerify must be specified in the tls.Config: {server_name:?}")
        })?;
        let stream = TcpStream::connect(address).await.map_err(|error| unreachable(address, &error))?;
        let _ = stream.set_nodelay(true);
        let stream = tls.connect(name, stream).await.map_err(|error| untrusted(server_name, &error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        Ok(Self { sender, connection })
    }

    /// Sends the request and receives the response.
    async fn exchange<T, F: Future<Output = Result<T, String>>>(
        self,
        request: Request<Full<Bytes>>,
        receive: impl FnOnce(Response<Incoming>) -> F,
    ) -> Result<T, String> {
        let Self { mut sender, connection } = self;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
            receive(response).await
        };
        // The connection is driven with the exchange, and closed if the exchange is dropped.
        let driven = async {
            let _ = connection.await;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            response = exchange => response,
            never = driven => never,
        }
    }
}

/// Reads a response. Its bytes are reserved before they are kept.
async fn receive(mut body: Incoming, memory: &ResponseMemory) -> Result<Bytes, String> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > bytes.capacity() {
            let capacity = (2 * bytes.capacity()).clamp(FIRST_RESPONSE_BYTES, memory.max_bytes()).max(length);
            memory.reserve(capacity).await?;
            bytes.reserve(capacity - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

fn request(call: &WebhookCall) -> Result<Request<Full<Bytes>>, String> {
    let uri: Uri = call.url.parse().map_err(|_| "invalid URL".to_owned())?;
    let host = uri.authority().map(ToString::to_string).unwrap_or_default();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder().method(Method::POST).uri(path).header(HOST, host);
    let request = request
        .header(USER_AGENT, "kube-apiserver-admission")
        .header(ACCEPT, "application/json, */*")
        .header(CONTENT_TYPE, "application/json");
    request.body(Full::new(call.body.clone())).map_err(|error| error.to_string())
}

/// Returns Go's error for a failed connection.
fn unreachable(address: &str, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused",
        io::ErrorKind::HostUnreachable => "connect: no route to host",
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable",
        io::ErrorKind::TimedOut => "connect: connection timed out",
        _ => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            return match host.parse::<std::net::IpAddr>() {
                Ok(_) => format!("dial tcp {address}: {error}"),
                Err(_) => format!("dial tcp: lookup {host}: no such host"),
            };
        }
    };
    format!("dial tcp {address}: {why}")
}

/// Returns Go's error for a certificate that is not trusted.
fn untrusted(name: &str, error: &io::Error) -> String {
    let rejected = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    let why = match rejected {
        Some(Error::InvalidCertificate(why)) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "certificate signed by unknown authority".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("certificate is not valid for any names, but wanted to match {name}")
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => "certificate has expired or is not yet valid".to_owned(),
            other => other.to_string(),
        },
        _ if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".into(),
        _ => return error.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

fn broken(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() { "EOF".into() } else { error.to_string() }
}

fn connector(bundle: &[u8]) -> Result<TlsConnector, Error> {
    Ok(TlsConnector::from(Arc::new(flyball_tls::client_config(trust(bundle))?)))
}

fn trust(bundle: &[u8]) -> Trust<'_> {
    if bundle.iter().all(u8::is_ascii_whitespace) { Trust::System } else { Trust::Bundle(bundle) }
}

fn forwarding_connector(request: &ForwardedRequest, identity: Option<&Identity>) -> Result<TlsConnector, ConfigError> {
    let trust = if request.is_unverified { Trust::Any } else { trust(&request.ca_bundle) };
    let config = match identity {
        Some(identity) => flyball_tls::identified_client_config(trust, identity)?,
        None => flyball_tls::client_config(trust)?,
    };
    Ok(TlsConnector::from(Arc::new(config)))
}
