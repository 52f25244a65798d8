//! Progress and deadlines of the peer of one connection.
//!
//! A connection is in one phase at a time. Each phase in which the peer must act has a deadline, which is extended
//! with each byte of a body. The deadlines are computed here and enforced by the parent module. This module is
//! independent of requests and responses.
//!
//! Invariant: only the phase `Handling`, in which the peer waits, has no deadline.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Timeout of a handshake, and of the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a body of a request or a response, independent of its size.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of bytes of a body that extend the deadline by a second.
const MIN_BYTES_PER_SECOND: u64 = 100 << 10;
/// Timeout between two requests; Go's client closes a connection after 90 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Progress of the peer of one connection.
#[derive(Debug)]
pub(crate) struct Pace {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Bytes of the body that were transferred in this phase.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The TLS handshake, or the head of a request.
    Head,
    /// The body of a request is being read.
    Body,
    /// The operator processes the request.
    Handling,
    /// The response is being written; its body has at least this size.
    Writing(u64),
    /// Idle between requests.
    Idle,
}

impl State {
    fn deadline(&self) -> Option<Instant> {
        let transfer = || BODY_TIMEOUT + Duration::from_millis(self.bytes.saturating_mul(1000) / MIN_BYTES_PER_SECOND);
        let time = match self.phase {
            Phase::Head => HEAD_TIMEOUT,
            Phase::Body | Phase::Writing(_) => transfer(),
            Phase::Idle => IDLE_TIMEOUT,
            Phase::Handling => return None,
        };
        self.since.checked_add(time)
    }
}

impl Pace {
    /// Creates the pace of a new connection, in the phase of the handshake or head.
    pub(crate) fn new() -> Self {
        let state = State { phase: Phase::Head, since: Instant::now(), bytes: 0 };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Ends the TLS handshake.
    pub(crate) fn shook_hands(&self) {
        self.enter(Phase::Head);
    }

    /// Starts the phase of the request body, or of the response if there is no body.
    pub(super) fn request_received(&self, has_body: bool) {
        self.enter(if has_body { Phase::Body } else { Phase::Handling });
    }

    /// Starts the phase of writing a response whose body has at least this size.
    pub(super) fn begin_response(&self, size: u64) {
        self.enter(Phase::Writing(size));
    }

    /// Completes when the peer is too slow.
    pub(super) async fn overrun(&self) {
        loop {
            let changed = self.changed.notified();
            match self.state().deadline() {
                Some(deadline) if deadline <= Instant::now() => return,
                Some(deadline) => tokio::select! { () = changed => {}, () = sleep_until(deadline) => {} },
                None => changed.await,
            }
        }
    }

    /// Returns whether the peer is in the middle of a transfer, and its deadline; `None` if it waits for the
    /// operator.
    pub(super) fn rank(&self) -> Option<(bool, Instant)> {
        let state = self.state();
        Some((state.phase != Phase::Idle, state.deadline()?))
    }

    fn state(&self) -> State {
        *self.state.lock()
    }

    fn enter(&self, phase: Phase) {
        *self.state.lock() = State { phase, since: Instant::now(), bytes: 0 };
        self.changed.notify_one();
    }

    fn read(&self, bytes: usize) {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Idle => {
                drop(state);
                self.enter(Phase::Head);
            }
            Phase::Body => state.bytes = state.bytes.saturating_add(bytes as u64),
            _ => {}
        }
    }

    fn wrote(&self, bytes: usize) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Writing(_)) {
            state.bytes = state.bytes.saturating_add(bytes as u64);
        }
    }

    fn flushed(&self) {
        let state = self.state();
        if matches!(state.phase, Phase::Writing(size) if state.bytes > size) {
            self.enter(Phase::Idle);
        }
    }
}

/// A stream that counts its traffic.
#[derive(Debug)]
pub(super) struct PacedStream<S> {
    pub(super) stream: S,
    pub(super) pace: Arc<Pace>,
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.pace.read(buf.filled().len() - before);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.pace.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.pace.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        self.pace.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The body of a request; its end starts the next phase.
#[derive(Debug)]
pub(crate) struct RequestBody {
    pub(super) body: Incoming,
    pub(super) pace: Arc<Pace>,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.pace.request_received(false);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, timeout};

    async fn is_overrun(pace: &Pace) -> bool {
        timeout(Duration::ZERO, pace.overrun()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_that_awaits_the_peer_has_a_deadline() {
        let pace = Pace::new();
        advance(HEAD_TIMEOUT - Duration::from_millis(1)).await;
        assert!(!is_overrun(&pace).await);
        advance(Duration::from_millis(1)).await;
        assert!(is_overrun(&pace).await, "no handshake");

        pace.shook_hands();
        advance(HEAD_TIMEOUT - Duration::from_millis(1)).await;
        pace.read(1);
        advance(Duration::from_millis(1)).await;
        assert!(is_overrun(&pace).await, "a byte of a head does not extend the deadline");

        pace.request_received(true);
        pace.read(2 * MIN_BYTES_PER_SECOND as usize);
        advance(BODY_TIMEOUT + Duration::from_millis(1999)).await;
        assert!(!is_overrun(&pace).await);
        advance(Duration::from_millis(1)).await;
        assert!(is_overrun(&pace).await, "a trickle");

        pace.request_received(false);
        advance(Duration::from_secs(3600)).await;
        assert!(!is_overrun(&pace).await && pace.rank().is_none(), "the peer waits for the operator");

        pace.begin_response(10);
        pace.wrote(5);
        pace.flushed();
        advance(BODY_TIMEOUT).await;
        assert!(is_overrun(&pace).await, "the response is not read");
        pace.wrote(100);
        pace.flushed();
        assert!(!is_overrun(&pace).await && pace.rank().is_some_and(|(busy, _)| !busy));
        advance(IDLE_TIMEOUT - Duration::from_secs(1)).await;
        pace.read(1);
        assert!(pace.rank().is_some_and(|(busy, deadline)| busy && deadline == Instant::now() + HEAD_TIMEOUT));
    }
}
