//! Limits the memory of requests in progress.
//!
//! A request keeps its head and the future of its response while it waits for a slot, for memory or for its body. Over
//! HTTP/2 a connection may have a hundred such requests before their user is authenticated. So all connections share a
//! limit, and each has a small reserve beyond it: many large heads of one client do not block other clients.

use http::request::Parts;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reserve of each connection, in bytes.
const MAX_OWN_BYTES: usize = 32 << 10;
/// Overhead of a request in bytes, besides the texts of its head: its stream and its task.
const OVERHEAD_BYTES: usize = 2 << 10;
/// Bytes of the future of a response: 4.4 KiB, and the futures that it boxes.
const RESPONSE_BYTES: usize = 12 << 10;
/// Overhead of each header in bytes, besides its texts.
const HEADER_BYTES: usize = 128;

/// The heads of all connections of a server.
pub(super) struct Heads {
    bytes: AtomicUsize,
    max_bytes: usize,
}

impl Heads {
    pub(super) fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), max_bytes })
    }
}

/// The heads of one connection.
pub(super) struct ConnectionHeads {
    all: Arc<Heads>,
    own: AtomicUsize,
}

/// A head that is counted until it is dropped.
pub(super) struct Head {
    connection: Arc<ConnectionHeads>,
    bytes: usize,
}

impl ConnectionHeads {
    pub(super) fn new(all: Arc<Heads>) -> Arc<Self> {
        Arc::new(Self { all, own: AtomicUsize::new(0) })
    }

    /// Counts a head of this size; `None` if it exceeds the limit.
    pub(super) fn try_count(self: &Arc<Self>, bytes: usize) -> Option<Head> {
        let mut head = Head { connection: self.clone(), bytes: 0 };
        // A head that is not returned is subtracted by its drop.
        head.add(bytes).then_some(head)
    }
}

impl Head {
    /// Counts the future of the response as well; returns false if it exceeds the limit.
    pub(super) fn begin(&mut self) -> bool {
        self.add(RESPONSE_BYTES)
    }

    fn add(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let own = self.connection.own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.connection.all.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        own <= MAX_OWN_BYTES || all <= self.connection.all.max_bytes
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        self.connection.own.fetch_sub(self.bytes, Ordering::Relaxed);
        self.connection.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Returns the approximate memory of a head, in bytes.
pub(super) fn size(head: &Parts) -> usize {
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let headers = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
    OVERHEAD_BYTES + path + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BYTES: usize = 32 << 20;

    #[test]
    fn large_heads_are_rejected_per_connection() {
        let all = Heads::new(MAX_BYTES);
        let (greedy, modest) = (ConnectionHeads::new(all.clone()), ConnectionHeads::new(all.clone()));
        let taken: Vec<Head> = std::iter::from_fn(|| greedy.try_count(16 << 10)).take(1 << 20).collect();
        assert_eq!(taken.len(), MAX_BYTES >> 14);
        assert!(greedy.try_count(1).is_none());
        let own: Vec<Head> = std::iter::from_fn(|| modest.try_count(2 << 10)).take(1 << 20).collect();
        assert_eq!(own.len(), MAX_OWN_BYTES >> 11);
        drop((taken, own));
        assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
    }
    #[test]
    fn started_responses_are_counted_and_each_connection_may_start_one() {
        let all = Heads::new(MAX_BYTES);
        let (greedy, modest) = (ConnectionHeads::new(all.clone()), ConnectionHeads::new(all.clone()));
        let mut started = Vec::new();
        while let Some(mut head) = greedy.try_count(OVERHEAD_BYTES).filter(|_| started.len() < 1 << 20) {
            let has_room = head.begin();
            started.push(head);
            if !has_room {
                break;
            }
        }
        assert_eq!(started.len(), MAX_BYTES / (OVERHEAD_BYTES + RESPONSE_BYTES) + 1);
        assert!(modest.try_count(OVERHEAD_BYTES).expect("its own").begin());
        drop(started);
        assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
    }
}
