//! The objects of one kind in one scope, with a single writer and many readers.

use super::index::Indexes;
use super::{
    CachedPart, Change, DeclaredIndex, DecodedEntry, Entry, IndexId, KeptFields, Listener, Origin, OwnWriteResponses,
};
use crate::kind::Kind;
use crate::latch::Latch;
use flyball_core::ObjectKey;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use tokio::time::Instant;

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

/// Index of a store among those of its operator.
pub(crate) type StoreId = usize;

/// The objects of one kind, in all namespaces or in one.
#[derive(Debug)]
pub(crate) struct Store {
    id: StoreId,
    kind: Kind,
    namespace: Option<Arc<str>>,
    cached_part: Arc<CachedPart>,
    objects: RwLock<Objects>,
    own_writes: Arc<OwnWriteResponses>,
    /// Opens when the first list is complete.
    synced: Latch,
    /// Notified when an object is deleted or being deleted.
    deletions: Notify,
    last_error: Mutex<Option<LastError>>,
    absent: AtomicBool,
}

/// The error that makes a cache stale.
#[derive(Clone, Debug)]
pub(crate) struct LastError {
    pub(crate) since: Instant,
    pub(crate) message: String,
}

#[derive(Debug, Default)]
struct Objects {
    by_key: BTreeMap<ObjectKey, Arc<Entry>>,
    /// UID of an owner and key of a dependent.
    by_owner: BTreeSet<(Box<str>, ObjectKey)>,
    indexes: Indexes,
}

impl Objects {
    fn insert(&mut self, key: &ObjectKey, entry: &Arc<Entry>, shown: &DecodedEntry<'_>) {
        let old = self.by_key.insert(key.clone(), entry.clone());
        self.own(key, old.as_deref(), Some(entry));
        self.indexes.change(key, Some(shown));
    }

    fn remove(&mut self, key: &ObjectKey) {
        let old = self.by_key.remove(key);
        self.own(key, old.as_deref(), None);
        self.indexes.change(key, None);
    }

    fn own(&mut self, key: &ObjectKey, old: Option<&Entry>, new: Option<&Entry>) {
        if old.map(Entry::owners) == new.map(Entry::owners) {
            return;
        }
        for owner in old.into_iter().flat_map(Entry::owner_references) {
            self.by_owner.remove(&(owner.uid.into(), key.clone()));
        }
        for owner in new.into_iter().flat_map(Entry::owner_references) {
            self.by_owner.insert((owner.uid.into(), key.clone()));
        }
    }
}

impl Store {
    /// Creates an empty store of whole objects, and its only writer.
    pub(crate) fn new(id: StoreId, kind: Kind, namespace: Option<Arc<str>>) -> (Arc<Self>, Writer) {
        Self::of(id, kind, namespace, Arc::default())
    }

    /// Creates an empty store for a part of its kind.
    pub(crate) fn of(
        id: StoreId,
        kind: Kind,
        namespace: Option<Arc<str>>,
        cached_part: Arc<CachedPart>,
    ) -> (Arc<Self>, Writer) {
        let store = Arc::new(Self {
            id,
            kind,
            namespace,
            cached_part,
            objects: RwLock::default(),
            own_writes: Arc::default(),
            synced: Latch::default(),
            deletions: Notify::new(),
            last_error: Mutex::default(),
            absent: AtomicBool::new(false),
        });
        let writer = Writer {
            store: store.clone(),
            staged: None,
            unconfirmed_keys: None,
            listeners: Vec::new(),
            identities: false,
        };
        (store, writer)
    }

    /// Returns the position of the store among those of its operator.
    pub(crate) fn id(&self) -> StoreId {
        self.id
    }

    /// Returns the kind of the objects.
    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the namespace that the store is limited to.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the part of the kind in the store.
    pub(crate) fn cached_part(&self) -> &CachedPart {
        &self.cached_part
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.read().by_key.len()
    }

    /// Returns since when the cache has been stale, and why; `None` if the watch works.
    pub(crate) fn last_error(&self) -> Option<LastError> {
        self.last_error.lock().clone()
    }

    /// Sets or clears the error of the watch.
    pub(crate) fn set_last_error(&self, message: Option<&str>) {
        let mut last_error = self.last_error.lock();
        *last_error = message.map(|message| {
            let since = last_error.as_ref().map_or_else(Instant::now, |known| known.since);
            LastError { since, message: message.to_owned() }
        });
    }

    /// Returns true if the kind is not installed. The store is then empty and up to date.
    pub(crate) fn is_absent(&self) -> bool {
        self.absent.load(Ordering::Acquire)
    }

    /// Returns true if the first list is complete, or the kind is not installed; before that, missing objects may
    /// exist.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.is_open()
    }

    /// Waits until the first list is complete, or the kind is known to be missing.
    pub(crate) async fn synced(&self) {
        self.synced.wait().await;
    }

    /// Returns the responses to the operator's own writes.
    pub(crate) fn own_writes(&self) -> &Arc<OwnWriteResponses> {
        &self.own_writes
    }

    /// Stores the response to a write of the operator.
    pub(crate) fn expect(&self, response: Vec<u8>, key: &ObjectKey, entry: &Arc<Entry>) {
        if self.cached_part.kept == KeptFields::Whole {
            self.own_writes.expect(response, key, entry);
        }
    }

    /// Returns an object.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<Entry>> {
        self.read().by_key.get(key).cloned()
    }

    /// Returns true if there is an object.
    pub(crate) fn holds(&self, key: &ObjectKey) -> bool {
        self.read().by_key.contains_key(key)
    }

    /// Returns true if the object with this UID is deleted or being deleted.
    pub(crate) fn is_gone(&self, key: &ObjectKey, uid: &str) -> bool {
        self.get(key).is_none_or(|entry| entry.uid() != uid || entry.is_deleting())
    }

    /// Waits until the object with this UID is deleted or being deleted. One that the store lacks counts as deleted
    /// only if it was there before, since the store may not have caught up with its creation.
    pub(crate) async fn deleted(&self, key: &ObjectKey, uid: &str) {
        let mut was_there = false;
        loop {
            let mut deletion = pin!(self.deletions.notified());
            // A deletion after this check counts.
            deletion.as_mut().enable();
            match self.get(key).filter(|entry| entry.uid() == uid) {
                Some(entry) if entry.is_deleting() => return,
                Some(_) => was_there = true,
                None if was_there => return,
                None => {}
            }
            deletion.await;
        }
    }

    /// Returns the objects of one namespace, or of all namespaces, in the order of their keys.
    pub(crate) fn list(&self, namespace: Option<&str>) -> Vec<(ObjectKey, Arc<Entry>)> {
        self.each(namespace, |key, entry| (key.clone(), entry.clone()))
    }

    /// Returns the keys of the objects of one namespace, or of all namespaces, in order.
    pub(crate) fn keys(&self, namespace: Option<&str>) -> Vec<ObjectKey> {
        self.each(namespace, |key, _| key.clone())
    }

    fn each<T>(&self, namespace: Option<&str>, take: impl Fn(&ObjectKey, &Arc<Entry>) -> T) -> Vec<T> {
        let objects = self.read();
        let take = |(key, entry)| take(key, entry);
        match namespace {
            Some(namespace) => {
                // `0` is the character after `/`.
                let (from, to) = (format!("{namespace}/"), format!("{namespace}0"));
                let bounds = (Bound::Included(from.as_str()), Bound::Excluded(to.as_str()));
                objects.by_key.range::<str, _>(bounds).map(take).collect()
            }
            None => objects.by_key.iter().map(take).collect(),
        }
    }

    /// Returns the objects that refer to an owner with this UID, in the order of their keys.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<(ObjectKey, Arc<Entry>)> {
        let objects = self.read();
        let from = (Box::from(uid), ObjectKey::new(None, ""));
        let keys = objects.by_owner.range(from..).take_while(|(owner, _)| **owner == *uid);
        keys.filter_map(|(_, key)| Some((key.clone(), objects.by_key.get(key)?.clone()))).collect()
    }

    /// Returns the keys of the objects that an index finds by a value, in their order; `None` if it is not kept.
    pub(crate) fn keys_by<V: Ord + Clone + 'static>(&self, index: &IndexId, value: &V) -> Option<Vec<ObjectKey>> {
        self.read().indexes.keys(index, value)
    }

    /// Returns the values of an index in a range, each with the key of an object, in order; `None` if it is not kept.
    pub(crate) fn range_by<V: Ord + Clone + 'static>(
        &self,
        index: &IndexId,
        values: &impl RangeBounds<V>,
    ) -> Option<Vec<(V, ObjectKey)>> {
        Some(self.read().indexes.range(index, values)?.cloned().collect())
    }

    /// Returns the objects that an index finds by a value, in the order of their keys; `None` if it is not kept.
    pub(crate) fn list_by<V: Ord + Clone + 'static>(
        &self,
        index: &IndexId,
        value: &V,
    ) -> Option<Vec<(ObjectKey, Arc<Entry>)>> {
        let objects = self.read();
        let keys = objects.indexes.keys(index, value)?;
        Some(
            keys.into_iter()
                .filter_map(|key| objects.by_key.get_key_value(&key).map(|(k, e)| (k.clone(), e.clone())))
                .collect(),
        )
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects> {
        // Code that holds the lock does not panic while the maps are inconsistent.
        self.objects.read()
    }
}

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
        self.store.own_writes.confirmed(revision);
        for listener in &self.listeners {
            listener.observed(self.store.id, revision);
        }
    }
}

fn is_same(a: &Entry, b: &Entry) -> bool {
    a.resource_version() == b.resource_version() && a.resource_version() != 0 && a.uid() == b.uid()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records its calls, one word each.
    #[derive(Debug, Default)]
    struct RecordingListener(Mutex<Vec<String>>);

    impl Listener for RecordingListener {
        fn changed(&self, change: &Change<'_>) {
            let version = |entry: Option<&DecodedEntry<'_>>| {
                entry.map_or(String::from("-"), |e| e.resource_version().to_string())
            };
            let text = format!("{}:{}>{}", change.key, version(change.old), version(change.new));
            self.0.lock().push(text);
        }

        fn observed(&self, _: StoreId, revision: u64) {
            self.0.lock().push(format!("@{revision}"));
        }

        fn listed(&self, _: &Store, revision: u64) {
            self.0.lock().push(format!("list@{revision}"));
        }
    }

    fn object(name: &str, uid: &str, version: u64) -> (ObjectKey, Entry) {
        let owner = format!(r#"{{"apiVersion":"v1","kind":"K","name":"o","uid":"owner-of-{uid}"}}"#);
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{version}","ownerReferences":[{owner}]}}}}"#
        );
        Entry::parse(json.as_bytes(), "").unwrap()
    }

    fn put(name: &str, uid: &str, version: u64) -> Delta {
        let (key, entry) = object(name, uid, version);
        Delta::Put(key, Arc::new(entry))
    }

    fn remove(name: &str, uid: &str, version: u64) -> Delta {
        let (key, entry) = object(name, uid, version);
        Delta::Remove(key, entry)
    }

    /// Applies `deltas` after a first list of `a` and `b` at revision 5, and checks the calls of a listener.
    fn check(deltas: Vec<Delta>, expected: &[&str]) -> Arc<Store> {
        let kind = Kind::of::<k8s_openapi::api::core::v1::Namespace>();
        let (store, mut writer) = Store::new(0, kind, None);
        let listener = Arc::new(RecordingListener::default());
        writer.subscribe(listener.clone());
        assert!(!store.is_synced());
        for delta in [Delta::Restart, put("b", "u-b", 2), put("a", "u-a", 5), Delta::Complete(5)] {
            writer.apply(delta);
        }
        assert!(store.is_synced());
        assert_eq!(std::mem::take(&mut *listener.0.lock()), ["a:->5", "b:->2", "list@5"]);
        for delta in deltas {
            writer.apply(delta);
        }
        assert_eq!(*listener.0.lock(), expected);
        store
    }

    #[test]
    fn events_are_delivered_in_order_with_the_previous_version() {
        check(
            vec![put("a", "u-a", 7), remove("a", "u-a", 9), Delta::Bookmark(12)],
            &["a:5>7", "@7", "a:7>-", "@9", "@12"],
        );
    }

    #[test]
    fn stale_events_are_not_delivered() {
        check(vec![put("a", "u-a", 5), put("a", "u-a", 4)], &["@5", "@4"]);
    }

    #[test]
    fn list_delivers_changes_and_deletions() {
        let list = vec![Delta::Restart, put("a", "u-a", 8), put("c", "u-c", 7), Delta::Complete(9)];
        let store = check(list, &["a:5>8", "c:->7", "b:2>-", "list@9"]);
        assert_eq!(store.list(None).len(), 2);
    }

    #[test]
    fn incomplete_list_changes_nothing() {
        let half = vec![Delta::Restart, put("a", "u-a", 8), Delta::Bookmark(9), Delta::Restart, put("b", "u-b", 2)];
        let store = check(half, &[]);
        assert_eq!(store.get(&ObjectKey::new(None, "a")).unwrap().resource_version(), 5);
    }

    #[test]
    fn identity_store_keeps_only_identities() {
        let kind = Kind::of::<k8s_openapi::api::core::v1::Namespace>();
        let (store, writer) = Store::new(0, kind, None);
        let (mut writer, listener) = (writer.of_identities(), Arc::new(RecordingListener::default()));
        writer.subscribe(listener.clone());
        let lists = [Delta::Restart, put("a", "u-a", 5), Delta::Complete(5), Delta::Restart, put("a", "u-a", 5)];
        let changes = [Delta::Complete(6), put("b", "u-b", 7), put("b", "u-b", 7), Delta::Restart, Delta::Complete(8)];
        for delta in lists.into_iter().chain(changes) {
            for (_, entry) in store.list(None) {
                assert_eq!((entry.owner_references(), entry.labels()), (Vec::new(), ""));
                assert!(entry.uid().starts_with("u-"));
            }
            assert!(store.owned_by("owner-of-u-a").is_empty());
            writer.apply(delta);
        }
        let received = std::mem::take(&mut *listener.0.lock());
        assert_eq!(received, ["a:->5", "list@5", "list@6", "b:->7", "@7", "@7", "a:5>-", "b:7>-", "list@8"]);
    }

    #[test]
    fn kind_not_installed_has_no_objects() {
        let absent = || vec![Delta::Absent, Delta::Restart, Delta::Absent];
        let all_gone = format!("list@{}", u64::MAX);
        let gone = ["a:5>-", "b:2>-", &all_gone, "list@0"];
        let store = check(absent(), &gone);
        assert!(store.is_absent() && store.list(None).is_empty());
        // The object is created again.
        let back = absent().into_iter().chain([Delta::Restart, put("a", "u-c", 7), Delta::Complete(8)]).collect();
        let store = check(back, &[&gone[..], &["a:->7", "list@8"]].concat());
        assert!(!store.is_absent() && store.len() == 1);
    }

    #[test]
    fn store_of_kind_never_installed_is_synced() {
        let kind = Kind::of::<k8s_openapi::api::core::v1::Pod>();
        let (store, mut writer) = Store::new(0, kind, None);
        writer.apply(Delta::Restart);
        assert!(!store.is_synced());
        writer.apply(Delta::Absent);
        assert!(store.is_synced() && store.is_absent());
    }

    #[test]
    fn recreated_object_is_a_different_object() {
        let list = vec![Delta::Restart, put("a", "u-2", 8), put("b", "u-b", 2), Delta::Complete(9)];
        let store = check(list, &["a:5>-", "a:->8", "list@9"]);
        assert!(store.owned_by("owner-of-u-a").is_empty());
        assert_eq!(store.owned_by("owner-of-u-2").len(), 1);
    }

    #[test]
    fn late_deletion_does_not_remove_the_successor() {
        let store = check(vec![remove("a", "u-0", 6)], &["@6"]);
        assert!(store.get(&ObjectKey::new(None, "a")).is_some());
    }

    #[test]
    fn objects_are_found_by_namespace_and_by_owner() {
        let kind = Kind::of::<k8s_openapi::api::core::v1::Pod>();
        let (store, mut writer) = Store::new(0, kind, None);
        for (namespace, name) in [("b", "x"), ("a", "y"), ("a-b", "z"), ("a", "x")] {
            let json = format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","ownerReferences":[{{"apiVersion":"v1","kind":"K","name":"o","uid":"{namespace}"}}]}}}}"#
            );
            let (key, entry) = Entry::parse(json.as_bytes(), "").unwrap();
            writer.apply(Delta::Put(key, Arc::new(entry)));
        }
        let keys = |found: Vec<(ObjectKey, _)>| found.into_iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>();
        assert_eq!(keys(store.list(None)), ["a-b/z", "a/x", "a/y", "b/x"]);
        assert_eq!(keys(store.list(Some("a"))), ["a/x", "a/y"]);
        assert_eq!(keys(store.owned_by("a")), ["a/x", "a/y"]);
        assert!(keys(store.owned_by("o")).is_empty());
    }
}
