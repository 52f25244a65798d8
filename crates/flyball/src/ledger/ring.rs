//! A ring of reconciles that is bounded in number and in bytes.

use super::ReconcileRecord;
use std::collections::VecDeque;

/// Reconciles, oldest first. They are stored in place: a new one needs no allocation, and in a full ring it takes the
/// place of the oldest one.
#[derive(Debug)]
pub(super) struct Ring {
    reconciles: VecDeque<Entry>,
    max_count: usize,
    max_bytes: usize,
    bytes: usize,
    dropped: u64,
}

/// A reconcile in a ring.
#[derive(Debug)]
struct Entry {
    sequence: u64,
    /// Its size. To compute it again would read memory that is no longer in a cache of the processor.
    bytes: usize,
    reconcile: ReconcileRecord,
}

/// The size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingSize {
    pub(super) count: usize,
    pub(super) bytes: usize,
    pub(super) dropped: u64,
}

impl Ring {
    pub(super) fn new(max_count: usize, max_bytes: usize) -> Self {
        Self { reconciles: VecDeque::new(), max_count, max_bytes, bytes: 0, dropped: 0 }
    }

    /// Adds a reconcile, and drops the oldest ones if there are too many.
    pub(super) fn push(&mut self, sequence: u64, reconcile: ReconcileRecord) {
        let bytes = reconcile.bytes();
        while self.reconciles.len() >= self.max_count || self.bytes + bytes > self.max_bytes {
            let Some(oldest) = self.reconciles.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.dropped += 1;
        }
        self.bytes += bytes;
        self.grow();
        self.reconciles.push_back(Entry { sequence, bytes, reconcile });
    }

    /// Doubles the capacity if it is used up, to at most the limit. With more places, a new reconcile would not be
    /// written to that of the oldest one, which a cache of the processor contains by now.
    fn grow(&mut self) {
        let count = self.reconciles.len();
        if count == self.reconciles.capacity() {
            self.reconciles.reserve_exact(count.max(4).min(self.max_count - count));
        }
    }

    /// Returns the reconciles with their sequence numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &ReconcileRecord)> {
        self.reconciles.iter().map(|entry| (entry.sequence, &entry.reconcile))
    }

    pub(super) fn size(&self) -> RingSize {
        RingSize { count: self.reconciles.len(), bytes: self.bytes, dropped: self.dropped }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.reconciles.capacity()
    }
}
