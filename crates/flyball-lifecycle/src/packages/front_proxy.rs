//! The API over TLS, for the API server's aggregation layer.
//!
//! The API server authenticates users, authorizes their requests, and forwards them with a certificate of its own. Only
//! clients with such a certificate are served: all others must send their requests to the API server. They get a few
//! connections, and these for a short time.

use super::api::{PackageServer, status};
use super::watch::{self, Body};
use crate::connections::{self, OpenResponses, Peer, Peers, TrackedBody};
use flyball_core::Status;
use flyball_tls::{ConfigError, Identity};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Maximum number of connections. The API server keeps few; one address can take a small part of them without its
/// certificate.
const MAX_CONNECTIONS: usize = 256;
/// Maximum number of connections from one address without the certificate of the API server.
const MAX_UNTRUSTED: usize = 16;
/// Maximum number of concurrent requests of a connection.
const MAX_STREAMS: u32 = 100;
/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time of a connection without the certificate of the API server.
const UNTRUSTED_TIME: Duration = Duration::from_secs(10);
/// Interval of pings on a silent connection.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The client certificates of the API server, from the ConfigMap `kube-system/extension-apiserver-authentication`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxy {
    /// The authority that issues them, in PEM (`requestheader-client-ca-file`).
    pub authority: String,
    /// Their common names; empty for any (`requestheader-allowed-names`).
    pub names: Vec<String>,
}

/// The ConfigMap does not name the certificates of the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ConfigMap kube-system/extension-apiserver-authentication: {0}; enable the aggregation layer of the API server"
)]
pub struct InvalidFrontProxy(String);

impl FrontProxy {
    /// Reads the data of the ConfigMap.
    ///
    /// # Errors
    ///
    /// If it has no authority for the aggregation layer.
    pub fn read<'d>(value: impl Fn(&str) -> Option<&'d str>) -> Result<Self, InvalidFrontProxy> {
        const AUTHORITY: &str = "requestheader-client-ca-file";
        const NAMES: &str = "requestheader-allowed-names";
        let authority = value(AUTHORITY).filter(|authority| !authority.is_empty());
        let authority = authority.ok_or_else(|| InvalidFrontProxy(format!("key {AUTHORITY} is missing")))?.to_owned();
        let names = value(NAMES).filter(|names| !names.is_empty()).unwrap_or("[]");
        let names = serde_json::from_str(names);
        let names = names.map_err(|error| InvalidFrontProxy(format!("key {NAMES} is not a list of names: {error}")))?;
        Ok(Self { authority, names })
    }

    /// Creates the TLS configuration of a server with this certificate.
    ///
    /// # Errors
    ///
    /// If a certificate or key cannot be used.
    pub fn tls(&self, identity: &Identity) -> Result<Arc<ServerConfig>, ConfigError> {
        let mut config = flyball_tls::server_config(identity, Some(&self.authority))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Returns true if the name of a certificate, which the authority has issued, is allowed.
    fn allows(&self, certificate: &[u8]) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        self.names.is_empty() || name.is_some_and(|name| self.names.iter().any(|allowed| allowed == name))
    }
}

/// Serves PackageManifests to the API server on a listener until `stop` is done.
pub async fn serve(
    server: PackageServer,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    proxy: FrontProxy,
    stop: impl Future<Output = ()>,
) {
    let (acceptor, proxy, peers) = (TlsAcceptor::from(tls), Arc::new(proxy), Peers::new(MAX_UNTRUSTED));
    let connection = |stream| connection(server.clone(), acceptor.clone(), proxy.clone(), peers.clone(), stream);
    connections::accept(listener, MAX_CONNECTIONS, stop, connection).await;
}

async fn connection(
    server: PackageServer,
    acceptor: TlsAcceptor,
    proxy: Arc<FrontProxy>,
    peers: Peers,
    stream: TcpStream,
) {
    let Ok(address) = stream.peer_addr() else { return };
    let peer = peers.enter(address.ip());
    let replaced = peer.replaced.clone();
    tokio::select! {
        biased;
        () = replaced.notified() => {}
        () = serve_connection(server, acceptor, &proxy, peer, stream) => {}
    }
}

async fn serve_connection(
    server: PackageServer,
    acceptor: TlsAcceptor,
    proxy: &FrontProxy,
    peer: Peer,
    stream: TcpStream,
) {
    let stream = connections::limit_writes(stream);
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else { return };
    let certificates = stream.get_ref().1.peer_certificates();
    let is_trusted = certificates.and_then(<[_]>::first).is_some_and(|certificate| proxy.allows(certificate));
    // The API server may have many connections, which no other client ends.
    let untrusted = Some(peer).filter(|_| !is_trusted);
    let requested = Arc::new(Notify::new());
    let first_request = requested.clone();
    let responses = OpenResponses::of_several_users();
    let open_responses = responses.clone();
    let respond = service_fn(move |request: Request<Incoming>| {
        requested.notify_one();
        let response = responses.track(respond(&server, is_trusted, &request));
        async move { Ok::<Response<TrackedBody<Body>>, Infallible>(response) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL).max_concurrent_streams(MAX_STREAMS);
    let served = builder.serve_connection(TokioIo::new(stream), respond);
    let driven = connections::drive(served, &first_request, &open_responses);
    let ended = match untrusted {
        Some(_counted) => timeout(UNTRUSTED_TIME, driven).await.unwrap_or(None),
        None => driven.await,
    };
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "a client of PackageManifests disconnected");
    }
}

fn respond(server: &PackageServer, is_trusted: bool, request: &Request<Incoming>) -> Response<Body> {
    let is_health = matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz");
    match is_trusted || is_health {
        true => watch::respond(server, request),
        false => status(&Status::unauthorized()).map(|body| Full::new(body).boxed_unsync()),
    }
}
