//! Connections of servers: a limited number, of which none may be silent from the beginning, or take no responses.

mod open_responses;
mod peers;
mod write_timeout;

pub(crate) use open_responses::{OpenResponses, TrackedBody};
pub(crate) use peers::{Peer, Peers};
pub(crate) use write_timeout::{WRITE_TIMEOUT, WriteTimeout};

use flyball::listener;
use std::future::Future;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Timeout of the first request of a connection. A silent client would hold a slot that others wait for.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

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
