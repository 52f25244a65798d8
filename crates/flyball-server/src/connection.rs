//! The connection of a request, without the transport. In-process requests have none.
//!
//! Takes the sent bytes from the transport, and the user from the server. It does not depend on HTTP and TLS.
//! Invariant: a response is closed once, and ends regardless of its client.

use crate::bounds::{Flow, Hold};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Bytes of a response that extend the time for which it may wait for its client by a second: the same rate as of
/// request bodies.
const MIN_BYTES_PER_SECOND: usize = 16 << 10;

/// A one-time signal to end.
#[derive(Default)]
pub(crate) struct End {
    is_sent: AtomicBool,
    notify: Notify,
}

impl End {
    /// Sends the signal; returns true if it was not sent before.
    pub(crate) fn send(&self) -> bool {
        let first = !self.is_sent.swap(true, Ordering::AcqRel);
        self.notify.notify_waiters();
        first
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Acquire)
    }

    pub(crate) async fn wait(&self) {
        let mut notified = std::pin::pin!(self.notify.notified());
        notified.as_mut().enable();
        if !self.is_sent() {
            notified.await;
        }
    }
}

/// The other end of a connection.
pub(crate) struct Peer {
    pub(crate) closed: Arc<End>,
    /// True if it was closed because its client does not read.
    is_slow: AtomicBool,
    state: Mutex<PeerState>,
    /// Requests under way.
    active: AtomicUsize,
}

struct PeerState {
    has_requested: bool,
    /// The sender of the last request, as far as that is known.
    flow: Option<Flow>,
    /// Time at which the last request ended.
    last: Instant,
}

impl Default for Peer {
    fn default() -> Self {
        let now = Instant::now();
        let state = Mutex::new(PeerState { has_requested: false, flow: None, last: now });
        Self { closed: Arc::default(), is_slow: AtomicBool::new(false), state, active: AtomicUsize::new(0) }
    }
}

impl Peer {
    /// Returns true if the connection has received a request.
    pub(crate) fn has_requested(&self) -> bool {
        self.state.lock().has_requested
    }

    /// Returns the user of the last request.
    pub(crate) fn flow(&self) -> Option<Flow> {
        self.state.lock().flow.clone()
    }

    /// Returns the rank by which connections are closed if there are too many, lowest first: those without a request,
    /// then those without one in flight, each by the time since their last request.
    pub(crate) fn rank(&self) -> (u8, Instant) {
        let state = self.state.lock();
        let class = match self.active.load(Ordering::Relaxed) {
            0 if !state.has_requested => 0,
            0 => 1,
            _ => 2,
        };
        (class, state.last)
    }

    /// Closes the connection because its client does not read.
    pub(crate) fn close_slow(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
        self.closed.send();
    }
}

/// The part of a connection for one request and its response. Clones share the state.
#[derive(Clone)]
pub(crate) struct RequestConnection(Arc<State>);

struct State {
    peer: Arc<Peer>,
    /// Ends the response, and over HTTP/1 also the connection.
    end: Arc<End>,
    flow: OnceLock<Flow>,
    /// True if it was ended because its client does not read.
    is_slow: AtomicBool,
    /// The hold that is released at the end of the response.
    held: OnceLock<Hold>,
    /// Reserved bytes of the response until it is generated, then its fixed cost until it has ended.
    reservation: Mutex<Option<Hold>>,
    transfer: Mutex<Transfer>,
    /// Returns the bytes of past states that the response keeps in memory.
    past_bytes: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
}

/// The progress of a response.
#[derive(Default)]
struct Transfer {
    /// Times at which unsent pieces were handed to the transport, and their sizes.
    unsent: VecDeque<(Instant, usize)>,
    /// Number of sent bytes.
    sent: usize,
    /// Total time for which pieces have waited for the client, until `busy_since`.
    waited: Duration,
    /// Since when there are unsent pieces.
    busy_since: Option<Instant>,
}

impl Transfer {
    fn waited(&self) -> Duration {
        self.waited + self.busy_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.peer.state.lock().last = Instant::now();
        self.peer.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestConnection {
    pub(crate) fn new(peer: Arc<Peer>, end: Arc<End>) -> Self {
        peer.active.fetch_add(1, Ordering::Relaxed);
        peer.state.lock().has_requested = true;
        let (flow, held, past_bytes) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (reservation, transfer, is_slow) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(State { peer, end, flow, is_slow, held, reservation, transfer, past_bytes }))
    }

    /// The connection of a request over HTTP/1: it ends with the response.
    pub(crate) fn of_connection(peer: Arc<Peer>) -> Self {
        let end = peer.closed.clone();
        Self::new(peer, end)
    }

    /// Sets the user of the request.
    pub(crate) fn identify(&self, flow: &Flow) {
        self.0.peer.state.lock().flow = Some(flow.clone());
        let _ = self.0.flow.set(flow.clone());
    }

    /// Returns the user of the request, as far as it is known.
    pub(crate) fn flow(&self) -> Option<&Flow> {
        self.0.flow.get()
    }

    /// Holds this slot until the response has ended.
    pub(crate) fn hold(&self, hold: Hold) {
        let _ = self.0.held.set(hold);
    }

    /// Returns true if something is held until the response has ended, such as the count of watches.
    pub(crate) fn is_watch(&self) -> bool {
        self.0.held.get().is_some()
    }

    /// Replaces the reserved bytes of the response; returns the previous ones.
    pub(crate) fn replace_reservation(&self, reservation: Option<Hold>) -> Option<Hold> {
        std::mem::replace(&mut *self.0.reservation.lock(), reservation)
    }

    /// Sets the function that returns the bytes of past states that the response keeps in memory.
    pub(crate) fn count_past_bytes(&self, past_bytes: impl Fn() -> usize + Send + Sync + 'static) {
        let _ = self.0.past_bytes.set(Box::new(past_bytes));
    }

    /// Returns the bytes of past states that the response keeps in memory.
    pub(crate) fn past_bytes(&self) -> usize {
        self.0.past_bytes.get().map_or(0, |past_bytes| past_bytes())
    }

    fn transfer(&self) -> MutexGuard<'_, Transfer> {
        self.0.transfer.lock()
    }

    /// Records that a piece was passed to the transport.
    pub(crate) fn record_piece(&self, bytes: usize) {
        let (mut transfer, now) = (self.transfer(), Instant::now());
        transfer.busy_since.get_or_insert(now);
        transfer.unsent.push_back((now, bytes));
    }

    /// Records that the oldest piece was sent.
    pub(crate) fn sent(&self) {
        let mut transfer = self.transfer();
        if let Some((_, bytes)) = transfer.unsent.pop_front() {
            transfer.sent += bytes;
        }
        if transfer.unsent.is_empty() {
            transfer.waited = transfer.waited();
            transfer.busy_since = None;
        }
    }

    /// Returns true if the response was closed because its client does not read.
    pub(crate) fn is_slow(&self) -> bool {
        self.0.is_slow.load(Ordering::Relaxed) || self.0.peer.is_slow.load(Ordering::Relaxed)
    }

    pub(crate) fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.0))
    }

    /// Ends the response if the client has not read a piece of it for this time, or reads it below the minimum rate. A
    /// watch has no minimum rate, since it lasts.
    pub(crate) fn close_if_slow(&self, timeout: Duration) {
        let is_slow = {
            let transfer = self.transfer();
            let Some((handed, _)) = transfer.unsent.front() else { return };
            let allowed = timeout + Duration::from_secs((transfer.sent / MIN_BYTES_PER_SECOND) as u64);
            handed.elapsed() >= timeout || !self.is_watch() && transfer.waited() >= allowed
        };
        if is_slow {
            self.close();
        }
    }

    /// Ends the response. Remaining pieces are freed with the connection.
    pub(crate) fn close(&self) {
        self.0.is_slow.store(true, Ordering::Relaxed);
        if !self.0.end.send() {
            self.0.peer.close_slow();
        }
    }
}

/// A weak reference to the connection of a request that may have ended.
pub(crate) struct WeakConnection(Weak<State>);

impl WeakConnection {
    pub(crate) fn upgrade(&self) -> Option<RequestConnection> {
        self.0.upgrade().map(RequestConnection)
    }
}

#[cfg(test)]
impl Default for RequestConnection {
    fn default() -> Self {
        Self::new(Arc::default(), Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Bounds, SharedBounds};
    use tokio::time::advance;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Reads pieces of 32 KiB in this time each; returns the number of pieces until the response is closed.
    async fn read(connection: &RequestConnection, time: Duration) -> usize {
        for n in 0..100 {
            connection.record_piece(32 << 10);
            advance(time).await;
            connection.close_if_slow(TIMEOUT);
            connection.sent();
            // Time without unsent pieces is not the client's.
            advance(TIMEOUT).await;
            connection.close_if_slow(TIMEOUT);
            if connection.is_slow() {
                return n;
            }
        }
        100
    }

    #[tokio::test(start_paused = true)]
    async fn responses_have_a_minimum_rate() {
        assert_eq!(read(&RequestConnection::default(), Duration::from_secs(1)).await, 100, "32 KiB/s");
        assert_eq!(read(&RequestConnection::default(), Duration::from_secs(31)).await, 0);
        // 3.2 KiB/s: each piece takes 8 seconds longer than it may, of 30.
        assert_eq!(read(&RequestConnection::default(), Duration::from_secs(10)).await, 3);
        let (watch, shared) = (RequestConnection::default(), SharedBounds::new(&Bounds::default()));
        watch.hold(shared.watches.try_take(&Flow::unidentified(), 1).unwrap());
        assert_eq!(read(&watch, Duration::from_secs(10)).await, 100);
    }
}
