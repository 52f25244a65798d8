//! Requests beyond the limits are rejected, and clients that do not read are cut off; other clients are not affected.

use crate::crash::ask;
use bytes::Bytes;
use flyball_core::Clock;
use flyball_server::pki::{Authority, Identity};
use flyball_server::{Body, Bounds, Options, Server, User, serve};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) async fn get(server: &Server, user: User, path: &str) -> Response<Body> {
    let mut request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
    request.extensions_mut().insert(user);
    server.handle(request).await
}

pub(crate) async fn metrics(server: &Server) -> String {
    let page = get(server, User::new("admin", &["system:masters"]), "/metrics").await;
    String::from_utf8(page.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub(crate) async fn grant_access(server: &Server, user: &str) {
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(ask(server, Method::POST, bindings, &binding).await.0, 201);
}

#[tokio::test]
async fn forbidden_requests_are_counted_except_of_administrators() {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    assert_eq!(get(&server, User::new("ann", &[]), MAPS).await.status(), 403);
    // Admission also rejects requests of administrators: this account does not exist.
    let pod = json!({"metadata": {"name": "a"}, "spec": {"serviceAccountName": "b", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(ask(&server, Method::POST, "/api/v1/namespaces/default/pods", &pod).await.0, 403);
    let page = metrics(&server).await;
    let forbidden: Vec<&str> =
        page.lines().filter(|line| line.starts_with("flyball_forbidden_requests_total{")).collect();
    assert!(
        matches!(forbidden[..], [list] if list.contains("resource=\"configmaps\"") && list.ends_with("} 1")),
        "{page}"
    );
}

#[tokio::test]
async fn unknown_paths_add_no_metric_series() {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    for n in 0..100 {
        let paths = [
            format!("/api/v1/nothings-{n}"),
            format!("/apis/g-{n}/v1/x"),
            format!("/path-{n}"),
            format!("{MAPS}/x/sub-{n}"),
        ];
        for path in paths {
            assert_eq!(ask(&server, Method::GET, &path, &Value::Null).await.0, 404);
        }
    }
    let page = metrics(&server).await;
    assert!(page.lines().filter(|line| line.starts_with("apiserver_request_total")).count() < 6, "{page}");
}

/// A server with TLS, and a client configuration for an administrator.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) address: std::net::SocketAddr,
    tls: TlsConnector,
}

impl Served {
    pub(crate) async fn new(bounds: Bounds) -> Self {
        let clock = Clock::system();
        let authority = Authority::new(&clock).unwrap();
        let identity = authority.server(&["localhost"]).unwrap();
        let client = authority.client("admin", Some("system:masters")).unwrap();
        let server = Server::new(Options { bounds, ..Options::system().unwrap() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = authority.tls(&identity).unwrap();
        tokio::spawn(serve(server.clone(), listener, tls, std::future::pending()));
        Self { server, address, tls: connector(&authority, &client) }
    }

    pub(crate) async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
    }

    pub(crate) async fn write(&self, n: usize, body: &str) {
        let object = json!({"metadata": {"name": format!("c-{n}")}, "data": {"a": body}});
        let (code, answer) = ask(&self.server, Method::POST, MAPS, &object).await;
        assert_eq!(code, 201, "{answer}");
    }
}

fn connector(authority: &Authority, client: &Identity) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let certificate = CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_client_auth_cert(vec![certificate], key).unwrap();
    TlsConnector::from(Arc::new(config))
}

/// Watches config maps until it has received a number of events.
async fn count(served: &Served, path: &str, all: usize) -> usize {
    let (mut sender, connection) = http1::handshake(TokioIo::new(served.connect().await)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "localhost").body(Full::<Bytes>::default()).unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let mut seen = 0;
    while seen < all {
        let Some(Ok(frame)) = body.frame().await else { break };
        seen += frame.data_ref().unwrap().iter().filter(|byte| **byte == b'\n').count();
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_are_disconnected_without_effect_on_others() {
    const WRITES: usize = 150;
    let served =
        Arc::new(Served::new(Bounds { slow_client_timeout: Duration::from_secs(1), ..Bounds::default() }).await);
    let watch = "/api/v1/configmaps?watch=1&resourceVersion=0";
    let mut idle = served.connect().await;
    idle.write_all(format!("GET {watch} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    let reader = {
        let served = served.clone();
        tokio::spawn(async move { count(&served, "/api/v1/configmaps?watch=1", WRITES).await })
    };
    // This watch has no events: it is silent, not slow.
    let quiet = {
        let served = served.clone();
        tokio::spawn(async move { count(&served, "/api/v1/secrets?watch=1", 1).await })
    };
    sleep(Duration::from_millis(200)).await;
    let large = "x".repeat(200_000);
    for n in 0..WRITES {
        served.write(n, &large).await;
    }
    let cut_off = async {
        while served.server.slow_watches() == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), cut_off).await.expect("it is cut off");
    assert_eq!(timeout(Duration::from_secs(30), reader).await.unwrap().unwrap(), WRITES, "the other misses nothing");
    let page = metrics(&served.server).await;
    assert!(page.contains("apiserver_terminated_watchers_total{group=\"\",resource=\"configmaps\"} 1\n"), "{page}");
    assert!(page.contains("apiserver_registered_watchers{group=\"\",resource=\"secrets\"} 1\n"), "{page}");
    assert!(!quiet.is_finished());

    // The connection is closed.
    let mut rest = Vec::new();
    let read = timeout(Duration::from_secs(30), idle.read_to_end(&mut rest)).await.expect("the connection ends");
    assert!(read.is_err() || rest.len() < WRITES * large.len(), "{} bytes", rest.len());
}

/// Begins a list, and reads only its first bytes.
async fn begin_list(served: &Served, path: &str) -> TlsStream<TcpStream> {
    let mut stream = served.connect().await;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 100]).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_states_of_unread_lists_are_bounded() {
    const OBJECTS: usize = 40;
    const MAX_PAST_BYTES: usize = 24 << 20;
    let bounds = Bounds { window_bytes: 1 << 20, past_bytes: MAX_PAST_BYTES, ..Bounds::default() };
    let served = Served::new(bounds).await;
    let text = "x".repeat(400_000);
    for n in 0..OBJECTS {
        served.write(n, &text).await;
    }
    let past_bytes = async || {
        let page = metrics(&served.server).await;
        let line = page.lines().find_map(|line| line.strip_prefix("flyball_past_bytes ")).expect("it is there");
        line.parse::<usize>().unwrap()
    };
    let watch = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
        &resourceVersionMatch=NotOlderThan&resourceVersion=";
    let mut lists = Vec::new();
    for round in 0..8 {
        lists.push(begin_list(&served, if round % 2 == 0 { "/api/v1/configmaps" } else { watch }).await);
        for n in 0..OBJECTS {
            let metadata = json!({"name": format!("c-{n}"), "labels": {"round": round.to_string()}});
            let object = json!({"metadata": metadata, "data": {"a": &text}});
            let (code, answer) = ask(&served.server, Method::PUT, &format!("{MAPS}/c-{n}"), &object).await;
            assert_eq!(code, 200, "{answer}");
        }
    }
    // Each list keeps up to 16 MB.
    let closed = async {
        while past_bytes().await > MAX_PAST_BYTES {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(20), closed).await.expect("the first lists are closed");
    assert!(past_bytes().await > MAX_PAST_BYTES / 4, "the last ones are not");
    let mut last = lists.pop().unwrap();
    let read = async {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen[seen.len().saturating_sub(2000)..]).contains("initial-events-end") {
            let mut piece = vec![0; 64 << 10];
            match last.read(&mut piece).await.unwrap() {
                0 => break,
                length => seen.extend_from_slice(&piece[..length]),
            }
        }
        seen.len()
    };
    assert!(timeout(Duration::from_secs(20), read).await.unwrap() > OBJECTS * text.len());
    drop(lists);
}
