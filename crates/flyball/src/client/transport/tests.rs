use super::super::{Endpoint, HttpService, ResponseBody, connect};
use super::{Connection, Transport};
use crate::error::chain;
use futures_util::future::{join, join_all};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;
use tokio::time::{self, Instant, timeout};

/// A server that responds depending on the path, and records requests.
struct Server {
    config: kube::Config,
    /// The headers of requests, each with the number of its connection.
    requests: Arc<Mutex<Vec<(usize, String)>>>,
    /// The numbers of connections that were closed.
    closed: UnboundedReceiver<usize>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<_>>> = Arc::default();
        let (sender, closed) = unbounded_channel();
        let log = requests.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(converse(number, stream, log.clone(), sender.clone()));
            }
        });
        Self { config: kube::Config::new(url.parse().unwrap()), requests, closed }
    }

    fn connections(&self) -> Vec<usize> {
        self.requests.lock().iter().map(|(number, _)| *number).collect()
    }

    fn last(&self) -> String {
        self.requests.lock().last().unwrap().1.to_lowercase()
    }
}

async fn converse(
    number: usize,
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<(usize, String)>>>,
    closed: UnboundedSender<usize>,
) {
    let mut head = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        head.push(byte);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
        let path = text.split(' ').nth(1).unwrap().to_owned();
        log.lock().push((number, text));
        let response = match path.rsplit('/').next().unwrap() {
            "empty" => "HTTP/1.1 204 No Content\r\n\r\n",
            "chunks" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "upgrade" => "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello",
            "endless" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        };
        stream.write_all(response.as_bytes()).await.unwrap();
        if path == "/last" {
            break;
        }
    }
    drop(stream);
    let _ = closed.send(number);
}

async fn begin(link: &Endpoint, path: &str) -> kube::Result<Response<ResponseBody>> {
    link.sender.send(Request::get(path).body(Body::empty()).unwrap()).await
}

async fn get(link: &Endpoint, path: &str) -> String {
    let body = begin(link, path).await.unwrap().into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().into()).unwrap()
}

#[tokio::test]
async fn connection_is_reused() {
    let server = Server::start().await;
    let link = Endpoint::new(server.config.clone()).unwrap();
    for (path, body) in [("/a", "hello"), ("/empty", ""), ("/chunks", "hello"), ("/a?limit=1", "hello")] {
        assert_eq!(get(&link, path).await, body, "{path}");
    }
    assert_eq!(server.connections(), [0; 4]);
    assert!(server.last().starts_with("get /a?limit=1 http/1.1\r\n"), "{}", server.last());
    assert!(server.last().contains(&format!("host: {}", server.config.cluster_url.authority().unwrap())));

    let first = begin(&link, "/a").await.unwrap();
    assert_eq!(get(&link, "/a").await, "hello", "while another response is being read");
    drop(first.into_body().collect().await.unwrap());
    assert_eq!(server.connections()[4..], [0, 1]);
}

#[tokio::test]
async fn closed_idle_connection_is_replaced() {
    let mut server = Server::start().await;
    let link = Endpoint::new(server.config.clone()).unwrap();
    assert_eq!(get(&link, "/last").await, "hello");
    assert_eq!(server.closed.recv().await, Some(0));
    assert_eq!(get(&link, "/a").await, "hello");
    assert_eq!(server.connections(), [0, 1]);
}

#[tokio::test]
async fn connection_past_idle_timeout_is_not_reused() {
    let mut server = Server::start().await;
    let link = Endpoint::new(server.config.clone()).unwrap();
    assert_eq!(get(&link, "/a").await, "hello");
    time::pause();
    time::advance(super::super::pool::IDLE_TIMEOUT + Duration::from_secs(1)).await;
    time::resume();
    assert_eq!(get(&link, "/a").await, "hello");
    assert_eq!(server.connections(), [0, 1]);
    assert_eq!(server.closed.recv().await, Some(0));
}

#[tokio::test]
async fn dropped_response_closes_its_connection() {
    let mut server = Server::start().await;
    let link = Endpoint::new(server.config.clone()).unwrap();
    let mut body = begin(&link, "/endless").await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert!(timeout(Duration::from_millis(20), server.closed.recv()).await.is_err());
    drop(body);
    assert_eq!(server.closed.recv().await, Some(0));
}

#[tokio::test]
async fn cluster_url_path_prefixes_requests() {
    let server = Server::start().await;
    let mut config = server.config.clone();
    config.cluster_url = format!("{}k8s/clusters/c-1/", config.cluster_url).parse().unwrap();
    let link = Endpoint::new(config).unwrap();
    assert_eq!(get(&link, "/api/v1/pods?watch=1").await, "hello");
    assert!(server.last().starts_with("get /k8s/clusters/c-1/api/v1/pods?watch=1 http/1.1\r\n"), "{}", server.last());
}

#[tokio::test]
async fn requests_carry_credentials() {
    let server = Server::start().await;
    let mut config = server.config.clone();
    config.auth_info.token = Some("t0ken".to_owned().into());
    assert_eq!(get(&Endpoint::new(config).unwrap(), "/a").await, "hello");
    assert!(server.last().contains("authorization: bearer t0ken\r\n"), "{}", server.last());

    let file = std::env::temp_dir().join(format!("flyball-token-{}", std::process::id()));
    std::fs::write(&file, "fr0m-file").unwrap();
    let mut config = server.config.clone();
    config.auth_info.token_file = Some(file.to_str().unwrap().to_owned());
    let link = Endpoint::new(config).unwrap();
    for _ in 0..2 {
        assert_eq!(get(&link, "/a").await, "hello");
        assert!(server.last().contains("authorization: bearer fr0m-file\r\n"), "{}", server.last());
    }
    assert_eq!(server.connections(), [0, 1, 1]);
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn impersonation_and_headers_are_sent_with_each_request() {
    let server = Server::start().await;
    let mut config = server.config.clone();
    config.auth_info.token = Some("t0ken".to_owned().into());
    config.auth_info.impersonate = Some("jane".to_owned());
    config.headers.push(("x-tenant".parse().unwrap(), "acme".parse().unwrap()));
    let link = Endpoint::new(config).unwrap();
    for _ in 0..2 {
        assert_eq!(get(&link, "/a").await, "hello");
        for line in ["authorization: bearer t0ken\r\n", "impersonate-user: jane\r\n", "x-tenant: acme\r\n"] {
            assert!(server.last().contains(line), "{}", server.last());
        }
    }
    assert_eq!(server.connections(), [0, 0]);
}

/// A proxy that forwards every tunnel to one address, unless it rejects them; returns its own address and the
/// received headers.
async fn proxy(to: &kube::Config, response: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = to.cluster_url.authority().unwrap().to_string();
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = heads.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            log.lock().push(String::from_utf8(head).unwrap());
            stream.write_all(response.as_bytes()).await.unwrap();
            let mut server = TcpStream::connect(&to).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut server).await });
        }
    });
    (address, heads)
}

#[tokio::test]
async fn configured_proxy_carries_requests_in_one_tunnel() {
    let server = Server::start().await;
    let (address, heads) = proxy(&server.config, "HTTP/1.1 200 OK\r\n\r\n").await;
    let mut config = kube::Config::new("http://cluster.test:6443".parse().unwrap());
    config.proxy_url = Some(format!("http://user:p%40ss@{address}").parse().unwrap());
    let link = Endpoint::new(config.clone()).unwrap();
    for _ in 0..2 {
        assert_eq!(get(&link, "/a").await, "hello");
        assert!(server.last().contains("host: cluster.test:6443\r\n"), "{}", server.last());
    }
    assert_eq!(server.connections(), [0, 0]);
    let heads = || std::mem::take(&mut *heads.lock());
    let expected = "CONNECT cluster.test:6443 HTTP/1.1\r\nHost: cluster.test:6443\r\n\
                    Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n";
    assert_eq!(heads(), [expected]);

    // The proxy in a kubeconfig is used for loopback addresses as well, as by kubectl.
    config.cluster_url = "http://127.0.0.1".parse().unwrap();
    assert_eq!(get(&Endpoint::new(config).unwrap(), "/a").await, "hello");
    assert!(heads()[0].starts_with("CONNECT 127.0.0.1:80 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn proxy_error_hides_the_password() {
    let server = Server::start().await;
    let (address, _) = proxy(&server.config, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    let mut config = kube::Config::new("https://cluster.test".parse().unwrap());
    config.root_cert = Some(Vec::new());
    for (proxy, expected) in [
        (
            format!("http://user:secret@{address}"),
            format!("cluster.test:443 through the proxy {address} of the kubeconfig's proxy-url: it answered 407"),
        ),
        (format!("socks5://user:secret@{address}"), "the kubeconfig's proxy-url: invalid proxy \"socks5://".to_owned()),
    ] {
        config.proxy_url = Some(proxy.parse().unwrap());
        let error = begin(&Endpoint::new(config.clone()).unwrap(), "/a").await.err().expect("no tunnel");
        let text = chain(&error);
        assert!(text.contains(&expected) && !text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn unreachable_server_is_named_in_the_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let link = Endpoint::new(kube::Config::new(url.parse().unwrap())).unwrap();
    let error = begin(&link, "/a").await.err().expect("no server listens");
    let text = chain(&error);
    assert!(text.starts_with(&format!("ServiceError: cannot connect to {url}: ")), "{text}");
    assert!(text.contains("refused"), "{text}");
}

#[tokio::test]
async fn upgraded_connection_is_not_reused() {
    let server = Server::start().await;
    let link = Endpoint::new(server.config.clone()).unwrap();
    let response = begin(&link, "/upgrade").await.unwrap();
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    assert_eq!(get(&link, "/a").await, "hello");
    stream.write_all(b"GET /b HTTP/1.1\r\n\r\n").await.unwrap();
    stream.read_u8().await.unwrap();
    assert_eq!(server.connections(), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn each_established_connection_allows_another_concurrent_one() {
    let (started, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let mut transport = Transport::new(&kube::Config::new("http://localhost".parse().unwrap())).unwrap();
    let connects = (started.clone(), gate.clone());
    transport.connect = Box::new(move || {
        let (started, gate) = connects.clone();
        Box::pin(async move {
            started.fetch_add(1, Relaxed);
            gate.acquire().await?.forget();
            // The connection gets no response.
            let (stream, other) = duplex(1024);
            let (sender, work) = http1::handshake(TokioIo::new(stream)).await?;
            let work = async move { (work.await, drop(other)).0 };
            Ok(Connection { sender, work: Some(Box::pin(work)) })
        })
    });
    let requests = join_all((0..40).map(|_| transport.exchange(Request::new(Body::empty()))));
    let check = async {
        let mut all = 0;
        for connected in [0, 1, 1, 2, 4, 8, 8] {
            gate.add_permits(connected);
            // Paused time does not advance while a task is busy, so no timeout expires.
            for _ in 0..1000 {
                yield_now().await;
            }
            all += connected;
            assert_eq!(started.load(Relaxed), all + (all + 1).min(8), "after {all}");
        }
    };
    tokio::select! {
        () = check => {}
        _ = requests => unreachable!("there is no response"),
    }
}

#[tokio::test]
async fn stalled_handshake_delays_others_by_a_bounded_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let mut config = kube::Config::new(url.parse().unwrap());
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    config.root_cert = Some(vec![certified.cert.der().to_vec()]);
    let link = Endpoint::new(config).unwrap();
    // The handshake gets no response.
    let connected = async {
        let first = listener.accept().await.unwrap();
        let since = Instant::now();
        let second = listener.accept().await.unwrap();
        (since.elapsed(), first, second)
    };
    tokio::select! {
        timely = timeout(Duration::from_secs(20), connected) => {
            let (waited, ..) = timely.unwrap();
            assert!(waited >= super::CONNECT_PERMIT_TIMEOUT / 2, "{waited:?}");
        }
        _ = join(begin(&link, "/a"), begin(&link, "/b")) => unreachable!("there is no response"),
    }
}

/// Serves one request with this certificate.
async fn respond_once(listener: &TcpListener, certified: &rcgen::CertifiedKey<rcgen::KeyPair>) -> std::io::Result<()> {
    let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let (stream, _) = listener.accept().await?;
    let mut stream = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello").await?;
    stream.shutdown().await
}

#[tokio::test]
async fn replaced_certificate_authority_is_reloaded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = kube::Config::new(format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap());
    let [old, new] = [(); 2].map(|()| rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap());
    let file = std::env::temp_dir().join(format!("flyball-ca-{}", std::process::id()));
    std::fs::write(&file, old.cert.pem()).unwrap();
    config.root_cert_file = Some(file.clone());
    let link = Endpoint::new(config).unwrap();
    let ask = async |certified| {
        let (response, _) = join(begin(&link, "/a"), respond_once(&listener, certified)).await;
        match response {
            Ok(response) => response.into_body().collect().await.map(|_| ()).map_err(|error| error.to_string()),
            Err(error) => Err(chain(&error)),
        }
    };
    assert_eq!(ask(&old).await, Ok(()));
    let rejected = ask(&new).await.unwrap_err();
    assert!(rejected.contains("certificate"), "{rejected}");
    // A half-written file is ignored.
    std::fs::write(&file, &new.cert.pem()[..100]).unwrap();
    assert_eq!(ask(&old).await, Ok(()));
    std::fs::write(&file, new.cert.pem()).unwrap();
    assert_eq!(ask(&new).await, Ok(()));
    assert!(ask(&old).await.is_err());
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn replaced_client_certificate_is_reloaded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = kube::Config::new(format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap());
    let [server, old, new] = [(); 3].map(|()| rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap());
    let mut roots = rustls::RootCertStore::empty();
    [&old, &new].into_iter().for_each(|client| roots.add(client.cert.der().clone()).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let key = rustls::pki_types::PrivateKeyDer::try_from(server.signing_key.serialize_der()).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![server.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let serve = async || {
        let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let certificates = stream.get_ref().1.peer_certificates().unwrap().to_vec();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello").await.unwrap();
        stream.shutdown().await.unwrap();
        certificates
    };
    let [certificate, key] =
        ["crt", "key"].map(|end| std::env::temp_dir().join(format!("flyball-client-{}.{end}", std::process::id())));
    let replace = |client: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        std::fs::write(&certificate, client.cert.pem()).unwrap();
        std::fs::write(&key, client.signing_key.serialize_pem()).unwrap();
    };
    config.root_cert = Some(vec![server.cert.der().to_vec()]);
    config.auth_info.client_certificate = Some(certificate.to_str().unwrap().to_owned());
    config.auth_info.client_key = Some(key.to_str().unwrap().to_owned());
    replace(&old);
    let client = connect(config).unwrap();
    for shown in [&old, &new] {
        replace(shown);
        let ask = async {
            let response = HttpService::send(&client, Request::get("/a").body(Body::empty()).unwrap()).await.unwrap();
            response.into_body().collect().await.unwrap();
        };
        let (certificates, ()) = join(serve(), ask).await;
        assert_eq!(certificates, [shown.cert.der().clone()]);
    }
    std::fs::remove_file(certificate).unwrap();
    std::fs::remove_file(key).unwrap();
}
