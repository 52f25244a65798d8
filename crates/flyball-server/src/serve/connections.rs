//! The connections of a server: a limited number, of which the most idle one is closed first.
//!
//! Takes accepted connections, and closes one if there are too many. It does not depend on their content.

use crate::bounds::Flow;
use crate::connection::{Peer, RequestConnection, WeakConnection};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Interval of the warnings about the limit: a client may connect thousands of times per second.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// All connections, and the responses in progress on them.
pub(super) struct Connections {
    limit: usize,
    peers: Mutex<Vec<Weak<Peer>>>,
    requests: Mutex<Vec<WeakConnection>>,
    closures: Mutex<Closures>,
}

/// The connections that were closed since the last warning.
#[derive(Default)]
struct Closures {
    count: usize,
    warned: Option<Instant>,
}

impl Closures {
    /// Counts a closed connection; returns the number to warn about, if a warning is due.
    fn count(&mut self) -> Option<usize> {
        self.count += 1;
        if self.warned.is_some_and(|warned| warned.elapsed() < WARNING_INTERVAL) {
            return None;
        }
        self.warned = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}

impl Connections {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), peers: Mutex::default(), requests: Mutex::default(), closures: Mutex::default() }
    }

    /// Adds a connection; closes another one if there are too many.
    pub(super) fn accept(&self) -> Arc<Peer> {
        let peer = Arc::new(Peer::default());
        let mut peers = self.peers.lock();
        if peers.len() >= self.limit {
            peers.retain(|peer| peer.upgrade().is_some_and(|peer| !peer.closed.is_sent()));
        }
        if peers.len() >= self.limit {
            let all: Vec<Arc<Peer>> = peers.iter().filter_map(Weak::upgrade).collect();
            if let Some(victim) = victim(&all) {
                if let Some(count) = self.closures.lock().count() {
                    tracing::warn!(
                        limit = self.limit,
                        count,
                        "connection limit reached: closed the connections that were idle longest"
                    );
                }
                victim.closed.send();
            }
        }
        peers.push(Arc::downgrade(&peer));
        peer
    }

    /// Adds the connection of a request.
    pub(super) fn note(&self, request: &RequestConnection) {
        let mut requests = self.requests.lock();
        if requests.len() == requests.capacity() {
            // Ended ones are removed when the list is full.
            requests.retain(|request| request.upgrade().is_some());
        }
        requests.push(request.downgrade());
    }

    /// Returns all responses in progress.
    pub(super) fn requests(&self) -> Vec<RequestConnection> {
        self.requests.lock().iter().filter_map(WeakConnection::upgrade).collect()
    }
}

/// Selects the connection to close: the one that has been idle longest; if none is idle, one of the user with the most
/// connections.
fn victim(all: &[Arc<Peer>]) -> Option<&Arc<Peer>> {
    let idlest = all.iter().min_by_key(|peer| peer.rank())?;
    if idlest.rank().0 < 2 {
        return Some(idlest);
    }
    let mut of_users: BTreeMap<Option<Flow>, Vec<&Arc<Peer>>> = BTreeMap::new();
    all.iter().for_each(|peer| of_users.entry(peer.flow()).or_default().push(peer));
    of_users.into_values().max_by_key(Vec::len)?.into_iter().min_by_key(|peer| peer.rank())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn busy(peer: &Arc<Peer>, user: &str) -> RequestConnection {
        let request = RequestConnection::new(peer.clone(), Arc::default());
        request.identify(&Flow::of(user, false, true));
        request
    }

    #[tokio::test(start_paused = true)]
    async fn closed_connections_are_reported_once_per_interval() {
        let mut closures = Closures::default();
        let mut reports = |count: usize| (0..count).filter_map(|_| closures.count()).collect::<Vec<_>>();
        assert_eq!(reports(1000), [1]);
        advance(WARNING_INTERVAL).await;
        assert_eq!(reports(1000), [1000]);
        assert!(reports(1000).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn idlest_connection_is_closed_first() {
        let connections = Connections::new(3);
        let tick = || advance(Duration::from_secs(1));
        let first = connections.accept();
        tick().await;
        let second = connections.accept();
        tick().await;
        let _watch = busy(&first, "ann");
        drop(busy(&second, "bob"));
        let silent = connections.accept();
        tick().await;
        let fourth = connections.accept();
        assert!(silent.closed.is_sent() && !first.closed.is_sent() && !second.closed.is_sent());
        let (_other, _same) = (busy(&fourth, "ann"), tick().await);
        let fifth = connections.accept();
        assert!(second.closed.is_sent() && !first.closed.is_sent() && !fourth.closed.is_sent());
        // All are busy: she has two of them.
        let _bob = busy(&fifth, "bob");
        connections.accept();
        assert!(first.closed.is_sent() && !fourth.closed.is_sent() && !fifth.closed.is_sent());
    }
}
