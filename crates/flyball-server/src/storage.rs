//! Storage: the objects of every resource, in one order of revisions.
//!
//! Takes objects as JSON and hands out [`Entry`]s: the bytes as they were written, with the few decoded facts by which
//! lists and watches select. One counter numbers all writes; a table keeps its latest events in a bounded window, from
//! which watches read on and past states are restored.
//!
//! It knows nothing of HTTP, of kinds and of what an object may be. What must stay true: revisions grow by one with
//! each write and never go back; an entry is immutable; the window holds every event after its start, in order.

mod entry;
mod table;

#[cfg(test)]
mod tests;

pub(crate) use entry::{Entry, Facts};
pub(crate) use table::{Change, Event, Limits};

use flyball_core::{GroupResource, ObjectKey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use table::Table;
use tokio::sync::Notify;

/// The number of a write; `metadata.resourceVersion` outside of storage.
pub(crate) type Revision = u64;

/// The revision of the empty store.
///
/// It is not 0, which has a meaning of its own on the wire, and leaves room for revisions that are too old, which
/// clients and tests may want to ask for from the start.
const FIRST: Revision = 100;

/// Why storage refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Another write came first; the caller has to look again.
    #[error("the object was changed meanwhile")]
    Changed,
    /// The revision is older than the window reaches back.
    #[error("revision {asked} is older than {oldest}, the oldest one kept")]
    Compacted {
        /// Revision that was asked for.
        asked: Revision,
        /// Oldest revision that could have been.
        oldest: Revision,
    },
    /// The revision has not been reached.
    #[error("revision {asked} is beyond the current one, {current}")]
    Future {
        /// Revision that was asked for.
        asked: Revision,
        /// Latest revision.
        current: Revision,
    },
}

/// All objects.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<State>,
    limits: Limits,
}

#[derive(Debug)]
struct State {
    revision: Revision,
    tables: BTreeMap<GroupResource, Table>,
}

/// What a list shows, and the revision at which it does.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: Revision,
    /// In the order of keys.
    pub(crate) entries: Vec<Arc<Entry>>,
}

impl Store {
    /// Makes an empty store.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { state: Mutex::new(State { revision: FIRST, tables: BTreeMap::new() }), limits }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the store")
    }

    /// Returns the latest revision of all.
    pub(crate) fn revision(&self) -> Revision {
        self.lock().revision
    }

    /// Returns an object.
    pub(crate) fn get(&self, table: &GroupResource, key: &ObjectKey) -> Option<Arc<Entry>> {
        self.lock().tables.get(table)?.get(key)
    }

    /// Writes an object in place of `expected`, which must be what is stored now (`None`: nothing).
    ///
    /// `make` is given the revision and returns the entry that holds it. It runs under the store's lock and so must be
    /// quick and must not come back to the store.
    pub(crate) fn put(
        &self,
        table: &GroupResource,
        key: &ObjectKey,
        expected: Option<&Arc<Entry>>,
        make: impl FnOnce(Revision) -> Entry,
    ) -> Result<Arc<Entry>, Error> {
        self.change(table, key, expected, |revision| Change::Put(Arc::new(make(revision))))
    }

    /// Removes `expected`, which must be what is stored now; `make` returns its last state, with the revision of the removal.
    pub(crate) fn remove(
        &self,
        table: &GroupResource,
        key: &ObjectKey,
        expected: &Arc<Entry>,
        make: impl FnOnce(Revision) -> Entry,
    ) -> Result<Arc<Entry>, Error> {
        self.change(table, key, Some(expected), |revision| Change::Remove(Arc::new(make(revision))))
    }

    fn change(
        &self,
        table: &GroupResource,
        key: &ObjectKey,
        expected: Option<&Arc<Entry>>,
        make: impl FnOnce(Revision) -> Change,
    ) -> Result<Arc<Entry>, Error> {
        let mut state = self.lock();
        let revision = state.revision + 1;
        if !state.tables.contains_key(table) {
            state.tables.insert(table.clone(), Table::new(FIRST));
        }
        let table = state.tables.get_mut(table).expect("just made");
        let current = table.get(key);
        if current.as_ref().map(|entry| entry.revision) != expected.map(|entry| entry.revision) {
            return Err(Error::Changed);
        }
        let entry = table.apply(key, current, make(revision), &self.limits);
        state.revision = revision;
        Ok(entry)
    }

    /// Returns all objects of a namespace, or of all, as they are now.
    pub(crate) fn list(&self, table: &GroupResource, namespace: Option<&str>) -> Snapshot {
        let state = self.lock();
        let entries = state.tables.get(table).map_or_else(Vec::new, |table| table.list(namespace));
        Snapshot { revision: state.revision, entries }
    }

    /// Returns all objects of a namespace, or of all, as they were at a revision.
    pub(crate) fn list_at(
        &self,
        table: &GroupResource,
        namespace: Option<&str>,
        revision: Revision,
    ) -> Result<Snapshot, Error> {
        let state = self.lock();
        if revision > state.revision {
            return Err(Error::Future { asked: revision, current: state.revision });
        }
        let entries =
            state.tables.get(table).map_or_else(|| Ok(Vec::new()), |table| table.list_at(namespace, revision))?;
        Ok(Snapshot { revision, entries })
    }

    /// Counts the objects of a table.
    pub(crate) fn count(&self, table: &GroupResource) -> usize {
        self.lock().tables.get(table).map_or(0, Table::len)
    }

    /// Counts the objects of each table that has any.
    pub(crate) fn counts(&self) -> Vec<(GroupResource, usize)> {
        let state = self.lock();
        state.tables.iter().map(|(name, table)| (name.clone(), table.len())).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the revision of the latest write to a table.
    pub(crate) fn changed(&self, table: &GroupResource) -> Revision {
        self.lock().tables.get(table).map_or(FIRST, Table::changed)
    }

    /// Returns at most `max` events of a table after a revision, and the latest revision if that was all of them.
    pub(crate) fn events_after(
        &self,
        table: &GroupResource,
        revision: Revision,
        max: usize,
    ) -> Result<(Vec<Arc<Event>>, Option<Revision>), Error> {
        let state = self.lock();
        let Some(table) = state.tables.get(table) else { return Ok((Vec::new(), Some(state.revision))) };
        let events = table.events_after(revision, max)?;
        let all = events.len() < max;
        Ok((events, all.then_some(state.revision)))
    }

    /// Returns the bell that rings after each write to a table.
    pub(crate) fn bell(&self, table: &GroupResource) -> Arc<Notify> {
        let mut state = self.lock();
        state.tables.entry(table.clone()).or_insert_with(|| Table::new(FIRST)).bell()
    }
}
