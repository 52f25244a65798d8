//! Connections of unresponsive peers are closed, and their resources are released.

use crate::bounds::{MAPS, Served, metrics};
use bytes::Bytes;
use flyball_server::Bounds;
use http::{Method, Request};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Waits until the server closes a connection; returns the number of seconds.
async fn closed(stream: &mut (impl AsyncReadExt + Unpin)) -> u64 {
    let start = Instant::now();
    let mut rest = Vec::new();
    timeout(Duration::from_secs(60), async { drop(stream.read_to_end(&mut rest).await) }).await.expect("it is closed");
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn connections_without_request_are_closed() {
    let served = Served::new(Bounds::default()).await;
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    assert!(closed(&mut silent).await <= 11, "before the handshake");
    for sent in
        ["", "P", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n"]
    {
        let mut stream = served.connect().await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        assert!(closed(&mut stream).await <= 11, "{sent:?}");
    }
}

#[tokio::test]
async fn connection_beyond_the_limit_closes_the_idlest() {
    let served = Served::new(Bounds { connections: 3, ..Bounds::default() }).await;
    let mut silent = served.connect().await;
    let mut watch = served.connect().await;
    watch.write_all(b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    watch.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let mut others = Vec::new();
    for _ in 0..20 {
        let (mut sender, connection) = http1::handshake(TokioIo::new(served.connect().await)).await.unwrap();
        others.push(tokio::spawn(connection));
        let request = Request::get("/healthz").header("host", "a").body(Full::<Bytes>::default()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
        // The server observes the end of its response shortly after the client.
        sleep(Duration::from_millis(50)).await;
        // It is left open.
        tokio::spawn(async move {
            sleep(Duration::from_secs(600)).await;
            drop(sender);
        });
    }
    assert!(closed(&mut silent).await < 10);
    let open = others.iter().filter(|connection| !connection.is_finished()).count();
    assert!(open <= 3, "{open}");
    let mut rest = Vec::new();
    let end = timeout(Duration::from_millis(200), watch.read_to_end(&mut rest)).await;
    assert!(end.is_err(), "the watch goes on: {end:?}");
}

async fn gauge(served: &Served, name: &str) -> u64 {
    let page = metrics(&served.server).await;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
    line.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_with_closed_windows_are_reset() {
    const STREAMS: usize = 200;
    const LIMIT: u64 = 4 << 20;
    let bounds =
        Bounds { slow_client_timeout: Duration::from_secs(2), unsent_bytes: LIMIT as usize, ..Bounds::default() };
    let served = Served::new(bounds).await;
    for n in 0..40 {
        served.write(n, &"x".repeat(50_000)).await;
    }
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0).max_concurrent_reset_streams(STREAMS);
    let (sender, connection) = builder.handshake(TokioIo::new(served.connect().await)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut ends = Vec::new();
    for n in 0..STREAMS {
        const JSON: &str = "application/json";
        const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
        let (path, accept) = match n % 6 {
            0 | 1 => ("/api/v1/configmaps?watch=1&resourceVersion=0", JSON),
            2 => (MAPS, JSON),
            3 => (MAPS, "application/yaml"),
            4 => ("/api/v1/configmaps?includeObject=Object", TABLE),
            _ => ("/api/v1/namespaces/default/configmaps/c-1", JSON),
        };
        let mut sender = sender.clone();
        ends.push(tokio::spawn(async move {
            let uri = format!("https://localhost{path}");
            let request = Request::get(uri).header("accept", accept).body(Full::<Bytes>::default()).unwrap();
            // Too many bytes of earlier responses are unread.
            let response = sender.send_request(request).await?;
            if response.status() == 429 {
                return Ok(());
            }
            response.into_body().collect().await.map(drop)
        }));
    }
    let (start, mut most) = (Instant::now(), 0);
    let all = async {
        while !ends.iter().all(JoinHandle::is_finished) {
            most = gauge(&served, "flyball_unsent_bytes").await.max(most);
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), all).await.expect("all streams end");
    println!("{most} bytes unsent at most, all streams at an end after {:?}", start.elapsed());
    assert!(most > LIMIT / 4 && most <= LIMIT, "{most}");
    let mut reset = 0;
    for end in ends {
        reset += usize::from(end.await.unwrap().is_err());
    }
    assert!(reset >= STREAMS / 3, "{reset}");
    assert!(served.server.slow_watches() > 0);
    // Its other streams continue: only the stream is reset.
    assert!(!connection.is_finished());
    timeout(Duration::from_secs(30), async {
        while gauge(&served, "flyball_unsent_bytes").await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("all is free again");
}

#[tokio::test]
async fn client_certificate_sets_user_and_credential_id() {
    let served = Served::new(Bounds::default()).await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(served.connect().await)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::POST)
        .uri("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("host", "a")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(json!({}).to_string())))
        .unwrap();
    let body = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let user = &answer["status"]["userInfo"];
    assert_eq!(user["username"], "admin");
    let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap();
    let digest = id.strip_prefix("X509SHA256=").unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
}

/// Sends a GET request over a connection of its own, with a header of so many bytes; returns the status code.
async fn get_with_header(served: &Served, bytes: usize) -> u16 {
    let (mut sender, connection) = http1::handshake(TokioIo::new(served.connect().await)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("/healthz").header("host", "a").header("x-long", "x".repeat(bytes));
    sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap().status().as_u16()
}

/// Opens a connection with as many requests as it may have, whose heads are long and whose bodies never arrive. A
/// request returns the reason of its reset.
async fn flood(served: &Served) -> (JoinHandle<hyper::Result<()>>, Vec<JoinHandle<Option<h2::Reason>>>) {
    let stream = TokioIo::new(served.connect().await);
    let (sender, connection) = http2::Builder::new(TokioExecutor::new()).handshake(stream).await.unwrap();
    let request = |_| {
        let mut sender = sender.clone();
        tokio::spawn(async move {
            let body = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>());
            let request = Request::post(format!("https://localhost{MAPS}"));
            let request = request.header("content-type", "application/json").header("x-long", "x".repeat(13_000));
            let error = sender.send_request(request.body(body).unwrap()).await.err()?;
            std::error::Error::source(&error)?.downcast_ref::<h2::Error>()?.reason()
        })
    };
    (tokio::spawn(connection), (0..100).map(request).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_the_head_limit_are_rejected() {
    // Fewer than a third of the requests of a connection.
    let served = Served::new(Bounds { head_bytes: 800_000, ..Bounds::default() }).await;
    assert_eq!(get_with_header(&served, 50_000).await, 200);
    let (connection, requests) = flood(&served).await;
    timeout(Duration::from_secs(60), async {
        while !requests.iter().any(JoinHandle::is_finished) {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("some are refused");
    assert_eq!(get_with_header(&served, 50_000).await, 429);
    assert_eq!(get_with_header(&served, 10).await, 200, "each connection has a reserve");
    let mut refused = 0;
    for request in requests {
        let reason = timeout(Duration::from_secs(60), request).await.expect("bodies must arrive in time").unwrap();
        refused += usize::from(reason == Some(h2::Reason::REFUSED_STREAM));
    }
    assert!((50..100).contains(&refused), "{refused}");
    connection.abort();
    timeout(Duration::from_secs(60), async {
        while get_with_header(&served, 50_000).await != 200 {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("closed connections free their part");
}
