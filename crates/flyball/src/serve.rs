//! The HTTP server of an operator: webhooks, metrics and health.
//!
//! Every peer that reaches the port may connect, so a listener has a limited number of connections, and each of them
//! must make progress: see `pace`. At the limit, a new connection replaces another one: of the address with the most
//! connections, an idle one first, then the slowest. It is rejected only if all connections wait for responses of the
//! operator.
//!
//! Invariant: a connection with a complete request is never closed for another one.

mod pace;

pub(crate) use pace::{Pace, RequestBody};

use crate::listener::next_connection;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use pace::PacedStream;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;
use tower::BoxError;

/// Interval of checks for a connection that may be closed, while all wait for the operator.
const FULL_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Buffer size of a connection, which also limits the head of a request.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// An open connection.
struct OpenConnection {
    task: AbortHandle,
    pace: Arc<Pace>,
    peer: IpAddr,
}

/// Accepts connections until it is dropped, limited to `limit` concurrent ones.
pub(crate) async fn accept<F>(listener: TcpListener, limit: usize, converse: impl Fn(TcpStream, Arc<Pace>) -> F)
where
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let (mut tasks, mut open) = (JoinSet::new(), Vec::<OpenConnection>::new());
    loop {
        let (stream, peer) = next_connection(&listener).await;
        loop {
            while tasks.try_join_next().is_some() {}
            open.retain(|each| !each.task.is_finished());
            if open.len() < limit || close_one(&mut open) {
                break;
            }
            // All connections wait for the operator.
            tokio::select! { _ = tasks.join_next() => {}, () = sleep(FULL_RETRY_INTERVAL) => {} }
        }
        let pace = Arc::new(Pace::new());
        let (conversation, watched) = (converse(stream, pace.clone()), pace.clone());
        let task = tasks.spawn(async move {
            tokio::select! {
                result = conversation => if let Err(error) = result {
                    tracing::debug!(error = &*error, "connection failed");
                },
                () = watched.overrun() => tracing::debug!(%peer, "closed a connection that was too slow"),
            }
        });
        open.push(OpenConnection { task, pace, peer: peer.ip() });
    }
}

/// Closes the least important connection, and returns false if there is none.
fn close_one(open: &mut Vec<OpenConnection>) -> bool {
    let mut connections: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for each in open.iter() {
        *connections.entry(each.peer).or_default() += 1;
    }
    let ranked = open.iter().enumerate().filter_map(|(at, each)| {
        let (is_busy, deadline) = each.pace.rank()?;
        Some((Reverse(connections.get(&each.peer).copied()), is_busy, deadline, at))
    });
    let Some((.., at)) = ranked.min() else { return false };
    open.swap_remove(at).task.abort();
    true
}

/// Serves HTTP requests until the client disconnects.
pub(crate) async fn serve_connection<S, F>(
    stream: S,
    pace: Arc<Pace>,
    respond: impl Fn(Request<RequestBody>) -> F,
) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<Full<Bytes>>>,
{
    pace.shook_hands();
    let service = service_fn(|request: Request<Incoming>| {
        let pace = pace.clone();
        let is_head = *request.method() == Method::HEAD;
        pace.request_received(!request.body().is_end_stream());
        let response = respond(request.map(|body| RequestBody { body, pace: pace.clone() }));
        async move {
            let response = response.await;
            pace.begin_response(if is_head { 0 } else { response.body().size_hint().lower() });
            Ok::<_, Infallible>(response)
        }
    });
    let stream = TokioIo::new(PacedStream { stream, pace: pace.clone() });
    let mut server = http1::Builder::new();
    // The pace has its own deadlines for request heads.
    server.header_read_timeout(None).max_buf_size(MAX_BUFFER_BYTES);
    Ok(server.serve_connection(stream, service).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Instant, timeout};

    async fn serve(limit: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pages = |stream, pace| async {
            let page = |request: Request<RequestBody>| async move {
                if request.uri().path() == "/wait" {
                    std::future::pending::<()>().await;
                }
                Response::new(Full::from("hello"))
            };
            serve_connection(stream, pace, page).await
        };
        tokio::spawn(accept(listener, limit, pages));
        address
    }

    async fn send(stream: &mut TcpStream, path: &str) -> String {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
        let mut text = vec![0; 1024];
        let read = stream.read(&mut text).await.unwrap();
        String::from_utf8(text[..read].to_vec()).unwrap()
    }

    /// Returns true if the operator has closed a connection.
    async fn is_closed(stream: &mut TcpStream) -> bool {
        timeout(Duration::from_secs(1), stream.read(&mut [0])).await.is_ok_and(|read| !matches!(read, Ok(1..)))
    }

    #[tokio::test]
    async fn full_listener_closes_idle_connections_first_and_never_pending_ones() {
        let address = serve(3).await;
        let connect = || TcpStream::connect(address);
        let (mut waits, mut started, mut idle) =
            (connect().await.unwrap(), connect().await.unwrap(), connect().await.unwrap());
        waits.write_all(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert!(send(&mut idle, "/").await.contains("hello"));
        started.write_all(b"GET / HT").await.unwrap();
        sleep(Duration::from_millis(50)).await;
        let mut fourth = connect().await.unwrap();
        assert!(send(&mut fourth, "/").await.contains("hello"));
        assert!(is_closed(&mut idle).await, "the connection was idle");
        let mut fifth = connect().await.unwrap();
        assert!(send(&mut fifth, "/").await.contains("hello"));
        assert!(is_closed(&mut fourth).await);
        fifth.write_all(b"GET").await.unwrap();
        sleep(Duration::from_millis(50)).await;
        let mut sixth = connect().await.unwrap();
        assert!(send(&mut sixth, "/").await.contains("hello"));
        assert!(is_closed(&mut started).await, "the slowest");
        assert!(!is_closed(&mut waits).await);
    }

    #[test]
    fn address_with_the_most_connections_loses_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let one = |last: u8| OpenConnection {
                task: tokio::spawn(std::future::pending::<()>()).abort_handle(),
                pace: Arc::new(Pace::new()),
                peer: Ipv4Addr::new(10, 0, 0, last).into(),
            };
            // The API server's connection came first, and so is the slowest.
            let mut open: Vec<OpenConnection> = [1, 2, 2, 3].map(one).into();
            assert!(close_one(&mut open));
            let mut remaining: Vec<String> = open.iter().map(|each| each.peer.to_string()).collect();
            remaining.sort();
            assert_eq!(remaining, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
            open.iter().for_each(|each| each.pace.request_received(false));
            assert!(!close_one(&mut open), "all wait for responses");
        });
    }

    #[tokio::test]
    async fn slow_clients_do_not_delay_others() {
        let address = serve(64).await;
        let mut slow = JoinSet::new();
        for _ in 0..1000 {
            slow.spawn(async move {
                loop {
                    let Ok(mut stream) = TcpStream::connect(address).await else { continue };
                    while stream.write_all(b"G").await.is_ok() {
                        sleep(Duration::from_millis(500)).await;
                    }
                }
            });
        }
        sleep(Duration::from_millis(500)).await;
        let mut took = Vec::new();
        for _ in 0..50 {
            let began = Instant::now();
            // Like the API server, it retries after its connection was closed.
            loop {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
                let mut text = [0; 1024];
                if matches!(stream.read(&mut text).await, Ok(1..)) {
                    break;
                }
            }
            took.push(began.elapsed());
        }
        took.sort();
        assert!(took[49] < Duration::from_secs(5), "{:?}", took[49]);
    }
}
