//! The objects of one resource, and its latest events.

use super::{Entry, Error, Revision};
use flyball_core::ObjectKey;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::Notify;

/// How much of the past a table keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most events.
    pub(crate) events: usize,
    /// The most bytes of objects that only events keep alive, roughly.
    pub(crate) bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 10_000, bytes: 64 << 20 }
    }
}

/// A write to a table.
pub(crate) enum Change {
    /// The object is now this.
    Put(Arc<Entry>),
    /// The object is gone; this is its last state, with the revision of the removal.
    Remove(Arc<Entry>),
}

/// What happened to one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: Revision,
    /// Its state before, if it was there.
    pub(crate) before: Option<Arc<Entry>>,
    /// Its state after; for a removal the last one, with the revision of the removal.
    pub(crate) after: Arc<Entry>,
    pub(crate) removed: bool,
}

#[derive(Debug)]
pub(super) struct Table {
    objects: BTreeMap<ObjectKey, Arc<Entry>>,
    window: VecDeque<Arc<Event>>,
    /// The window holds every event after this revision.
    start: Revision,
    /// Bytes of the objects in the window.
    bytes: usize,
    bell: Arc<Notify>,
}

impl Table {
    /// Makes a table that has had no event up to a revision.
    pub(super) fn new(start: Revision) -> Self {
        Self { objects: BTreeMap::new(), window: VecDeque::new(), start, bytes: 0, bell: Arc::default() }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<Entry>> {
        self.objects.get(key).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the revision of the latest event.
    pub(super) fn changed(&self) -> Revision {
        self.window.back().map_or(self.start, |event| event.revision)
    }

    pub(super) fn bell(&self) -> Arc<Notify> {
        self.bell.clone()
    }

    /// Carries a change out, notes it in the window and rings the bell.
    pub(super) fn apply(
        &mut self,
        key: &ObjectKey,
        before: Option<Arc<Entry>>,
        change: Change,
        limits: &Limits,
    ) -> Arc<Entry> {
        let (after, removed) = match change {
            Change::Put(entry) => {
                self.objects.insert(key.clone(), entry.clone());
                (entry, false)
            }
            Change::Remove(last) => {
                self.objects.remove(key);
                (last, true)
            }
        };
        self.bytes += after.size();
        self.window.push_back(Arc::new(Event { revision: after.revision, before, after: after.clone(), removed }));
        while self.window.len() > limits.events || self.bytes > limits.bytes && self.window.len() > 1 {
            if let Some(event) = self.window.pop_front() {
                self.start = event.revision;
                self.bytes -= event.after.size();
            }
        }
        self.bell.notify_waiters();
        after
    }

    fn range(&self, namespace: Option<&str>) -> impl Iterator<Item = (&ObjectKey, &Arc<Entry>)> {
        // '0' follows '/' in order, so that these two bounds hold the keys of the namespace and no others.
        let bounds = namespace.map(|namespace| (format!("{namespace}/"), format!("{namespace}0")));
        let (from, to) = match &bounds {
            Some((from, to)) => (Bound::Included(from.as_str()), Bound::Excluded(to.as_str())),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        self.objects.range::<str, _>((from, to))
    }

    pub(super) fn list(&self, namespace: Option<&str>) -> Vec<Arc<Entry>> {
        self.range(namespace).map(|(_, entry)| entry.clone()).collect()
    }

    /// Restores a past state by undoing the events since.
    pub(super) fn list_at(&self, namespace: Option<&str>, revision: Revision) -> Result<Vec<Arc<Entry>>, Error> {
        self.reaches(revision)?;
        let mut then: BTreeMap<&ObjectKey, &Arc<Entry>> = self.range(namespace).collect();
        for event in self.window.iter().rev().take_while(|event| event.revision > revision) {
            let key = &event.after.key;
            if namespace.is_some_and(|namespace| key.namespace() != Some(namespace)) {
                continue;
            }
            match &event.before {
                Some(before) => then.insert(key, before),
                None => then.remove(key),
            };
        }
        Ok(then.into_values().cloned().collect())
    }

    pub(super) fn events_after(&self, revision: Revision, max: usize) -> Result<Vec<Arc<Event>>, Error> {
        self.reaches(revision)?;
        let first = self.window.partition_point(|event| event.revision <= revision);
        Ok(self.window.range(first..).take(max).cloned().collect())
    }

    fn reaches(&self, revision: Revision) -> Result<(), Error> {
        if revision < self.start { Err(Error::Compacted { asked: revision, oldest: self.start }) } else { Ok(()) }
    }
}
