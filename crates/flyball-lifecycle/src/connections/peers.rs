//! The connections of clients that are not known, by IP address.
//!
//! Every pod can connect. One that opens many connections must not take the places of others, so a new connection
//! replaces the oldest one of its address if there are too many. Several clients may share an address.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Notify;

/// The connections.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    /// Limit of the connections from one address.
    max_of_address: usize,
    /// The connections by address, oldest first.
    open: Arc<Mutex<BTreeMap<IpAddr, VecDeque<Arc<Notify>>>>>,
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    all: Peers,
    address: IpAddr,
    /// Notified when a newer connection takes its place.
    pub(crate) replaced: Arc<Notify>,
}

impl Peers {
    /// Limits the connections from one address.
    pub(crate) fn new(max_of_address: usize) -> Self {
        Self { max_of_address, open: Arc::default() }
    }

    /// Counts a connection, which may take the place of the oldest one.
    pub(crate) fn enter(&self, address: IpAddr) -> Peer {
        let replaced = Arc::<Notify>::default();
        let mut peers = self.open.lock();
        let connections = peers.entry(address).or_default();
        if connections.len() >= self.max_of_address
            && let Some(oldest) = connections.pop_front()
        {
            oldest.notify_one();
        }
        connections.push_back(replaced.clone());
        Peer { all: self.clone(), address, replaced }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut peers = self.all.open.lock();
        if let Some(connections) = peers.get_mut(&self.address) {
            connections.retain(|other| !Arc::ptr_eq(other, &self.replaced));
            if connections.is_empty() {
                peers.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn new_connections_take_the_places_of_old_ones_of_their_address() {
        let (peers, one, other) = (Peers::new(16), IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let quiet = peers.enter(other);
        let all: Vec<Peer> = (0..19).map(|_| peers.enter(one)).collect();
        let is_replaced = |peer: &Peer| peer.replaced.notified().now_or_never().is_some();
        assert_eq!(all.iter().map(is_replaced).filter(|is| *is).count(), 3);
        assert!(!is_replaced(&quiet));
        drop((all, quiet));
        assert!(peers.open.lock().is_empty());
    }
}
