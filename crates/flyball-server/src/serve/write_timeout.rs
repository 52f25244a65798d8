//! Connections that are closed if the client reads nothing for too long.

use crate::connection::Peer;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes time out. Unlike that of `tokio-io-timeout`, it reports this to the peer before the connection
/// ends, so that watches count as terminated.
pub(super) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    peer: Arc<Peer>,
    /// The remaining time for which the peer may read nothing.
    remaining: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    /// Sets the peer whose connection is closed on timeout.
    pub(super) fn new(stream: S, timeout: Duration, peer: Arc<Peer>) -> Self {
        Self { stream, timeout, peer, remaining: None }
    }

    fn within<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.remaining = None;
            return done;
        }
        let remaining = self.remaining.get_or_insert_with(|| Box::pin(sleep(self.timeout)));
        std::task::ready!(remaining.as_mut().poll(cx));
        self.peer.close_slow();
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the client reads too slowly")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.within(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within(cx, done)
    }
}
