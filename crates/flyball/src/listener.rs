//! Accepting TCP connections: a limited number, with a pause after failures.
//!
//! It does not know the protocol of the connections, and sets no deadlines: the caller's future does.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Pause after a failed accept. Most likely, the process is out of file descriptors: others must close theirs first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Accepts connections, and runs `serve` for each of them in a task.
///
/// Never returns. At most `limit` connections are open; further ones wait in the queue of the operating system. A drop
/// of the future closes the listener and all connections.
pub async fn accept<F>(listener: TcpListener, limit: usize, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (mut open, slots) = (JoinSet::new(), Arc::new(Semaphore::new(limit)));
    // The semaphore is never closed.
    while let Ok(slot) = slots.clone().acquire_owned().await {
        let (stream, _) = next_connection(&listener).await;
        // Without it, small responses are late.
        let _ = stream.set_nodelay(true);
        let served = serve(stream);
        open.spawn(async move {
            let _slot = slot;
            served.await;
        });
        while open.try_join_next().is_some() {}
    }
}

/// Waits for the next connection of a listener, and pauses after failures.
pub(crate) async fn next_connection(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    retry(|| listener.accept()).await
}

async fn retry<T, F: Future<Output = io::Result<T>>>(mut accept: impl FnMut() -> F) -> T {
    loop {
        match accept().await {
            Ok(accepted) => return accepted,
            Err(error) => tracing::warn!(%error, "failed to accept a connection"),
        }
        sleep(ACCEPT_BACKOFF).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::ready;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Instant, timeout};

    #[tokio::test(start_paused = true)]
    async fn failed_accepts_are_retried_after_a_pause() {
        let (began, calls) = (Instant::now(), Cell::new(0));
        let accept = || {
            calls.set(calls.get() + 1);
            ready(if calls.get() > 3 { Ok("connection") } else { Err(io::Error::other("too many open files")) })
        };
        assert_eq!((retry(accept).await, calls.get()), ("connection", 4));
        assert_eq!(began.elapsed(), ACCEPT_BACKOFF * 3);
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_wait_and_are_closed_with_the_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let echo = |mut stream: TcpStream| async move {
            let mut byte = [0];
            while matches!(stream.read(&mut byte).await, Ok(1)) && stream.write_all(&byte).await.is_ok() {}
        };
        let accepting = tokio::spawn(accept(listener, 1, echo));
        let ask = async |stream: &mut TcpStream| {
            stream.write_all(b"x").await.unwrap();
            stream.read(&mut [0]).await
        };
        let (mut first, mut second) =
            (TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap());
        assert_eq!(ask(&mut first).await.unwrap(), 1);
        assert!(timeout(Duration::from_millis(200), ask(&mut second)).await.is_err(), "the limit is 1");
        drop(first);
        assert_eq!(second.read(&mut [0]).await.unwrap(), 1);
        accepting.abort();
        assert!(!matches!(second.read(&mut [0]).await, Ok(1..)), "the connection is closed");
    }
}
