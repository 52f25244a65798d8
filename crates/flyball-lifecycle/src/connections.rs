//! Connections of servers: a limited number, of which none may be silent from the beginning, or take no responses.

mod open_responses;
mod peers;

pub(crate) use open_responses::{OpenResponses, TrackedBody};
pub(crate) use peers::{Peer, Peers};

use flyball::listener;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

/// Timeout of the first request of a connection. A silent client would hold a slot that others wait for.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a client may take no bytes while there are some for it: it would keep its place.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a stream whose writes fail if none of their bytes is taken within [`WRITE_TIMEOUT`].
pub(crate) fn limit_writes<S: AsyncRead + AsyncWrite>(stream: S) -> Pin<Box<TimeoutStream<S>>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn writes_fail_if_the_client_takes_no_bytes() {
        let (server, mut client) = duplex(8);
        let mut server = limit_writes(server);
        server.write_all(b"12345678").await.unwrap();
        let start = Instant::now();
        let error = server.write_all(b"9").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!((WRITE_TIMEOUT..2 * WRITE_TIMEOUT).contains(&start.elapsed()), "{:?}", start.elapsed());
        let mut taken = [0; 8];
        client.read_exact(&mut taken).await.unwrap();
        assert_eq!(&taken, b"12345678");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_and_silent_clients_stay() {
        let (server, mut client) = duplex(1);
        let mut server = limit_writes(server);
        let reader = tokio::spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..5 {
                sleep(WRITE_TIMEOUT - Duration::from_secs(1)).await;
                taken.push(client.read_u8().await.unwrap());
            }
            taken
        });
        server.write_all(b"123").await.unwrap();
        sleep(10 * WRITE_TIMEOUT).await;
        server.write_all(b"45").await.unwrap();
        assert_eq!(reader.await.unwrap(), b"12345");
    }
}
