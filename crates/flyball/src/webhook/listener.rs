//! Webhooks over TLS, with a certificate that may change at any time.

use super::Webhooks;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections at the same time; more wait.
const CONNECTIONS: usize = 256;
/// How long a client may take for the handshake, and to send the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The wait after a connection could not be accepted, as when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// The certificate that is served now.
#[derive(Debug, Default)]
pub(crate) struct Serving(RwLock<Option<Arc<CertifiedKey>>>);

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error("it is no PEM")]
    Read(#[from] rustls::pki_types::pem::Error),
    #[error("certificate and key are of no use")]
    Use(#[from] rustls::Error),
}

impl Serving {
    /// Serves this certificate from the next connection on; both texts are PEM.
    pub(super) fn set(&self, certificate: &str, key: &str) -> Result<(), Unfit> {
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

    fn get(&self) -> Option<Arc<CertifiedKey>> {
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
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default versions");
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_cert_resolver(serving)));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let place = places.clone().acquire_owned().await.expect("nobody closes the semaphore");
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let (acceptor, webhooks) = (acceptor.clone(), webhooks.clone());
        connections.spawn(async move {
            if let Err(error) = converse(stream, &acceptor, webhooks).await {
                tracing::debug!(error = &*error, "webhook connection broke off");
            }
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, acceptor: &TlsAcceptor, webhooks: Webhooks) -> Result<(), tower::BoxError> {
    stream.set_nodelay(true)?;
    let stream = timeout(PATIENCE, acceptor.accept(stream)).await??;
    let service = service_fn(|request| answer(&webhooks, request));
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    Ok(server.serve_connection(TokioIo::new(stream), service).await?)
}

async fn answer(webhooks: &Webhooks, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(webhooks.handle(request).await.map(Full::new))
}
