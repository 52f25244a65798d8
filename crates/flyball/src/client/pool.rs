//! A pool of idle connections to one API server.
//!
//! A connection has no separate task: the caller that waits for a response polls it. Responses are therefore processed
//! by their callers, and requests are sent immediately. With separate tasks, all tasks with responses would run first.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use kube::client::Body;
use parking_lot::{Mutex, MutexGuard};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// Time after which an idle connection is closed: less than the 90 s after which kube-apiserver closes it.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of idle connections.
const MAX_IDLE_CONNECTIONS: usize = 64;
/// Limit of concurrent connection attempts: rustls stores TLS session tickets for this number.
const MAX_CONCURRENT_CONNECTS: usize = 8;

/// A connection, polled by the caller that waits for a response.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Body>,
    /// The future that does the I/O of the connection; `None` once it is closed.
    pub(super) work: Option<BoxFuture<'static, hyper::Result<()>>>,
}

impl Connection {
    /// Sends buffered data, and receives available data.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        // The error is returned to the caller that waits for the response.
        if self.work.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
            self.work = None;
        }
    }

    /// Returns true if the connection can send a request, as far as known.
    fn is_ready(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        self.work.is_some() && self.sender.is_ready()
    }
}

/// Idle connections.
#[derive(Default)]
pub(super) struct IdleConnections {
    waiting: Mutex<Vec<(Connection, Instant)>>,
    /// Wakes a request that waits for a connection.
    pub(super) freed: Notify,
}

impl IdleConnections {
    /// Removes and returns the connection that became idle last, which is the least likely to be closed.
    pub(super) fn pop(&self, cx: &mut Context<'_>) -> Option<Connection> {
        let now = Instant::now();
        loop {
            let (mut connection, _) = self.evict_expired(now).pop()?;
            if connection.is_ready(cx) {
                return Some(connection);
            }
        }
    }

    fn push(&self, connection: Connection) {
        let now = Instant::now();
        let mut waiting = self.evict_expired(now);
        if waiting.len() < MAX_IDLE_CONNECTIONS {
            waiting.push((connection, now));
            self.freed.notify_one();
        }
    }

    /// Closes connections past their timeout, and returns the others in the order in which they became idle.
    fn evict_expired(&self, now: Instant) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        let mut waiting = self.waiting.lock();
        let expired = waiting.partition_point(|(_, since)| now.duration_since(*since) > IDLE_TIMEOUT);
        waiting.drain(..expired);
        waiting
    }
}

/// Limits concurrent connection attempts: one at first, and one more for each established connection, since its TLS
/// session lets the next one resume at a third of the cost.
pub(super) struct ConnectLimiter {
    pub(super) permits: Semaphore,
    limit: AtomicUsize,
}

impl Default for ConnectLimiter {
    fn default() -> Self {
        Self { permits: Semaphore::new(1), limit: AtomicUsize::new(1) }
    }
}

impl ConnectLimiter {
    /// Raises the limit after a connection was established.
    pub(super) fn connected(&self) {
        let raised = |limit| (limit < MAX_CONCURRENT_CONNECTS).then_some(limit + 1);
        if self.limit.fetch_update(Relaxed, Relaxed, raised).is_ok() {
            self.permits.add_permits(1);
        }
    }
}

/// The body of a response with its connection, which becomes idle at the end of the body, and is closed if the body is
/// dropped before.
pub(crate) struct PooledBody {
    body: Incoming,
    connection: Option<(Connection, Arc<IdleConnections>)>,
}

impl PooledBody {
    pub(super) fn new(body: Incoming, connection: Connection, idle: &Arc<IdleConnections>) -> Self {
        let mut pooled = Self { body, connection: Some((connection, idle.clone())) };
        if pooled.body.is_end_stream() {
            pooled.release();
        }
        pooled
    }

    /// Creates the body of a response of an upgraded connection.
    pub(super) fn upgraded(body: Incoming) -> Self {
        Self { body, connection: None }
    }

    fn release(&mut self) {
        if let Some((connection, idle)) = self.connection.take() {
            idle.push(connection);
        }
    }
}

impl http_body::Body for PooledBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let pooled = self.get_mut();
        let mut frame = Pin::new(&mut pooled.body).poll_frame(cx);
        if frame.is_pending()
            && let Some((connection, _)) = &mut pooled.connection
        {
            connection.drive(cx);
            frame = Pin::new(&mut pooled.body).poll_frame(cx);
        }
        let frame = ready!(frame);
        if frame.is_none() || matches!(frame, Some(Ok(_)) if pooled.body.is_end_stream()) {
            pooled.release();
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
