//! The targets: the bytes of a connection, and the reviews of requests.
//!
//! An operator serves its webhooks on a real socket with TLS. Time is paused, and passes while all tasks are idle, so
//! the deadlines of stalled connections take no real time.

use crate::engine;
use flyball::webhook::{AdmissionRequest, Certificates, Verdict, Webhook};
use flyball::{Operator, WebhookServer};
use http_body_util::Full;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::CustomResource;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The name in the certificate.
const HOST: &str = "op-webhook.ns.svc";
/// A text that is replaced by the length of the body.
const LENGTH: &str = "LENGTH";
/// Prefix of inputs that are sent without TLS.
const PLAIN: &[u8] = b"plain:";
/// Time after which a stalled connection is closed: deadlines of a body, of a review, and between requests.
const MAX_STALLED: Duration = Duration::from_secs(5 + 30 + 120 + 15);
/// The same for each byte: 100 KiB per second are the minimum.
const STALLED_PER_BYTE: Duration = Duration::from_micros(10);
/// Limit of the memory of this process in MiB: the budgets of bodies, trees and typed objects, with the world.
const MAX_MEMORY_MIB: u64 = 640;
/// Attempts to send a valid review: a connection may be closed for another one.
const MAX_TRIES: usize = 5;

/// Number of panics in this process.
static PANICS: AtomicUsize = AtomicUsize::new(0);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Site", namespaced)]
struct SiteSpec {
    titles: Vec<String>,
}

mod v1beta1 {
    use super::{CustomResource, Deserialize, JsonSchema, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Site", namespaced)]
    pub(crate) struct SiteSpec {
        pub(crate) title: String,
    }
}

impl From<v1beta1::Site> for Site {
    fn from(old: v1beta1::Site) -> Self {
        Self { metadata: old.metadata, spec: SiteSpec { titles: vec![old.spec.title] } }
    }
}

impl TryFrom<Site> for v1beta1::Site {
    type Error = &'static str;

    fn try_from(new: Site) -> Result<Self, Self::Error> {
        let [title] = <[String; 1]>::try_from(new.spec.titles).map_err(|_| "v1beta1 holds one title")?;
        Ok(Self { metadata: new.metadata, spec: v1beta1::SiteSpec { title } })
    }
}

/// A running operator with webhooks.
pub(crate) struct World {
    address: SocketAddr,
    connector: TlsConnector,
    operator: JoinHandle<Result<(), flyball::RunError>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.operator.abort();
    }
}

/// Counts panics of all tasks: those of connections only end their connection.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            report(panic);
        }));
    });
}

/// Writes a certificate into a directory, and returns the directory.
fn certificate() -> (PathBuf, String) {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fuzz").join("webhook-certificate");
    let identity = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
    let certificate = identity.cert.pem();
    let directory = directory.join(std::process::id().to_string()).join(format!("{:?}", std::thread::current().id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("tls.crt"), &certificate).unwrap();
    std::fs::write(directory.join("tls.key"), identity.signing_key.serialize_pem()).unwrap();
    (directory, certificate)
}

/// Returns a client of an API server without any objects.
fn client() -> kube::Client {
    let answer = |_| async {
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
        let body = Full::new(Bytes::from(status.to_string()));
        let answer = http::Response::builder().status(404).header("content-type", "application/json").body(body);
        Ok::<_, Infallible>(answer.unwrap())
    };
    kube::Client::new(tower::service_fn(answer), "ns")
}

impl World {
    async fn new() -> Self {
        let (directory, certificate) = certificate();
        // The operator binds the port again.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
        let pods = Webhook::<Pod>::new()
            .validates(|_: &AdmissionRequest<Pod>| Ok(Verdict::allow()))
            .defaults(|pod: &mut Pod, _: &AdmissionRequest<Pod>| {
                pod.metadata.labels.get_or_insert_default().insert("a".into(), "b".into());
                Ok(())
            })
            .on_deletion();
        let sites = Webhook::<Site>::new()
            .validates(|site: &AdmissionRequest<Site>| {
                Ok(if site.object().spec.titles.is_empty() { Verdict::deny("no title") } else { Verdict::allow() })
            })
            .converts::<v1beta1::Site>();
        let server = WebhookServer {
            address: Some(address),
            certificates: Certificates::Files(directory.clone()),
            ..WebhookServer::default()
        };
        count_panics();
        let operator = Operator::new("op").webhook(pods).webhook(sites).webhook_server(server);
        let operator = tokio::spawn(operator.run(client(), std::future::pending()));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let world = Self { address, connector: TlsConnector::from(Arc::new(config)), operator };
        world.assert_serves().await;
        std::fs::remove_dir_all(directory).unwrap();
        world
    }

    /// Sends bytes on a new connection, and returns what comes back until the operator closes it.
    async fn send(&self, sent: &[u8]) -> std::io::Result<Vec<u8>> {
        let stream = TcpStream::connect(self.address).await?;
        let limit = MAX_STALLED + STALLED_PER_BYTE * u32::try_from(sent.len()).unwrap();
        let received = async {
            match sent.strip_prefix(PLAIN) {
                Some(sent) => converse(stream, sent).await,
                None => {
                    let name = ServerName::try_from(HOST).unwrap();
                    converse(self.connector.connect(name, stream).await?, sent).await
                }
            }
        };
        timeout(limit, received).await.expect("the operator neither answers nor closes the connection")
    }

    /// Fails if a valid review is not answered, as after a panic, or memory is not released.
    async fn assert_serves(&self) {
        let review = request("/validate--v1-pod", &admission("CREATE"));
        let mut answer = String::new();
        for _ in 0..MAX_TRIES {
            assert!(!self.operator.is_finished(), "the operator has ended");
            let received = self.send(&with_length(review.as_bytes())).await;
            answer =
                received.map_or_else(|error| error.to_string(), |text| String::from_utf8_lossy(&text).into_owned());
            if answer.starts_with("HTTP/1.1 200") && answer.contains(r#""allowed":true"#) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("a valid review is not answered: {answer}");
    }

    async fn play(&self, sent: &[u8]) -> String {
        let received = self.send(&with_length(sent)).await;
        assert!(memory() < MAX_MEMORY_MIB, "{} MiB are held", memory());
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a task has panicked");
        self.assert_serves().await;
        let received = received.unwrap_or_else(|error| error.kind().to_string().into_bytes());
        summary(&String::from_utf8_lossy(&received))
    }
}

/// Writes everything, even if the peer stops reading, and returns what it wrote.
async fn converse(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite, sent: &[u8]) -> std::io::Result<Vec<u8>> {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut received = Vec::new();
    let write = async {
        to.write_all(sent).await?;
        to.flush().await
    };
    let (_, read) = tokio::join!(write, from.read_to_end(&mut received));
    // A connection that is closed with unread data is reset.
    read.map_or_else(
        |error| if received.is_empty() { Err(error) } else { Ok(received.clone()) },
        |_| Ok(received.clone()),
    )
}

/// Shortens responses to their lines without numbers and long texts.
fn summary(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("date:") && !line.starts_with("content-length:"));
    let short = |line: &str| line.chars().filter(|letter| !letter.is_ascii_digit()).take(100).collect::<String>();
    let codes = text.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 "));
    codes.map(str::to_owned).chain(lines.map(short)).collect::<Vec<_>>().join("|")
}

/// Replaces the placeholder by the length of the body.
fn with_length(sent: &[u8]) -> Vec<u8> {
    let head = sent.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(sent.len(), |at| at + 4);
    let Some(at) = sent[..head].windows(LENGTH.len()).position(|bytes| bytes == LENGTH.as_bytes()) else {
        return sent.to_vec();
    };
    let length = (sent.len() - head).to_string();
    [&sent[..at], length.as_bytes(), &sent[at + LENGTH.len()..]].concat()
}

/// Returns the memory of this process in MiB; 0 without `/proc`.
fn memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    (pages * 4096) >> 20
}

fn head(path: &str, length: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n{length}\r\n\r\n")
}

fn request(path: &str, body: &str) -> String {
    head(path, &format!("content-length: {LENGTH}")) + body
}

fn admission(operation: &str) -> String {
    let container =
        json!({"name": "a", "image": "b", "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80}]});
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b", "labels": {"c": "d"}},
        "spec": {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]}});
    let old = if operation == "CREATE" { json!(null) } else { object.clone() };
    let object = if operation == "DELETE" { json!(null) } else { object };
    let request = json!({"uid": "u", "operation": operation, "name": "a", "namespace": "b", "object": object,
        "oldObject": old, "userInfo": {"username": "someone", "groups": ["g"]}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

fn conversion(desired: &str) -> String {
    let metadata = json!({"name": "a", "namespace": "b", "labels": {"c": "d"}});
    let old =
        json!({"apiVersion": "example.com/v1beta1", "kind": "Site", "metadata": metadata, "spec": {"title": "t"}});
    let new = json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": metadata, "spec": {"titles": ["t"]}});
    let request = json!({"uid": "u", "desiredAPIVersion": desired, "objects": [old, new]});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}).to_string()
}

/// The bytes of a connection: a request, several, or none.
pub(crate) struct Connections;

pub(crate) fn webhook_connections() -> Connections {
    Connections
}

impl engine::Target for Connections {
    type World = World;

    fn seeds(&self) -> Vec<Vec<u8>> {
        let review = admission("UPDATE");
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
        let chunked = head("/mutate--v1-pod?timeout=2s", "transfer-encoding: chunked") + &chunk(&review) + &chunk("");
        let whole = request("/validate--v1-pod?timeout=10s", &review);
        let texts = [
            whole.replace(LENGTH, &review.len().to_string()).repeat(3),
            whole,
            chunked,
            request("/convert", &conversion("example.com/v1")),
            // Lengths of other bodies.
            head("/validate--v1-pod", "content-length: 100000") + &review,
            head("/validate--v1-pod", "content-length: 7") + &review,
            head("/convert", "content-length: 209715200") + &review,
            head("/convert", "content-length: 18446744073709551616") + &review,
            head("/validate--v1-pod", "content-length: 5\r\ntransfer-encoding: chunked") + &review,
            head("/validate--v1-pod", "expect: 100-continue\r\ncontent-length: LENGTH") + &review,
            // Other requests.
            request("/../convert", ""),
            format!("GET /validate--v1-pod HTTP/1.1\r\nhost: {HOST}\r\n\r\n"),
            format!("CONNECT a:1 HTTP/1.1\r\nhost: {HOST}\r\n\r\n"),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            "POST /convert HTTP/1.1\r\nhost".to_owned(),
            String::new(),
            format!("plain:{}", request("/convert", &review)),
            "plain:\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{7c}\u{3}\u{3}".to_owned(),
        ];
        texts.into_iter().map(String::into_bytes).collect()
    }

    async fn open(&self) -> World {
        World::new().await
    }

    async fn play(&self, world: &mut World, input: &[u8]) -> String {
        world.play(input).await
    }
}

/// The reviews in requests that are otherwise valid.
pub(crate) struct Reviews;

pub(crate) fn webhook_reviews() -> Reviews {
    Reviews
}

impl engine::Target for Reviews {
    type World = World;

    fn seeds(&self) -> Vec<Vec<u8>> {
        let admissions = ["CREATE", "UPDATE", "DELETE"].map(admission);
        let conversions = ["example.com/v1", "example.com/v1beta1", "example.com/v2"].map(conversion);
        admissions.into_iter().chain(conversions).map(String::into_bytes).collect()
    }

    async fn open(&self) -> World {
        World::new().await
    }

    async fn play(&self, world: &mut World, input: &[u8]) -> String {
        let is_conversion = input.windows(10).any(|text| text == b"conversion" || text == b"Conversion");
        let paths: &[&str] = match is_conversion {
            true => &["/convert"],
            false => &["/validate--v1-pod", "/mutate--v1-pod", "/validate-example-com-v1-site"],
        };
        let mut summaries = Vec::new();
        for path in paths {
            let sent = [head(path, &format!("content-length: {}", input.len())).as_bytes(), input].concat();
            summaries.push(world.play(&sent).await);
        }
        summaries.join(" ")
    }
}
