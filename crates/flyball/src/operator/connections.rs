//! Connections that others open to the operator.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::BoxError;

/// How long a client may take for a handshake, and to send the head of a request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The wait after a connection could not be accepted, as when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Holds conversations until it is dropped, so many at the same time; more wait.
pub(crate) async fn accept<F>(listener: TcpListener, most: usize, converse: impl Fn(TcpStream) -> F)
where
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    loop {
        let place = places.clone().acquire_owned().await.expect("nobody closes the semaphore");
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let conversation = converse(stream);
        connections.spawn(async move {
            if let Err(error) = conversation.await {
                tracing::debug!(error = &*error, "connection broke off");
            }
            drop(place);
        });
    }
}

/// Answers HTTP requests until the client goes.
pub(crate) async fn answer<S, F>(stream: S, answer: impl Fn(Request<Incoming>) -> F) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(|request| {
        let answered = answer(request);
        async { Ok::<_, Infallible>(answered.await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    Ok(server.serve_connection(TokioIo::new(stream), service).await?)
}
