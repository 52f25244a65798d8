//! Connections of servers: a limited number, of which none may be silent from the beginning, or take no responses.

mod open_responses;
mod peers;

pub(crate) use open_responses::{OpenResponses, TrackedBody};
pub(crate) use peers::{Peer, Peers};

use flyball::listener;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

/// Timeout of the first request of a connection. A silent client would hold a slot that others wait for.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a client may take no bytes while there are some for it: it would keep its place, and what waits for it.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a stream whose writes fail if none of their bytes is taken within [`WRITE_TIMEOUT`].
pub(crate) fn limit_writes(stream: TcpStream) -> Pin<Box<TimeoutStream<TcpStream>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    Box::pin(stream)
}

/// Accepts connections until `stop` is done, which closes them. Those beyond the limit wait.
pub(crate) async fn accept<F>(
    listener: TcpListener,
    limit: usize,
    stop: impl Future<Output = ()>,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::select! {
        biased;
        () = stop => {}
        () = listener::accept(listener, limit, serve) => {}
    }
}

/// Drives a connection to its end; `None` if it has no request within the timeout, or its client takes none of its
/// responses. `requested` is notified of requests.
pub(crate) async fn drive<T>(
    connection: impl Future<Output = T>,
    requested: &Notify,
    responses: &OpenResponses,
) -> Option<T> {
    let is_silent = async {
        if timeout(FIRST_REQUEST_TIMEOUT, requested.notified()).await.is_ok() {
            responses.stalled().await;
        }
    };
    tokio::select! {
        biased;
        ended = connection => Some(ended),
        () = is_silent => None,
    }
}
