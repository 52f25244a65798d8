//! The TLS listener of webhooks and protected metrics, whose certificate may change at any time.

use super::Webhooks;
use super::budget::MAX_CONNECTIONS;
use crate::serve;
use crate::serve::{Pace, RequestBody};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Trust of the API server in the served certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verification {
    /// All published bundles verify it.
    Trusted,
    /// No readable bundle contradicts it, and some cannot be read, for this reason.
    Unknown(String),
    /// The certificate is not served, or a published bundle does not verify it.
    Untrusted(String),
}

/// The current certificate, and whether the API server trusts it.
#[derive(Debug, Default)]
pub(crate) struct ServingCertificate {
    key: RwLock<Option<Arc<CertifiedKey>>>,
    /// Result of the last verification by handshakes.
    verification: RwLock<Option<Verification>>,
}

/// Reason why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("not valid PEM")]
    Read(#[from] rustls::pki_types::pem::Error),
    #[error("invalid certificate or key")]
    Use(#[from] rustls::Error),
}

impl ServingCertificate {
    /// Serves this certificate to new connections; both texts are PEM.
    pub(crate) fn set(&self, certificate: &str, key: &str) -> Result<(), CertificateError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        *self.key.write() = Some(Arc::new(certified));
        Ok(())
    }

    /// Sets the trust in the certificate.
    pub(super) fn verify(&self, outcome: Verification) {
        *self.verification.write() = Some(outcome);
    }

    /// Sets a result that does not override a stronger one.
    pub(super) fn verify_unless_known(&self, outcome: Verification) {
        self.verification.write().get_or_insert(outcome);
    }

    /// Returns the result of the last verification: if the API server trusts the served certificate.
    pub(crate) fn verification(&self) -> Verification {
        if self.get().is_none() {
            return Verification::Untrusted("no certificate yet".into());
        }
        let verification = self.verification.read().clone();
        verification.unwrap_or_else(|| Verification::Untrusted("the certificate is not verified yet".into()))
    }

    pub(super) fn get(&self) -> Option<Arc<CertifiedKey>> {
        self.key.read().clone()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.get()
    }
}

/// Serves webhooks until it is dropped.
pub(crate) async fn serve(listener: TcpListener, webhooks: Webhooks, serving: Arc<ServingCertificate>) {
    let respond = move |request| {
        let webhooks = webhooks.clone();
        async move { webhooks.handle(request).await.map(Full::new) }
    };
    serve_tls(listener, MAX_CONNECTIONS, serving, respond).await;
}

/// Serves requests over TLS until it is dropped, with this limit of concurrent connections.
pub(crate) async fn serve_tls<F>(
    listener: TcpListener,
    limit: usize,
    serving: Arc<ServingCertificate>,
    respond: impl Fn(Request<RequestBody>) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default versions");
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_cert_resolver(serving)));
    let converse = |stream: TcpStream, pace: Arc<Pace>| {
        let (acceptor, respond) = (acceptor.clone(), respond.clone());
        async move {
            stream.set_nodelay(true)?;
            let stream = acceptor.accept(stream).await?;
            serve::serve_connection(stream, pace, respond).await
        }
    };
    serve::accept(listener, limit, converse).await;
}

#[cfg(test)]
mod tests {
    use super::super::certificate::Identity;
    use super::super::metrics::WebhookMetrics;
    use super::super::service::OperatorState;
    use super::super::{AdmissionRequest, Verdict, Webhook, probe};
    use super::*;
    use crate::cache::Caches;
    use flyball_core::time::Timestamp;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use std::collections::BTreeSet;
    use std::net::SocketAddr;
    use std::sync::OnceLock;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::runtime::Runtime;
    use tokio::time::Instant;
    use tokio_rustls::client::TlsStream;

    #[test]
    fn invalid_certificate_keeps_the_current_one() {
        let serving = ServingCertificate::default();
        assert!(matches!(serving.verification(), Verification::Untrusted(_)));
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
        assert_eq!(serving.verification(), Verification::Untrusted("the certificate is not verified yet".into()));
        let unknown = || Verification::Unknown("no right".into());
        serving.verify_unless_known(unknown());
        assert_eq!(serving.verification(), unknown());
        serving.verify(Verification::Trusted);
        serving.verify_unless_known(unknown());
        assert_eq!(serving.verification(), Verification::Trusted);
    }

    const NAME: &str = "op-webhook.ns.svc";

    /// Maximum latency of a review, independent of other clients.
    const MAX_LATENCY: Duration = Duration::from_secs(5);

    /// Creates a separate runtime, like another machine: a review must not wait for the clients that flood the
    /// listener.
    fn threads(name: &str) -> Runtime {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        threads.worker_threads(2).thread_name(name).enable_all().build().unwrap()
    }

    /// A listener with a webhook, whose clients trust an authority.
    struct Served {
        address: SocketAddr,
        authority: String,
        now: Timestamp,
    }

    impl Served {
        async fn start(threads: &Runtime) -> Self {
            let webhook = Webhook::<ConfigMap>::new().validates(|_: &AdmissionRequest<ConfigMap>| Ok(Verdict::allow()));
            let live = Arc::<OnceLock<OperatorState>>::default();
            let (caches, _) = Caches::new([], &BTreeSet::new());
            let metrics = WebhookMetrics::default();
            assert!(live.set(OperatorState { caches: Arc::new(caches), metrics, panics: Default::default() }).is_ok());
            let now = flyball_core::Clock::system().now();
            let identity = Identity::make("op", &[NAME.into()], now).unwrap();
            let serving = Arc::<ServingCertificate>::default();
            serving.set(&identity.certificate, &identity.key).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            threads.spawn(serve(listener, Webhooks::new(&[webhook.declared()], live), serving));
            Self { address, authority: identity.authority, now }
        }

        async fn connect(&self) -> Option<TlsStream<TcpStream>> {
            probe::connect(self.address, NAME, &self.authority, self.now).await.ok()
        }

        /// Sends a review like the API server, with a new connection if one is closed, and returns the latency.
        async fn review(&self) -> Duration {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}});
            let request = json!({"uid": "u", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "operation": "CREATE",
                "name": "a", "namespace": "b", "userInfo": {"username": "someone"}, "object": object});
            let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
            let (review, began) = (review.to_string(), Instant::now());
            loop {
                let Some(mut stream) = self.connect().await else { continue };
                let head = head(&format!("content-length: {}", review.len()));
                let mut text = vec![0; 4096];
                if stream.write_all((head + &review).as_bytes()).await.is_err() {
                    continue;
                }
                let Ok(read @ 1..) = stream.read(&mut text).await else { continue };
                let response = String::from_utf8_lossy(&text[..read]).into_owned();
                assert!(response.starts_with("HTTP/1.1 200") && response.contains(r#""allowed":true"#), "{response}");
                return began.elapsed();
            }
        }
    }

    fn head(length: &str) -> String {
        format!(
            "POST /validate--v1-configmap HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
        )
    }

    /// Returns the resident memory of this process.
    fn resident() -> u64 {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[tokio::test]
    async fn large_bodies_take_bounded_memory_and_delay_no_review() {
        let (server, clients) = (threads("server"), threads("flood"));
        let served = Arc::new(Served::start(&server).await);
        served.review().await;
        let before = resident();
        let mut floods = tokio::task::JoinSet::new();
        for at in 0..300 {
            let served = served.clone();
            let flood = async move {
                let piece = vec![b' '; 64 << 10];
                loop {
                    let Some(mut stream) = served.connect().await else { continue };
                    // Some send a Content-Length, some do not.
                    let head =
                        head(if at % 3 == 0 { "content-length: 209715200" } else { "transfer-encoding: chunked" });
                    if stream.write_all(head.as_bytes()).await.is_err() {
                        continue;
                    }
                    for _ in 0..3200 {
                        let size = if at % 3 == 0 { "" } else { "10000\r\n" };
                        let sent = async {
                            stream.write_all(size.as_bytes()).await?;
                            stream.write_all(&piece).await?;
                            stream.write_all(if at % 3 == 0 { b"" } else { b"\r\n" }).await
                        };
                        if sent.await.is_err() {
                            break;
                        }
                    }
                }
            };
            floods.spawn_on(flood, clients.handle());
        }
        let (mut took, mut most) = (Vec::new(), 0);
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            took.push(served.review().await);
            most = most.max(resident());
        }
        floods.abort_all();
        [server, clients].into_iter().for_each(Runtime::shutdown_background);
        let grown = most.saturating_sub(before) >> 20;
        assert!(grown < 256, "{grown} MiB");
        took.sort();
        assert!(took[19] < MAX_LATENCY, "{took:?}");
    }

    #[tokio::test]
    async fn slow_clients_delay_no_review() {
        let (server, clients) = (threads("server"), threads("slow"));
        let served = Arc::new(Served::start(&server).await);
        let mut slow = tokio::task::JoinSet::new();
        for at in 0..1000 {
            let served = served.clone();
            let client = async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    // Most of them do not even start a handshake.
                    if at % 10 != 0 {
                        let Ok(mut stream) = TcpStream::connect(served.address).await else { continue };
                        while stream.write_all(&[0x16]).await.is_ok() {
                            tokio::time::sleep(Duration::from_millis(300)).await;
                        }
                        continue;
                    }
                    let Some(mut stream) = served.connect().await else { continue };
                    let head = head("content-length: 1000000");
                    for byte in head.as_bytes().iter().cycle() {
                        if stream.write_all(&[*byte]).await.is_err() {
                            break;
                        }
                        tokio::time::sleep(Duration::from_millis(300)).await;
                    }
                }
            };
            slow.spawn_on(client, clients.handle());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut took = Vec::new();
        for _ in 0..50 {
            took.push(served.review().await);
        }
        slow.abort_all();
        [server, clients].into_iter().for_each(Runtime::shutdown_background);
        took.sort();
        assert!(took[49] < MAX_LATENCY, "{took:?}");
    }
}
