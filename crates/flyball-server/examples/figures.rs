//! Figures of storage and watches, in process: the costs of a data directory, of a fork and of watchers.
//!
//!     cargo run --release -p flyball-server --example figures [rates] [start] [fork] [watch]
#![expect(clippy::print_stdout, reason = "it is what the program is for")]
#![expect(clippy::unwrap_used, reason = "without the figure there is nothing to go on with")]

use bytes::Bytes;
use flyball_core::Clock;
use flyball_server::pki::Authority;
use flyball_server::{DataDir, Options, Server, User, serve};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn ask(server: &Server, method: Method, path: &str, body: &Value) -> u16 {
    let bytes: Bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let mut request = Request::new(Full::new(bytes));
    (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
    request.extensions_mut().insert(User::new("admin", &["system:masters"]));
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    server.handle(request).await.status().as_u16()
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "figures"}}, "data": {"a": "x".repeat(1024)}})
}

/// Creates objects from 16 concurrent tasks; returns the rate per second.
async fn fill(server: &Server, count: usize) -> f64 {
    let start = Instant::now();
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let server = server.clone();
            tokio::spawn(async move {
                for n in (writer..count).step_by(16) {
                    assert_eq!(ask(&server, Method::POST, MAPS, &map(&format!("c-{n}"))).await, 201);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("flyball-figures-{}", std::process::id()))
}

fn open() -> Server {
    Server::open(Options::system().unwrap(), DataDir::open(folder()).unwrap()).unwrap()
}

fn in_memory() -> Server {
    Server::new(Options::system().unwrap())
}

/// Returns the median of some times, in microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

async fn rates() {
    for round in 1..=3 {
        let memory = fill(&in_memory(), 10_000).await;
        let disk = fill(&open(), 10_000).await;
        println!("create, 16 at once: {memory:.0}/s in memory, {disk:.0}/s with a data directory (round {round})");
        std::fs::remove_dir_all(folder()).unwrap();
    }
}

async fn start() {
    let new = || {
        let start = Instant::now();
        in_memory();
        start.elapsed()
    };
    let (first, further) = (new().as_secs_f64() * 1e3, median((0..101).map(|_| new()).collect()) / 1e3);
    println!("a new server in memory: {first:.1} ms for the first, {further:.1} ms for further ones (median of 101)");
    fill(&open(), 10_000).await;
    for _ in 0..3 {
        let start = Instant::now();
        let server = open();
        let opened = start.elapsed();
        assert_eq!(server.count("", "configmaps"), 10_000);
        println!("start with 10,000 objects of 1 KiB: {:.0} ms", opened.as_secs_f64() * 1e3);
    }
    std::fs::remove_dir_all(folder()).unwrap();
}

async fn fork() {
    for count in [1_000, 10_000] {
        let server = in_memory();
        fill(&server, count).await;
        let mut took = Vec::new();
        for seed in 0..101 {
            let options = Options::simulated(Clock::system(), seed);
            let start = Instant::now();
            let fork = server.snapshot().fork(options);
            let forked = start.elapsed();
            assert_eq!(ask(&fork, Method::POST, MAPS, &map("one-more")).await, 201);
            took.push((forked, start.elapsed() - forked));
        }
        let forked = median(took.iter().map(|(forked, _)| *forked).collect());
        let written = median(took.iter().map(|(_, written)| *written).collect());
        println!("fork of {count} objects: {forked:.0} µs; the first write to it: {written:.0} µs (medians of 101)");
    }
}

/// Returns the CPU time of this process in seconds.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|field| fields.get(*field)?.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// 1,000 watchers over TLS, fifty to a connection, while 100 objects a second are written.
async fn watch() {
    const CONNECTIONS: usize = 20;
    const EACH: usize = 50;
    const WRITES: usize = 1_000;
    let clock = Clock::system();
    let authority = Authority::new(&clock).unwrap();
    let identity = authority.server(&["localhost"]).unwrap();
    let client = authority.client("admin", Some("system:masters")).unwrap();
    let server = in_memory();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(server.clone(), listener, authority.tls(&identity).unwrap(), std::future::pending()));

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let certificate = CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).unwrap();
    let mut config = config.with_root_certificates(roots).with_client_auth_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config));

    let received = Arc::new(AtomicU64::new(0));
    let mut watchers = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..EACH {
            let (mut sender, received) = (sender.clone(), received.clone());
            let request = Request::get(format!("https://localhost{MAPS}?watch=1")).body(Full::<Bytes>::default());
            let mut body = sender.send_request(request.unwrap()).await.unwrap().into_body();
            watchers.push(tokio::spawn(async move {
                let mut seen = 0;
                while seen < WRITES {
                    let frame = body.frame().await.unwrap().unwrap();
                    let events = frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
                    seen += events;
                    received.fetch_add(events as u64, Ordering::Relaxed);
                }
            }));
        }
    }
    let (start, computed) = (Instant::now(), cpu());
    for n in 0..WRITES {
        tokio::time::sleep_until(start + Duration::from_millis(10) * n as u32).await;
        assert_eq!(ask(&server, Method::POST, MAPS, &map(&format!("c-{n}"))).await, 201);
    }
    let wrote = start.elapsed();
    for watcher in watchers {
        watcher.await.unwrap();
    }
    let (took, computed) = (start.elapsed(), cpu() - computed);
    let received = received.load(Ordering::Relaxed);
    let all = CONNECTIONS * EACH * WRITES;
    println!(
        "{} watchers over TLS, {WRITES} writes in {:.1} s: {received} of {all} events in {:.1} s, {:.1} s of CPU for server and clients, {} cut off",
        CONNECTIONS * EACH,
        wrote.as_secs_f64(),
        took.as_secs_f64(),
        computed,
        server.slow_watches(),
    );
}

#[tokio::main]
async fn main() {
    let selected: Vec<String> = std::env::args().skip(1).collect();
    let wants = |what: &str| selected.is_empty() || selected.iter().any(|known| known == what);
    if wants("rates") {
        rates().await;
    }
    if wants("start") {
        start().await;
    }
    if wants("fork") {
        fork().await;
    }
    if wants("watch") {
        watch().await;
    }
}
