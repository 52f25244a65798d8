//! The way from `ansible-playbook` to the API server: a proxy on this machine, as the operator, through which what is made gets its owner.

use crate::run::Job;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use ring::digest;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// What a request may carry at most: more than an API server takes.
const LARGEST: usize = 4 << 20;

/// Where the operator and its child both are.
const LOOPBACK: &str = "127.0.0.1";

/// A proxy that serves until it is dropped, for who knows its token.
pub(super) struct Proxy {
    url: String,
    /// The certificate of who signed its own, in PEM.
    authority: String,
    token: String,
    serves: AbortHandle,
}

/// What requests are forwarded with.
struct Forward {
    client: Client,
    token: String,
    owner: Value,
    namespace: Option<String>,
}

/// Begins to serve.
pub(super) async fn serve(job: &Job<'_>) -> io::Result<Proxy> {
    let listener = TcpListener::bind((LOOPBACK, 0)).await?;
    let url = format!("https://{}", listener.local_addr()?);
    let (authority, tls) = identity().map_err(io::Error::other)?;
    let token = super::random(32)?;
    let types = job.object.types.clone().unwrap_or_default();
    let forward = Arc::new(Forward {
        client: job.cx.client().clone(),
        token: token.clone(),
        owner: json!({
            "apiVersion": types.api_version,
            "kind": types.kind,
            "name": job.object.metadata.name,
            "uid": job.object.metadata.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }),
        namespace: job.cx.key().namespace().map(str::to_owned),
    });
    let serving = async move {
        // They end with this task.
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (forward, tls) = (forward.clone(), tls.clone());
            let serve = service_fn(move |request| {
                let forward = forward.clone();
                async move { Ok::<_, Infallible>(forward.answer(request).await) }
            });
            connections.spawn(async move {
                // Who breaks off, has nothing to be told.
                if let Ok(stream) = tls.accept(stream).await {
                    let _ =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
                }
            });
            while connections.try_join_next().is_some() {}
        }
    };
    Ok(Proxy { url, authority, token, serves: tokio::spawn(serving).abort_handle() })
}

/// Makes an authority and a certificate that it signed, good for this run; no key is kept anywhere.
fn identity() -> Result<(String, TlsAcceptor), Box<dyn std::error::Error + Send + Sync>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "flyball ansible authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([LOOPBACK.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, "flyball ansible");
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    let config = ServerConfig::builder_with_provider(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok((issuer.pem(), TlsAcceptor::from(Arc::new(config))))
}

impl Proxy {
    /// Returns the kubeconfig that leads to it.
    pub(super) fn kubeconfig(&self, namespace: Option<&str>) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "operator",
            "clusters": [{"name": "operator", "cluster": {"server": self.url, "certificate-authority-data": STANDARD.encode(&self.authority)}}],
            "users": [{"name": "operator", "user": {"token": self.token}}],
            "contexts": [{"name": "operator", "context": {"cluster": "operator", "user": "operator", "namespace": namespace.unwrap_or("default")}}],
        })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serves.abort();
    }
}

impl Forward {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let expected = format!("Bearer {}", self.token);
        let given = request.headers().get(AUTHORIZATION).map_or(&[][..], |given| given.as_bytes());
        // Digests take the same time to compare, however much of them is right.
        let digest = |text: &[u8]| digest::digest(&digest::SHA256, text);
        if digest(given).as_ref() != digest(expected.as_bytes()).as_ref() {
            return refuse(StatusCode::UNAUTHORIZED, "Unauthorized", "the token is not that of the run");
        }
        let (mut parts, body) = request.into_parts();
        let body = match Limited::new(body, LARGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return refuse(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", "the request is too large");
            }
            Err(error) => return refuse(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string()),
        };
        let body = self.owned(&parts, body);
        for header in [AUTHORIZATION, HOST, CONTENT_LENGTH] {
            parts.headers.remove(header);
        }
        // The client knows where the API server is.
        if let Some(path) = parts.uri.path_and_query().cloned() {
            parts.uri = path.into();
        }
        match self.client.send(Request::from_parts(parts, Body::from(body))).await {
            Ok(answer) => answer,
            Err(error) => refuse(StatusCode::BAD_GATEWAY, "InternalError", &error.to_string()),
        }
    }

    /// Gives what is made in the namespace of the owner its owner.
    fn owned(&self, parts: &http::request::Parts, body: Bytes) -> Bytes {
        let json = parts.headers.get(CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"application/json"));
        if parts.method != Method::POST || !json {
            return body;
        }
        let Some(namespace) = collection(parts.uri.path()) else { return body };
        if self.namespace.as_deref().is_some_and(|own| own != namespace) {
            return body;
        }
        let Ok(mut object) = serde_json::from_slice::<Value>(&body) else { return body };
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return body };
        let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
        match owners.as_array_mut() {
            Some(owners) if owners.iter().all(|owner| owner["controller"] != true) => owners.push(self.owner.clone()),
            _ => return body,
        }
        object.to_string().into()
    }
}

/// Returns the namespace of a path under which objects are made.
fn collection(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", _, "namespaces", namespace, _] | ["apis", _, _, "namespaces", namespace, _] => Some(namespace),
        _ => None,
    }
}

fn refuse(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code.as_u16()});
    let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_made_in_collections() {
        assert_eq!(collection("/api/v1/namespaces/a/pods"), Some("a"));
        assert_eq!(collection("/apis/apps/v1/namespaces/a/deployments"), Some("a"));
        for path in ["/api/v1/namespaces", "/api/v1/namespaces/a/pods/b/eviction", "/apis/apps/v1/deployments", "/", ""]
        {
            assert_eq!(collection(path), None, "{path}");
        }
    }
}
