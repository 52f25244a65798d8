//! Link: the connection of a request, without the transport. In-process requests have none.
//!
//! Takes the sent bytes from the transport, and the user from the server. It does not depend on HTTP and TLS.
//! Invariant: a link is closed once, and ends regardless of its client.

use crate::bounds::{Flow, Hold};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

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
    /// When the last request ended.
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
    pub(crate) fn break_off(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
        self.closed.send();
    }
}

/// The part of a connection for one request and its response. Clones share the state.
#[derive(Clone)]
pub(crate) struct Link(Arc<State>);

struct State {
    peer: Arc<Peer>,
    /// Ends the response, and over HTTP/1 also the connection.
    end: Arc<End>,
    flow: OnceLock<Flow>,
    /// True if it was ended because its client does not read.
    is_slow: AtomicBool,
    /// The hold that is released at the end of the response.
    kept: OnceLock<Hold>,
    /// Reserved bytes of the response until it is generated, then its fixed cost until it has ended.
    room: Mutex<Option<Hold>>,
    /// When the pieces were handed to the transport that have not been sent yet.
    unsent: Mutex<VecDeque<Instant>>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.peer.state.lock().last = Instant::now();
        self.peer.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    pub(crate) fn new(peer: Arc<Peer>, end: Arc<End>) -> Self {
        peer.active.fetch_add(1, Ordering::Relaxed);
        peer.state.lock().has_requested = true;
        let (flow, kept, unsent, is_slow) =
            (OnceLock::new(), OnceLock::new(), Mutex::default(), AtomicBool::new(false));
        let room = Mutex::default();
        Self(Arc::new(State { peer, end, flow, is_slow, kept, room, unsent }))
    }

    /// A link that ends with its connection.
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

    /// Holds a value until the response has ended.
    pub(crate) fn keep(&self, hold: Hold) {
        let _ = self.0.kept.set(hold);
    }

    /// Returns true if something is held until the response has ended, such as the count of watches.
    pub(crate) fn is_watch(&self) -> bool {
        self.0.kept.get().is_some()
    }

    /// Replaces the reserved bytes of the response; returns the previous ones.
    pub(crate) fn keep_room(&self, room: Option<Hold>) -> Option<Hold> {
        std::mem::replace(&mut *self.0.room.lock(), room)
    }

    fn unsent(&self) -> MutexGuard<'_, VecDeque<Instant>> {
        self.0.unsent.lock()
    }

    /// Records that a piece was passed to the transport.
    pub(crate) fn record_piece(&self) {
        self.unsent().push_back(Instant::now());
    }

    /// Records that the oldest piece was sent.
    pub(crate) fn sent(&self) {
        self.unsent().pop_front();
    }

    /// Returns true if the response was cut off because its client does not read.
    pub(crate) fn is_slow(&self) -> bool {
        self.0.is_slow.load(Ordering::Relaxed) || self.0.peer.is_slow.load(Ordering::Relaxed)
    }

    pub(crate) fn downgrade(&self) -> WeakLink {
        WeakLink(Arc::downgrade(&self.0))
    }

    /// Ends the response if the client has not read a piece of it for this time. Remaining pieces are freed with the
    /// connection.
    pub(crate) fn cut_off_slow(&self, timeout: Duration) {
        if self.unsent().front().is_none_or(|handed| handed.elapsed() < timeout) {
            return;
        }
        self.0.is_slow.store(true, Ordering::Relaxed);
        if !self.0.end.send() {
            self.0.peer.break_off();
        }
    }
}

/// A link that may have ended.
pub(crate) struct WeakLink(Weak<State>);

impl WeakLink {
    pub(crate) fn upgrade(&self) -> Option<Link> {
        self.0.upgrade().map(Link)
    }
}

#[cfg(test)]
impl Default for Link {
    fn default() -> Self {
        Self::new(Arc::default(), Arc::default())
    }
}
