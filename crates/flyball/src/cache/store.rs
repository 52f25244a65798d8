//! The objects of one kind in one scope, with a single writer and many readers.

mod writer;

pub(crate) use writer::{Delta, Writer};

use super::index::Indexes;
use super::{CachedPart, DecodedEntry, Entry, IndexId, KeptFields, OwnWriteResponses};
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
    progress: Mutex<Option<Progress>>,
}

/// The state of the API server that a cache has reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) revision: u64,
    /// Time at which the last change, bookmark or list arrived.
    pub(crate) at: Instant,
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
            progress: Mutex::default(),
        });
        (store.clone(), Writer::new(store))
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

    /// Returns the bytes of the objects as JSON.
    pub(crate) fn bytes(&self) -> usize {
        self.read().by_key.values().map(|entry| entry.text().len()).sum()
    }

    /// Returns how far the cache is; `None` before the first list.
    pub(crate) fn progress(&self) -> Option<Progress> {
        *self.progress.lock()
    }

    /// Records that the cache has reached a revision.
    fn record_progress(&self, revision: u64) {
        *self.progress.lock() = Some(Progress { revision, at: Instant::now() });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Change, Listener};

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
