//! Objects that may have been deleted although the cache contains them.
//!
//! Caches of different kinds are not in step. If the deletion of an owner arrives later than those of its children,
//! each reconcile would create the children again, and the garbage collector would delete them. Kubernetes reads the
//! owner from the API server before it adopts an object for the same reason. To read it before each creation would cost
//! a request for each new object.

use crate::cache::StoreId;
use flyball_core::ObjectKey;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// The objects of a controller that are read from the API server before a child of theirs is created: those that have
/// lost a child, and those without a change since the first list of this process.
///
/// Invariant: the keys are of objects in the cache, so that their number is bounded by it.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    keys: BTreeSet<ObjectKey>,
    /// The revisions of the first lists.
    first_lists: BTreeMap<StoreId, u64>,
}

impl Unconfirmed {
    /// Records that a child of an object has disappeared, or that the object could not be confirmed.
    pub(super) fn insert(&self, key: &ObjectKey) {
        self.0.lock().keys.insert(key.clone());
    }

    /// Removes an object that is no longer in the cache.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.0.lock().keys.remove(key);
    }

    /// Records the revision of a list of the objects. Only the first one counts: later lists are at least as new as the
    /// changes before.
    pub(super) fn listed(&self, store: StoreId, revision: u64) {
        self.0.lock().first_lists.entry(store).or_insert(revision);
    }

    /// Returns true if an object of this version must be confirmed, and removes its key: a child may disappear again
    /// while the object is being reconciled.
    pub(super) fn must_confirm(&self, store: StoreId, key: &ObjectKey, version: u64) -> bool {
        let mut state = self.0.lock();
        let has_lost_child = state.keys.remove(key);
        has_lost_child || state.first_lists.get(&store).is_some_and(|first| version <= *first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_unconfirmed_after_the_first_list_and_the_loss_of_a_child() {
        let (unconfirmed, key) = (Unconfirmed::default(), ObjectKey::new(Some("default"), "a"));
        assert!(!unconfirmed.must_confirm(0, &key, 5), "nothing was listed");
        unconfirmed.listed(0, 7);
        unconfirmed.listed(0, 9);
        assert!(unconfirmed.must_confirm(0, &key, 7), "it is as in the first list");
        assert!(!unconfirmed.must_confirm(0, &key, 8), "it has changed since");
        unconfirmed.insert(&key);
        assert!(unconfirmed.must_confirm(0, &key, 8) && !unconfirmed.must_confirm(0, &key, 8));
        unconfirmed.insert(&key);
        unconfirmed.forget(&key);
        assert!(!unconfirmed.must_confirm(0, &key, 8));
    }
}
