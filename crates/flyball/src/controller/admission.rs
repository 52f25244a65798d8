//! Admits reconciles within a memory budget.
//!
//! Invariant: a key that waits for memory has no worker, and is added to the queue once it is charged.

use crate::memory::{MemoryBudget, MemoryCharge};
use crate::queue::{Cause, Priority, Queue};
use flyball_core::ObjectKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit of the reconcile of an object that is being deleted, in relation to that of others.
const DELETION_FACTOR: usize = 4;

/// The keys of a controller that wait for memory of a budget.
#[derive(Debug)]
pub(super) struct Admission {
    budget: MemoryBudget,
    /// Limit of a reconcile.
    max_bytes: usize,
    /// The keys that wait, and those with a charge that are in the queue.
    pending: Arc<Mutex<BTreeMap<ObjectKey, Option<MemoryCharge>>>>,
}

impl Admission {
    pub(super) fn new(budget: MemoryBudget, max_bytes: usize) -> Self {
        Self { budget, max_bytes, pending: Arc::default() }
    }

    /// Returns the limit of a reconcile. That of a deletion is larger, since the finalizer has to run.
    pub(super) fn limit(&self, is_deleting: bool) -> usize {
        match is_deleting {
            true => self.max_bytes.saturating_mul(DELETION_FACTOR).min(self.budget.largest_share()),
            false => self.max_bytes.min(self.budget.share()),
        }
    }

    /// Removes and returns the charge for which a key waited.
    pub(super) fn granted(&self, key: &ObjectKey) -> Option<MemoryCharge> {
        let mut pending = self.pending.lock();
        let charge = pending.get_mut(key)?.take()?;
        pending.remove(key);
        Some(charge)
    }

    /// Drops the charge of a key that is not in the queue any more.
    pub(super) fn forget(&self, key: &ObjectKey) {
        let charge = self.granted(key);
        // Without the lock, since this may admit another key.
        drop(charge);
    }

    /// Charges a key; `None` if it waits, and is added to the queue later.
    pub(super) fn charge(&self, key: &ObjectKey, bytes: usize, queue: &Arc<Queue>) -> Option<MemoryCharge> {
        if self.pending.lock().contains_key(key) {
            return None;
        }
        if let Some(charge) = self.budget.try_charge(key.namespace(), bytes) {
            return Some(charge);
        }
        self.pending.lock().insert(key.clone(), None);
        let (pending, queue, waiting) = (self.pending.clone(), queue.clone(), key.clone());
        self.budget.request(key.namespace(), bytes, move |charge| {
            pending.lock().insert(waiting.clone(), Some(charge));
            queue.add(&waiting, Priority::Fresh, Cause::Memory);
        });
        None
    }
}
