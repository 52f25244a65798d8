//! A connection that fails if its client takes no bytes: it would keep its place, and what waits for it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Time for which a client may take no bytes while there are some for it.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection whose writes fail if none of their bytes is taken within [`WRITE_TIMEOUT`]. Silence while there is
/// nothing to send is no failure.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    /// Set while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, timer: None }
    }

    /// Passes the result of a write on, and fails if it has waited for too long.
    fn limited<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no bytes")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.limited(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.limited(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.limited(closed, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn writes_fail_if_the_client_takes_no_bytes() {
        let (server, mut client) = duplex(8);
        let mut server = WriteTimeout::new(server);
        server.write_all(b"12345678").await.unwrap();
        let error = server.write_all(b"9").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut taken = [0; 8];
        client.read_exact(&mut taken).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn slow_and_silent_clients_stay() {
        let (server, mut client) = duplex(1);
        let mut server = WriteTimeout::new(server);
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
