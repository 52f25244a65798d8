//! Connections of servers: a limited number, of which none may be silent from the beginning, or take no bytes.

mod write_timeout;

pub(crate) use write_timeout::{WRITE_TIMEOUT, WriteTimeout};

use flyball::listener;
use std::future::Future;
use std::pin::pin;
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

/// Drives a connection to its end; `None` if it has no request within the timeout. `requested` is notified of requests.
pub(crate) async fn drive<T>(connection: impl Future<Output = T>, requested: &Notify) -> Option<T> {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        requested = timeout(FIRST_REQUEST_TIMEOUT, requested.notified()) => match requested {
            Ok(()) => Some(connection.await),
            Err(_) => None,
        },
    }
}
