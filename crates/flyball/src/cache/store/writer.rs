//! The writer of a store: applies the deltas of a watcher, and notifies the listeners.

use super::{Objects, Store};
use crate::cache::{Change, DeclaredIndex, DecodedEntry, Entry, Listener, Origin};
use flyball_core::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A change received from the API server by a watcher.
#[derive(Debug)]
pub(crate) enum Delta {
    /// A list starts; its objects replace all others once it is complete.
    Restart,
    /// An object exists.
    Put(ObjectKey, Arc<Entry>),
    /// An object was deleted; the entry is its last state.
    Remove(ObjectKey, Entry),
    /// The list is complete, as of this revision.
    Complete(u64),
    /// All changes up to this revision have been delivered.
    Bookmark(u64),
    /// The server does not serve the kind, so it has no objects.
    Absent,
}

/// Limit of objects that may be missing in a list without a second list that confirms it.
const MAX_UNCONFIRMED: usize = 10;

/// The single writer of a store, which notifies the listeners.
#[derive(Debug)]
pub(crate) struct Writer {
    store: Arc<Store>,
    /// A list in progress, which becomes visible as a whole, so that readers never see a mixture of two revisions.
    staged: Option<BTreeMap<ObjectKey, Arc<Entry>>>,
    /// Keys of a list that lacks many known objects and must be confirmed by another list.
    unconfirmed_keys: Option<BTreeSet<ObjectKey>>,
    listeners: Vec<Arc<dyn Listener>>,
    /// True if the store keeps identities only, and the listeners keep the objects.
    identities: bool,
}

impl Writer {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, staged: None, unconfirmed_keys: None, listeners: Vec::new(), identities: false }
    }

    /// Makes the store keep identities only; the listeners get whole objects.
    pub(crate) fn of_identities(mut self) -> Self {
        self.identities = true;
        self
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Adds a listener, which is notified of every change from now on.
    pub(crate) fn subscribe(&mut self, listener: Arc<dyn Listener>) {
        self.listeners.push(listener);
    }

    /// Adds an index.
    pub(crate) fn index(&mut self, index: &DeclaredIndex) {
        self.write(|objects| objects.indexes.add(index));
    }

    /// Applies a delta, and notifies the listeners of changes.
    pub(crate) fn apply(&mut self, delta: Delta) {
        match (delta, &mut self.staged) {
            (Delta::Restart, staged) => *staged = Some(BTreeMap::new()),
            (Delta::Put(key, entry), Some(staged)) => {
                // Unchanged objects keep their memory, so that a list needs no second copy of all objects.
                let known = self.store.get(&key).filter(|old| is_same(old, &entry));
                staged.insert(key, known.unwrap_or(entry));
            }
            (Delta::Remove(key, _), Some(staged)) => drop(staged.remove(&key)),
            (Delta::Complete(revision), _) => self.complete(revision),
            (Delta::Put(key, entry), None) => self.put(&key, &entry),
            (Delta::Remove(key, entry), None) => self.remove(&key, &entry),
            (Delta::Bookmark(revision), None) => self.advance(revision),
            // The revision of a list in progress is only known at its end.
            (Delta::Bookmark(_), Some(_)) => {}
            (Delta::Absent, _) => self.absent(),
        }
    }

    /// Returns the reason why a second list must confirm the received one, if it must: it lacks more than
    /// [`MAX_UNCONFIRMED`] known objects, and more than 30 % of all, and the previous list did not.
    pub(crate) fn unconfirmed(&mut self) -> Option<String> {
        let (staged, first) = (self.staged.as_ref()?, self.unconfirmed_keys.as_ref());
        let known = self.store.read();
        let is_lacking = |key: &ObjectKey| !staged.contains_key(key) && first.is_none_or(|first| first.contains(key));
        let (all, lacking) = (known.by_key.len(), known.by_key.keys().filter(|key| is_lacking(key)).count());
        drop(known);
        if lacking <= MAX_UNCONFIRMED || lacking * 10 <= all * 3 {
            self.unconfirmed_keys = None;
            return None;
        }
        self.unconfirmed_keys = Some(staged.keys().cloned().collect());
        Some(format!("a list lacks {lacking} of {all} known objects: a second list must confirm it"))
    }

    /// Drops all objects, after the kind was removed from the API server.
    fn absent(&mut self) {
        if self.store.absent.swap(true, Ordering::AcqRel) {
            return;
        }
        self.staged = None;
        // Objects were deleted together with the kind, so earlier writes need not be observed. Writes after the kind
        // is installed again must be observed.
        for revision in [u64::MAX, 0] {
            self.replace(BTreeMap::new(), revision);
        }
    }

    fn put(&mut self, key: &ObjectKey, entry: &Arc<Entry>) {
        let old = self.store.get(key);
        let version = entry.resource_version();
        // A watch may repeat events after a reconnect.
        if old.as_ref().is_none_or(|old| version == 0 || old.resource_version() < version) {
            let (stored, old, shown) =
                (self.kept(entry), old.as_deref().map(|old| self.decoded(old)), self.decoded(entry));
            self.write(|objects| objects.insert(key, &stored, &shown));
            self.notify(key, old.as_ref(), Some(&shown), Origin::Watch);
        }
        self.advance(version);
    }

    fn remove(&mut self, key: &ObjectKey, last: &Entry) {
        // A late event of a deleted object does not affect a new one with the same name.
        if let Some(old) = self.store.get(key).filter(|old| old.uid() == last.uid()) {
            self.write(|objects| objects.remove(key));
            self.notify(key, Some(&self.decoded(&old)), None, Origin::Watch);
        }
        self.advance(last.resource_version());
    }

    fn complete(&mut self, revision: u64) {
        let staged = self.staged.take().unwrap_or_default();
        self.replace(staged, revision);
        self.store.absent.store(false, Ordering::Release);
    }

    /// Replaces the contents of the store by these objects, as of this revision.
    fn replace(&mut self, staged: BTreeMap<ObjectKey, Arc<Entry>>, revision: u64) {
        let first = !self.store.is_synced();
        let mut changes = Vec::new();
        for (key, new) in &staged {
            match self.store.get(key) {
                Some(old) if is_same(&old, new) => {}
                old => changes.push((key.clone(), old, Some(new.clone()))),
            }
        }
        for (key, old) in self.store.list(None) {
            if !staged.contains_key(&key) {
                changes.push((key, Some(old), None));
            }
        }
        let staged = match self.identities {
            true => staged.into_iter().map(|(key, entry)| (key, self.kept(&entry))).collect(),
            false => staged,
        };
        let identities = self.identities;
        self.write(|objects| {
            for (key, old, new) in &changes {
                objects.own(key, old.as_deref(), new.as_deref().filter(|_| !identities));
                objects.indexes.change(key, new.as_deref().map(|new| self.decoded(new)).as_ref());
            }
            objects.by_key = staged;
        });
        let origin = if first { Origin::FirstList } else { Origin::List };
        for (key, old, new) in &changes {
            let (old, new) = (old.as_deref().map(|old| self.decoded(old)), new.as_deref().map(|new| self.decoded(new)));
            self.notify(key, old.as_ref(), new.as_ref(), origin);
        }
        self.store.own_writes.confirmed(revision);
        self.store.record_progress(revision);
        for listener in &self.listeners {
            listener.listed(&self.store, revision);
        }
        self.store.synced.open();
    }

    fn decoded<'a>(&'a self, entry: &'a Entry) -> DecodedEntry<'a> {
        DecodedEntry::new(entry, &self.store.kind)
    }

    /// Returns the part of an entry that the store keeps.
    fn kept(&self, entry: &Arc<Entry>) -> Arc<Entry> {
        if self.identities { Arc::new(entry.identity()) } else { entry.clone() }
    }

    fn write(&self, change: impl FnOnce(&mut Objects)) {
        change(&mut self.store.objects.write());
    }

    fn notify(&self, key: &ObjectKey, old: Option<&DecodedEntry<'_>>, new: Option<&DecodedEntry<'_>>, origin: Origin) {
        let store = self.store.id;
        let notify = |old, new| {
            for listener in &self.listeners {
                listener.changed(&Change { store, key, old, new, origin });
            }
        };
        match (old, new) {
            // Recreated with the same name: one object was deleted, another created.
            (Some(deleted), Some(created)) if deleted.uid() != created.uid() => {
                notify(Some(deleted), None);
                notify(None, Some(created));
            }
            (old, new) => notify(old, new),
        }
        if new.is_none_or(|new| new.is_deleting() || old.is_some_and(|old| old.uid() != new.uid())) {
            self.store.deletions.notify_waiters();
        }
    }

    fn advance(&self, revision: u64) {
        self.store.record_progress(revision);
        self.store.own_writes.confirmed(revision);
        for listener in &self.listeners {
            listener.observed(self.store.id, revision);
        }
    }
}

fn is_same(a: &Entry, b: &Entry) -> bool {
    a.resource_version() == b.resource_version() && a.resource_version() != 0 && a.uid() == b.uid()
}
