//! Webhooks, and whatever else is asked over TLS, with a certificate that may change at any time.

use super::Webhooks;
use crate::operator::connections::{self, PATIENCE};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Connections at the same time; more wait.
const CONNECTIONS: usize = 256;

/// The certificate that is served now.
#[derive(Debug, Default)]
pub(crate) struct Serving(RwLock<Option<Arc<CertifiedKey>>>);

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("it is no PEM")]
    Read(#[from] rustls::pki_types::pem::Error),
    #[error("certificate and key are of no use")]
    Use(#[from] rustls::Error),
}

impl Serving {
    /// Serves this certificate from the next connection on; both texts are PEM.
    pub(crate) fn set(&self, certificate: &str, key: &str) -> Result<(), Unfit> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certified));
        Ok(())
    }

    /// Tells whether there is a certificate to serve.
    pub(crate) fn is_ready(&self) -> bool {
        self.get().is_some()
    }

    pub(super) fn get(&self) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.get()
    }
}

/// Serves webhooks until it is dropped.
pub(crate) async fn serve(listener: TcpListener, webhooks: Webhooks, serving: Arc<Serving>) {
    let answer = move |request| {
        let webhooks = webhooks.clone();
        async move { webhooks.handle(request).await.map(Full::new) }
    };
    serve_tls(listener, CONNECTIONS, serving, answer).await;
}

/// Answers requests over TLS until it is dropped, on so many connections at the same time; more wait.
pub(crate) async fn serve_tls<F>(
    listener: TcpListener,
    most: usize,
    serving: Arc<Serving>,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default versions");
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_cert_resolver(serving)));
    let converse = |stream: TcpStream| {
        let (acceptor, answer) = (acceptor.clone(), answer.clone());
        async move {
            stream.set_nodelay(true)?;
            let stream = timeout(PATIENCE, acceptor.accept(stream)).await??;
            connections::answer(stream, answer).await
        }
    };
    connections::accept(listener, most, converse).await;
}

#[cfg(test)]
mod tests {
    use super::super::certificate::Identity;
    use super::*;

    #[test]
    fn what_cannot_be_served_leaves_what_is() {
        let serving = Serving::default();
        assert!(!serving.is_ready());
        let now = "2026-11-21T08:00:00Z".parse().unwrap();
        let [one, other] = [(); 2].map(|()| Identity::make("op", &["localhost".into()], now).unwrap());
        serving.set(&one.certificate, &one.key).unwrap();
        let served = || serving.get().unwrap().cert.clone();
        let first = served();
        assert!(serving.set(&other.certificate, &one.key).is_err(), "a certificate whose file came before its key");
        assert!(serving.set("", &one.key).is_err() && serving.set(&one.certificate, "torn").is_err());
        assert_eq!(served(), first);
        serving.set(&other.certificate, &other.key).unwrap();
        assert_ne!(served(), first);
    }
}
