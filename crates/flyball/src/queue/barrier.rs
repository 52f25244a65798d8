//! The own-write barrier: writes of a controller that its caches have not observed yet.
//!
//! A reconcile with a cache older than its own last write would act on a past state: create the same child twice, or
//! revert its own change ([KEP-5647](https://kep.k8s.io/5647)). So each write is recorded with the resource version
//! that the API server returned, and its key is held until the cache has reached that version.
//!
//! The same records identify echoes: the event of a write does not trigger the key of the writer.

use crate::cache::StoreId;
use flyball_core::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// One write of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The cache that will observe it.
    pub(crate) store: StoreId,
    /// The object written.
    pub(crate) object: ObjectKey,
    /// The resource version in the cache when the request was sent, 0 if it had none.
    pub(crate) before: u64,
    /// The result of the write.
    pub(crate) effect: Effect,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The object has this resource version.
    Version(u64),
    /// The object with this UID was deleted, or is being deleted.
    Deleted(String),
    /// There was no response: the write may have been processed, or may be processed later.
    Unknown,
}

/// The caches and objects that a key may not read from memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StaleReads {
    /// Caches that have not observed the writes of the key in time.
    pub(crate) stores: BTreeSet<StoreId>,
    /// Writes whose response was lost, so that their result is unknown.
    pub(crate) unknown: Vec<Write>,
}

impl StaleReads {
    /// Returns true if the result of a write of this object is unknown.
    pub(crate) fn is_uncertain(&self, store: StoreId, object: &ObjectKey) -> bool {
        self.unknown.iter().any(|write| write.store == store && write.object == *object)
    }
}

/// A change in a cache, with the data that identifies an echo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trigger {
    pub(crate) store: StoreId,
    pub(crate) object: ObjectKey,
    /// The previous resource version in the cache, 0 if it had none.
    pub(crate) before: u64,
    pub(crate) version: u64,
}

/// The writes of one controller that its caches have not observed yet, by key.
#[derive(Debug)]
pub(crate) struct Barrier {
    timeout: Duration,
    keys: BTreeMap<ObjectKey, PendingWrite>,
    /// The revision that each cache has reached.
    seen: BTreeMap<StoreId, u64>,
    by_version: BTreeSet<(StoreId, u64, ObjectKey)>,
    by_object: BTreeSet<(StoreId, ObjectKey, ObjectKey)>,
    deadlines: BTreeSet<(Instant, ObjectKey)>,
}

#[derive(Debug)]
struct PendingWrite {
    writes: Vec<Write>,
    deadline: Instant,
}

/// Limit of writes per key; beyond it, only the newest version in each cache is stored, so that the echoes of the
/// others cause a reconcile.
const MAX_WRITES_PER_KEY: usize = 1000;

impl Barrier {
    /// Creates a barrier that holds keys for at most `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            keys: BTreeMap::new(),
            seen: BTreeMap::new(),
            by_version: BTreeSet::new(),
            by_object: BTreeSet::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Records the writes of a reconcile, and returns true if its key must be held. `is_gone` returns true if a cache
    /// shows an object as deleted or being deleted.
    pub(crate) fn record_writes(
        &mut self,
        key: &ObjectKey,
        writes: Vec<Write>,
        now: Instant,
        is_gone: impl Fn(StoreId, &ObjectKey, &str) -> bool,
    ) -> bool {
        let mut pending = self.remove(key);
        pending.extend(writes);
        if pending.is_empty() {
            return false;
        }
        drop_done(&mut pending, |write| match write.effect {
            Effect::Version(version) => version <= self.seen.get(&write.store).copied().unwrap_or_default(),
            Effect::Deleted(_) | Effect::Unknown => false,
        });
        // Before a cache has observed the creation, the absence of an object has no meaning.
        let to_come: BTreeSet<(StoreId, ObjectKey)> = pending
            .iter()
            .filter(|write| matches!(write.effect, Effect::Version(_)))
            .map(|write| (write.store, write.object.clone()))
            .collect();
        drop_done(&mut pending, |write| match &write.effect {
            Effect::Deleted(uid) => {
                !to_come.contains(&(write.store, write.object.clone())) && is_gone(write.store, &write.object, uid)
            }
            Effect::Version(_) | Effect::Unknown => false,
        });
        if pending.len() > MAX_WRITES_PER_KEY {
            keep_newest(&mut pending);
        }
        let held = holds(&pending);
        // The next reconcile reads uncertain objects from the API server, so it need not wait for the cache.
        let deadline = if held { now + self.timeout } else { now };
        self.put(key, pending, deadline);
        held
    }

    /// Returns the caches and objects that this key may not read from memory, and hands over the writes with unknown
    /// effect: the caller determines their effect, or returns them with [`record_writes`](Self::record_writes).
    pub(crate) fn stale_reads(&mut self, key: &ObjectKey) -> StaleReads {
        let Some(deadline) = self.keys.get(key).map(|pending| pending.deadline) else { return StaleReads::default() };
        let (unknown, writes): (Vec<_>, Vec<_>) =
            self.remove(key).into_iter().partition(|write| write.effect == Effect::Unknown);
        let stores = writes.iter().map(|write| write.store).collect();
        self.put(key, writes, deadline);
        StaleReads { stores, unknown }
    }

    /// Returns true if a change is the echo of a recorded write of this key, or of one of `running`.
    pub(crate) fn is_echo(&self, key: &ObjectKey, trigger: &Trigger, running: &[Write]) -> bool {
        let noted = self.keys.get(key).map_or(&[][..], |pending| &pending.writes);
        let own = || noted.iter().chain(running).filter(|w| w.store == trigger.store && w.object == trigger.object);
        // A change between the object that the reconcile read and its write has its own event; this event is an echo
        // only if it directly follows the known version, or another write of the same key.
        own().any(|write| write.effect == Effect::Version(trigger.version))
            && own().any(|write| write.before == trigger.before || write.effect == Effect::Version(trigger.before))
    }

    /// Handles that a cache has reached a revision, and returns the keys that are released.
    pub(crate) fn observed(&mut self, store: StoreId, revision: u64) -> Vec<ObjectKey> {
        let seen = self.seen.entry(store).or_default();
        *seen = revision.max(*seen);
        if self.by_version.is_empty() {
            return Vec::new();
        }
        let end = (store, *seen + 1, ObjectKey::new(None, ""));
        let mut free = Vec::new();
        while let Some((_, version, key)) =
            self.by_version.range((store, 0, ObjectKey::new(None, ""))..end.clone()).next()
        {
            let (version, key) = (*version, key.clone());
            let done = |write: &Write| write.store == store && write.effect == Effect::Version(version);
            free.extend(self.remove_done_writes(&key, done));
        }
        free
    }

    /// Handles that a list replaced a cache as of this revision; `is_gone` returns true for deleted objects.
    /// Returns the keys whose written objects may have changed without an event, and those that need not wait any
    /// longer.
    pub(crate) fn listed(
        &mut self,
        store: StoreId,
        revision: u64,
        is_gone: impl Fn(&ObjectKey, &str) -> bool,
    ) -> (BTreeSet<ObjectKey>, Vec<ObjectKey>) {
        // A cluster restored from a backup continues at an earlier revision.
        self.seen.insert(store, revision);
        let versions = self.by_version.iter().filter(|(s, ..)| *s == store).map(|(.., key)| key);
        let objects = self.by_object.iter().filter(|(s, ..)| *s == store).map(|(.., key)| key);
        let uncertain: BTreeSet<ObjectKey> = versions.chain(objects).cloned().collect();
        let done = |write: &Write| {
            write.store == store
                && match &write.effect {
                    Effect::Version(version) => *version <= revision,
                    Effect::Deleted(uid) => is_gone(&write.object, uid),
                    Effect::Unknown => false,
                }
        };
        let free = uncertain.iter().filter_map(|key| self.remove_done_writes(key, done)).collect();
        (uncertain, free)
    }

    /// Handles that an object is deleted or being deleted, and returns the keys that are released.
    pub(crate) fn deleted(&mut self, store: StoreId, object: &ObjectKey, uid: &str) -> Vec<ObjectKey> {
        let from = (store, object.clone(), ObjectKey::new(None, ""));
        let keys = self.by_object.range(from..).take_while(|(s, o, _)| *s == store && o == object);
        let keys: Vec<ObjectKey> = keys.map(|(.., key)| key.clone()).collect();
        let done = |write: &Write| {
            write.store == store && write.object == *object && matches!(&write.effect, Effect::Deleted(u) if u == uid)
        };
        keys.into_iter().filter_map(|key| self.remove_done_writes(&key, done)).collect()
    }

    /// Returns until when a key is held at most, and its writes that no cache has observed.
    pub(crate) fn pending(&self, key: &ObjectKey) -> Option<(Instant, &[Write])> {
        self.keys.get(key).map(|pending| (pending.deadline, &*pending.writes))
    }

    /// Returns the time at which the next key times out.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns the keys that timed out; their writes stay recorded until they are observed.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<ObjectKey> {
        let mut overdue = Vec::new();
        while self.deadlines.first().is_some_and(|(at, _)| *at <= now) {
            overdue.extend(self.deadlines.pop_first().map(|(_, key)| key));
        }
        overdue
    }

    /// Drops the state of a key whose object was deleted.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.remove(key);
    }

    /// Drops the writes of a key that are `done`, and returns the key if none is left.
    fn remove_done_writes(&mut self, key: &ObjectKey, done: impl Fn(&Write) -> bool) -> Option<ObjectKey> {
        let deadline = self.keys.get(key)?.deadline;
        let mut writes = self.remove(key);
        drop_done(&mut writes, done);
        let free = !holds(&writes);
        self.put(key, writes, deadline);
        free.then(|| key.clone())
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<Write> {
        let Some(pending) = self.keys.remove(key) else { return Vec::new() };
        self.deadlines.remove(&(pending.deadline, key.clone()));
        for write in &pending.writes {
            match write.effect {
                Effect::Version(version) => drop(self.by_version.remove(&(write.store, version, key.clone()))),
                Effect::Deleted(_) => drop(self.by_object.remove(&(write.store, write.object.clone(), key.clone()))),
                Effect::Unknown => {}
            }
        }
        pending.writes
    }

    fn put(&mut self, key: &ObjectKey, writes: Vec<Write>, deadline: Instant) {
        if writes.is_empty() {
            return;
        }
        for write in &writes {
            match write.effect {
                Effect::Version(version) => drop(self.by_version.insert((write.store, version, key.clone()))),
                Effect::Deleted(_) => drop(self.by_object.insert((write.store, write.object.clone(), key.clone()))),
                Effect::Unknown => {}
            }
        }
        self.deadlines.insert((deadline, key.clone()));
        self.keys.insert(key.clone(), PendingWrite { writes, deadline });
    }
}

/// Drops the writes that are `done`. The next write to the same object then follows the current version in the cache.
fn drop_done(writes: &mut Vec<Write>, done: impl Fn(&Write) -> bool) {
    let mut shown: BTreeMap<(StoreId, ObjectKey), u64> = BTreeMap::new();
    writes.retain(|write| {
        let done = done(write);
        if let (true, Effect::Version(version)) = (done, &write.effect) {
            let shown = shown.entry((write.store, write.object.clone())).or_default();
            *shown = (*version).max(*shown);
        }
        !done
    });
    for write in writes {
        if let Some(shown) = shown.get(&(write.store, write.object.clone())) {
            write.before = *shown;
        }
    }
}

/// Returns true if one of these writes will certainly be observed in a cache.
fn holds(writes: &[Write]) -> bool {
    writes.iter().any(|write| write.effect != Effect::Unknown)
}

/// Drops the versions of a cache once it has observed the newest of them.
fn keep_newest(writes: &mut Vec<Write>) {
    let mut newest: BTreeMap<StoreId, u64> = BTreeMap::new();
    for write in writes.iter() {
        if let Effect::Version(version) = write.effect {
            let newest = newest.entry(write.store).or_default();
            *newest = version.max(*newest);
        }
    }
    writes.retain(|write| match write.effect {
        Effect::Version(version) => newest.get(&write.store) == Some(&version),
        Effect::Deleted(_) | Effect::Unknown => true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(None, name)
    }

    fn write(store: StoreId, object: &str, before: u64, version: u64) -> Write {
        Write { store, object: key(object), before, effect: Effect::Version(version) }
    }

    fn trigger(store: StoreId, object: &str, before: u64, version: u64) -> Trigger {
        Trigger { store, object: key(object), before, version }
    }

    fn barrier() -> (Barrier, Instant) {
        (Barrier::new(Duration::from_secs(10)), Instant::now())
    }

    /// The caches contain every object.
    fn there(_: StoreId, _: &ObjectKey, _: &str) -> bool {
        false
    }

    #[test]
    fn key_waits_for_every_cache_it_wrote_to() {
        let (mut barrier, now) = barrier();
        assert!(barrier.record_writes(&key("a"), vec![write(0, "x", 1, 5), write(1, "y", 0, 6)], now, there));
        assert!(barrier.record_writes(&key("b"), vec![write(0, "z", 0, 7)], now, there));
        assert!(barrier.observed(0, 4).is_empty());
        assert!(barrier.observed(0, 6).is_empty());
        assert_eq!(barrier.observed(1, 6), [key("a")]);
        assert_eq!(barrier.observed(0, 9), [key("b")]);
        assert!(barrier.keys.is_empty() && barrier.by_version.is_empty() && barrier.deadlines.is_empty());
    }

    #[test]
    fn write_observed_before_its_response_does_not_block() {
        let (mut barrier, now) = barrier();
        barrier.observed(0, 5);
        assert!(!barrier.record_writes(&key("a"), vec![write(0, "x", 1, 5)], now, there));
    }

    #[test]
    fn only_successor_of_a_known_version_is_an_echo() {
        let (mut barrier, now) = barrier();
        barrier.record_writes(&key("a"), vec![write(0, "x", 1, 5), write(0, "x", 1, 6)], now, there);
        assert!(barrier.is_echo(&key("a"), &trigger(0, "x", 1, 5), &[]));
        assert!(barrier.is_echo(&key("a"), &trigger(0, "x", 5, 6), &[]));
        assert!(!barrier.is_echo(&key("a"), &trigger(0, "x", 2, 5), &[]));
        assert!(!barrier.is_echo(&key("a"), &trigger(0, "x", 1, 4), &[]));
        assert!(!barrier.is_echo(&key("a"), &trigger(1, "x", 1, 5), &[]));
        assert!(!barrier.is_echo(&key("b"), &trigger(0, "x", 1, 5), &[]));
        assert!(barrier.is_echo(&key("b"), &trigger(0, "x", 1, 5), &[write(0, "x", 1, 5)]));
        // The chain is valid because its first link was observed.
        barrier.observed(0, 5);
        assert!(barrier.is_echo(&key("a"), &trigger(0, "x", 5, 6), &[]));
    }

    #[test]
    fn deletion_is_matched_by_uid() {
        let (mut barrier, now) = barrier();
        let delete = |object: &str, uid: &str| Write {
            store: 0,
            object: key(object),
            before: 3,
            effect: Effect::Deleted(uid.into()),
        };
        assert!(barrier.record_writes(&key("a"), vec![delete("x", "u1"), delete("y", "u2")], now, there));
        assert!(barrier.deleted(0, &key("x"), "other").is_empty());
        assert!(barrier.deleted(0, &key("x"), "u1").is_empty());
        assert_eq!(barrier.deleted(0, &key("y"), "u2"), [key("a")]);
        // Observed during the reconcile; unless the cache does not have the object yet.
        assert!(!barrier.record_writes(&key("a"), vec![delete("x", "u1")], now, |_, _, uid| uid == "u1"));
        assert!(barrier.record_writes(&key("a"), vec![write(0, "x", 0, 5), delete("x", "u1")], now, |_, _, _| true));
    }

    #[test]
    fn timeout_releases_the_key_and_reports_stale_caches() {
        let (mut barrier, now) = barrier();
        barrier.record_writes(&key("a"), vec![write(0, "x", 1, 5), write(1, "y", 0, 6)], now, there);
        barrier.observed(1, 6);
        assert!(barrier.overdue(now).is_empty());
        assert_eq!(barrier.overdue(now + Duration::from_secs(10)), [key("a")]);
        let first = StaleReads { stores: [0].into(), ..StaleReads::default() };
        assert_eq!(barrier.stale_reads(&key("a")), first);
        // Writes stay recorded until they are observed.
        assert_eq!(barrier.stale_reads(&key("a")), first);
        barrier.observed(0, 5);
        assert_eq!(barrier.stale_reads(&key("a")), StaleReads::default());
    }

    #[test]
    fn unknown_effect_is_read_from_the_server_once() {
        let (mut barrier, now) = barrier();
        let unknown = Write { effect: Effect::Unknown, ..write(0, "x", 1, 0) };
        assert!(!barrier.record_writes(&key("a"), vec![unknown], now, there));
        let behind = barrier.stale_reads(&key("a"));
        assert!(behind.stores.is_empty() && behind.is_uncertain(0, &key("x")) && !behind.is_uncertain(0, &key("y")));
        assert_eq!(barrier.stale_reads(&key("a")), StaleReads::default());
    }

    #[test]
    fn list_makes_earlier_writes_uncertain() {
        let (mut barrier, now) = barrier();
        barrier.record_writes(&key("a"), vec![write(0, "x", 1, 5)], now, there);
        barrier.record_writes(&key("b"), vec![write(0, "y", 1, 9)], now, there);
        barrier.record_writes(&key("c"), vec![write(1, "z", 1, 4)], now, there);
        let (uncertain, free) = barrier.listed(0, 7, |_, _| false);
        assert_eq!((uncertain, free), ([key("a"), key("b")].into(), vec![key("a")]));
    }

    #[test]
    fn only_the_newest_write_per_object_is_recorded() {
        let (mut barrier, now) = barrier();
        let writes = (1..=2000).map(|version| write(version as usize % 2, "x", 0, version)).collect();
        barrier.record_writes(&key("a"), writes, now, there);
        assert_eq!(barrier.keys[&key("a")].writes.len(), 2);
        barrier.observed(0, 2000);
        assert_eq!(barrier.observed(1, 1999), [key("a")]);
    }
}
