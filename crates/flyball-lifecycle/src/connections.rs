//! Connections of servers: a limited number, of which none may be silent from the beginning.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

/// Timeout of the first request of a connection. A silent client would hold a slot that others wait for.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a failure to accept a connection: most likely, the process is out of file descriptors.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Accepts connections until `stop` is done. Those beyond the limit wait.
pub(crate) async fn accept<F>(
    listener: TcpListener,
    limit: usize,
    stop: impl Future<Output = ()>,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(limit));
    let mut stop = pin!(stop);
    loop {
        let accept = async {
            let slot = slots.clone().acquire_owned().await;
            (listener.accept().await, slot)
        };
        let (accepted, slot) = tokio::select! {
            biased;
            () = &mut stop => return,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                let served = serve(stream);
                tokio::spawn(async move {
                    let _slot = slot;
                    served.await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
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
