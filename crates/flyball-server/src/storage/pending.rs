//! Entries that lists and watches have not sent yet.
//!
//! A list keeps its entries until they are sent, in the states of its revision.

use super::Entry;
use crate::bounds::{Flow, Hold, SharedBounds};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::vec;

/// The entries of a list, or of the initial state of a watch, that are not sent yet. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct PendingEntries(Arc<Mutex<PendingState>>);

#[derive(Default)]
struct PendingState {
    entries: vec::IntoIter<Arc<Entry>>,
    /// The memory of the references to the entries, until all are sent.
    memory: Option<Hold>,
}

impl PendingState {
    fn fill(&mut self, entries: Vec<Arc<Entry>>) {
        self.memory.iter_mut().for_each(|memory| memory.resize(REFERENCE_BYTES * entries.len()));
        self.entries = entries.into_iter();
    }
}

/// Bytes of the reference to an entry.
const REFERENCE_BYTES: usize = size_of::<Arc<Entry>>();

impl PendingEntries {
    /// Reserves memory for the references to the entries of a list, before it is read; `None` if there is none in time.
    pub(crate) async fn reserve(shared: &SharedBounds, flow: &Flow, count: usize) -> Option<Self> {
        let memory = Some(shared.memory(flow, REFERENCE_BYTES * count).await?);
        Some(Self(Arc::new(Mutex::new(PendingState { entries: vec::IntoIter::default(), memory }))))
    }

    /// Sets the entries.
    pub(crate) fn fill(&self, entries: Vec<Arc<Entry>>) {
        self.0.lock().fill(entries);
    }

    /// Removes the next entry.
    pub(crate) fn pop(&self) -> Option<Arc<Entry>> {
        let mut pending = self.0.lock();
        let next = pending.entries.next();
        if next.is_none() {
            *pending = PendingState::default();
        }
        next
    }

    /// Keeps only the entries for which a function returns true.
    pub(crate) fn retain(&self, keep: impl FnMut(&Arc<Entry>) -> bool) {
        let mut pending = self.0.lock();
        let mut entries: Vec<Arc<Entry>> = std::mem::take(&mut pending.entries).collect();
        entries.retain(keep);
        entries.shrink_to_fit();
        pending.fill(entries);
    }

    /// Returns the bytes of the past states among the entries.
    pub(crate) fn past_bytes(&self) -> usize {
        let pending = self.0.lock();
        pending.entries.as_slice().iter().map(|entry| entry.past_bytes()).sum()
    }
}

impl fmt::Debug for PendingEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingEntries").field(&self.0.lock().entries.len()).finish()
    }
}
