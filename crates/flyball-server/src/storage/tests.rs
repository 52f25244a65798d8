//! Tests of storage against a model that stores all states.

use super::*;
use flyball_core::Object;
use futures_util::FutureExt;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

pub(super) fn limits() -> Limits {
    Limits::of(&crate::Bounds::default())
}

pub(super) fn table() -> GroupResource {
    GroupResource::new("", "things")
}

pub(super) fn entry(key: &ObjectKey, n: u64) -> impl FnOnce(Revision) -> Result<Entry, Error> {
    let last = last(key, n);
    move |revision| Ok(last(revision))
}

/// Creates the last state of an object.
fn last(key: &ObjectKey, n: u64) -> impl FnOnce(Revision) -> Entry {
    let object =
        Object::try_from(json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": key.name()}, "n": n}))
            .expect("an object");
    let key = key.clone();
    move |revision| Entry::new(key, object, revision, SelectableFields::default(), 0)
}

fn written(key: &ObjectKey, text: &str) -> impl FnOnce(Revision) -> Result<Entry, Error> {
    let object = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": key.name()}, "n": text});
    let (key, object) = (key.clone(), Object::try_from(object).expect("an object"));
    move |revision| Ok(Entry::new(key, object, revision, SelectableFields::default(), 0))
}

/// Polls a write, which completes immediately in memory.
fn done<T>(write: impl Future<Output = T>) -> T {
    write.now_or_never().expect("a store without a journal never waits")
}

pub(super) fn number(entry: &Entry) -> u64 {
    entry.object().unwrap()["n"].as_u64().expect("a number")
}

#[test]
fn writes_based_on_an_old_entry_are_rejected() {
    let store = Store::new(limits());
    let key = ObjectKey::new(Some("a"), "x");
    let first = done(store.put(&table(), &key, None, entry(&key, 1))).unwrap();
    assert_eq!(done(store.put(&table(), &key, None, entry(&key, 2))).unwrap_err(), Error::Changed);
    let second = done(store.put(&table(), &key, Some(&first), entry(&key, 3))).unwrap();
    assert_eq!(done(store.remove(&table(), &key, &first, last(&key, 4))).unwrap_err(), Error::Changed);
    done(store.remove(&table(), &key, &second, last(&key, 5))).unwrap();
    assert!(store.get(&table(), &key).is_none());
    assert_eq!(store.revision(), FIRST_REVISION + 3, "refused writes use up no revision");
}

#[test]
fn entry_body_has_the_revision_as_resource_version() {
    let store = Store::new(limits());
    let key = ObjectKey::new(None, "x");
    let written = done(store.put(&table(), &key, None, entry(&key, 1))).unwrap();
    assert_eq!(&written.body[..], br#"{"metadata":{"name":"x","resourceVersion":"101"},"n":1}"#);
}

#[test]
fn namespaces_with_a_common_prefix_are_separate() {
    let store = Store::new(limits());
    for (i, namespace) in ["a", "a-b", "ab", "a"].into_iter().enumerate() {
        let key = ObjectKey::new(Some(namespace), &i.to_string());
        done(store.put(&table(), &key, None, entry(&key, 0))).unwrap();
    }
    let names =
        |namespace| store.list(&table(), namespace).entries.iter().map(|e| e.key.to_string()).collect::<Vec<_>>();
    assert_eq!(names(Some("a")), ["a/0", "a/3"]);
    assert_eq!(names(None), ["a-b/1", "a/0", "a/3", "ab/2"]);
}

#[tokio::test]
async fn watches_are_notified_after_a_write() {
    let store = Store::new(limits());
    let notifier = store.notifier(&table());
    let (connection, controller) = (notifier.notified(true), notifier.notified(false));
    let key = ObjectKey::new(None, "x");
    done(store.put(&table(), &key, None, entry(&key, 1))).unwrap();
    connection.await;
    controller.await;
}

#[test]
fn window_is_bounded_by_the_bytes_of_replaced_entries() {
    let size = |key: &ObjectKey| Arc::new(last(key, 0)(FIRST_REVISION)).size();
    let (x, y) = (ObjectKey::new(None, "x"), ObjectKey::new(None, "y"));
    let store = Store::new(Limits { events: 1000, bytes: 10 * size(&x), ..limits() });
    let events = || store.events_after(&table(), FIRST_REVISION, usize::MAX).map(|(events, _)| events.len());
    for i in 0..100 {
        let key = ObjectKey::new(None, &format!("other-{i}"));
        done(store.put(&table(), &key, None, entry(&key, 0))).unwrap();
    }
    assert_eq!(events().unwrap(), 100, "what is there costs nothing more");
    let mut current = done(store.put(&table(), &y, None, entry(&y, 0))).unwrap();
    for n in 0..100 {
        current = done(store.put(&table(), &y, Some(&current), entry(&y, n))).unwrap();
    }
    assert!(events().is_err());
    let retained = store.events_after(&table(), current.revision - 9, usize::MAX).unwrap().0.len();
    assert_eq!(retained, 9);
    assert!(store.events_after(&table(), current.revision - 12, usize::MAX).is_err());
}

/// Writes an object this many times; returns its last state.
fn rewrite(store: &Store, table: &GroupResource, key: &ObjectKey, count: u64) -> Arc<Entry> {
    let mut current = store.get(table, key);
    for n in 0..count {
        current = Some(done(store.put(table, key, current.as_ref(), entry(key, n))).unwrap());
    }
    current.expect("written")
}

#[test]
fn removed_table_leaves_no_events() {
    let (store, key) = (Store::new(limits()), ObjectKey::new(None, "x"));
    for n in 0..10 {
        let table = GroupResource::new("x.io", &format!("things{n}"));
        let current = rewrite(&store, &table, &key, 20);
        assert!(store.remove_table(&table));
        assert!(store.get(&table, &key).is_some() && store.window_bytes() > 0, "it has an object");
        done(store.remove(&table, &key, &current, last(&key, 0))).unwrap();
        let oldest = store.revision();
        assert!(store.remove_table(&table));
        assert_eq!(store.window_bytes(), 0);
        assert!(!store.image().tables.contains_key(&table));
        rewrite(&store, &GroupResource::new("x.io", "others"), &ObjectKey::new(None, &n.to_string()), 1);
        for created_again in [false, true] {
            if created_again {
                rewrite(&store, &table, &key, 1);
            }
            let requested = oldest - 1;
            let compacted = Error::Compacted { requested, oldest };
            assert_eq!(store.events_after(&table, requested, 9).unwrap_err(), compacted);
            assert_eq!(store.list_at(&table, None, requested).unwrap_err(), compacted);
            let events = store.events_after(&table, oldest, 9).unwrap().0.len();
            assert_eq!((events, store.list_at(&table, None, oldest).unwrap().entries.len()), (created_again.into(), 0));
        }
    }
}

#[test]
fn watched_table_keeps_its_events() {
    let (store, key) = (Store::new(limits()), ObjectKey::new(None, "x"));
    let current = rewrite(&store, &table(), &key, 20);
    let notifier = store.notifier(&table());
    done(store.remove(&table(), &key, &current, last(&key, 0))).unwrap();
    assert!(!store.remove_table(&table()));
    let (events, _) = store.events_after(&table(), current.revision, 9).unwrap();
    assert!(events.len() == 1 && events[0].removed, "the watch reads the removal");
    drop(notifier);
    assert!(store.remove_table(&table()));
    assert_eq!(store.window_bytes(), 0);
}

#[test]
fn revisions_of_many_removed_tables_are_bounded() {
    let (store, key) = (Store::new(limits()), ObjectKey::new(None, "x"));
    let table = |n: usize| GroupResource::new("x.io", &format!("things{n}"));
    for n in 0..1500 {
        let current = rewrite(&store, &table(n), &key, 1);
        done(store.remove(&table(n), &key, &current, last(&key, 0))).unwrap();
        assert!(store.remove_table(&table(n)));
    }
    assert!(store.image().tables.is_empty());
    for n in [0, 499, 500, 1499] {
        let removal = FIRST_REVISION + 2 * (n as u64 + 1);
        assert!(store.events_after(&table(n), removal - 1, 9).is_err(), "{n}");
        // Earlier revisions are forgotten, as those of all tables that were never written.
        let oldest = FIRST_REVISION + 2 * 500;
        assert!(store.events_after(&table(n), removal.max(oldest), 9).is_ok(), "{n}");
    }
}

#[test]
fn windows_share_their_bytes() {
    let key = ObjectKey::new(None, "x");
    let size = Arc::new(last(&key, 0)(FIRST_REVISION)).size();
    let store = Store::new(Limits { all_bytes: 20 * size, ..limits() });
    let table = |n: u64| GroupResource::new("x.io", &format!("things{n}"));
    let first = rewrite(&store, &table(0), &key, 1).revision;
    rewrite(&store, &table(0), &key, 1);
    for n in 1..10 {
        rewrite(&store, &table(n), &key, 100);
        assert!(store.window_bytes() <= 20 * size, "{} of {}", store.window_bytes(), 20 * size);
    }
    assert_eq!(store.events_after(&table(0), first, 9).unwrap().0.len(), 1, "the largest windows are shortened");
}

#[test]
fn past_states_count_while_a_list_keeps_them() {
    let (x, y) = (ObjectKey::new(None, "x"), ObjectKey::new(None, "y"));
    let size = Arc::new(last(&x, 0)(FIRST_REVISION)).size();
    let store = Store::new(Limits { events: 2, ..limits() });
    let pending = [(); 2].map(|()| PendingEntries::default());
    rewrite(&store, &table(), &x, 1);
    let current = rewrite(&store, &table(), &y, 1);
    pending.iter().for_each(|pending| pending.fill(store.list(&table(), None).entries));
    let past = || (pending.each_ref().map(PendingEntries::past_bytes), store.past_bytes());
    assert_eq!(past(), ([0, 0], 0), "current states");
    rewrite(&store, &table(), &x, 1);
    done(store.remove(&table(), &y, &current, last(&y, 0))).unwrap();
    drop(current);
    assert_eq!(past(), ([0, 0], 0), "states in the window");
    rewrite(&store, &table(), &x, 10);
    assert_eq!(past(), ([2 * size; 2], 2 * size), "each counts once in all");
    assert_eq!(pending[0].pop().unwrap().key, x);
    assert_eq!(past(), ([size, 2 * size], 2 * size));
    pending[1].retain(|entry| entry.key == y);
    assert_eq!(past(), ([size, size], size));
    let names = pending.each_ref().map(|pending| std::iter::from_fn(|| pending.pop()).count());
    assert_eq!((names, past()), ([1, 1], ([0, 0], 0)));
}

#[test]
fn removed_table_leaves_no_uncounted_states() {
    let (store, key) = (Store::new(limits()), ObjectKey::new(None, "x"));
    let kept = rewrite(&store, &table(), &key, 1);
    done(store.remove(&table(), &key, &kept, last(&key, 0))).unwrap();
    assert!(store.remove_table(&table()));
    assert_eq!(store.past_bytes(), kept.size());
    drop(kept);
    assert_eq!(store.past_bytes(), 0);
}

#[test]
fn lists_lock_the_store_for_a_batch() {
    let store = Store::new(limits());
    (0..10).for_each(|n| drop(rewrite(&store, &table(), &ObjectKey::new(None, &n.to_string()), 1)));
    let (image, mut entries) = (store.image(), Vec::new());
    let batches: Vec<(bool, usize)> =
        (0..4).map(|_| (image.tables[&table()].read(None, 3, &mut entries), entries.len())).collect();
    assert_eq!(batches, [(false, 3), (false, 6), (false, 9), (true, 10)]);
}

#[test]
fn lists_in_batches_are_states_of_one_revision() {
    const WRITES: u64 = 20_000;
    let store = Store::new(Limits { events: 50, ..limits() });
    let (states, mut model) = (Mutex::new(BTreeMap::new()), BTreeMap::new());
    let state = |snapshot: Snapshot| -> BTreeMap<String, u64> {
        snapshot.entries.iter().map(|entry| (entry.key.to_string(), number(entry))).collect()
    };
    let mut listed = Vec::new();
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            for n in 0..WRITES {
                let key = ObjectKey::new(Some(["a", "b"][(n % 2) as usize]), &(n * 7 % 13).to_string());
                match store.get(&table(), &key) {
                    Some(current) if n % 3 == 0 => {
                        done(store.remove(&table(), &key, &current, last(&key, n))).unwrap();
                        model.remove(key.as_str());
                    }
                    current => {
                        done(store.put(&table(), &key, current.as_ref(), entry(&key, n))).unwrap();
                        model.insert(key.to_string(), n);
                    }
                }
                states.lock().insert(store.revision(), model.clone());
            }
        });
        while !writes.is_finished() {
            for namespace in [None, Some("b")] {
                match store.read(&table(), namespace, None, 2) {
                    Ok(snapshot) => listed.push((namespace, snapshot.revision, state(snapshot))),
                    Err(error) => assert!(matches!(error, Error::Compacted { .. }), "{error}"),
                }
            }
        }
    });
    let states = states.into_inner();
    for (namespace, revision, listed) in listed.into_iter().filter(|(_, revision, _)| *revision > FIRST_REVISION) {
        let is_in = |key: &String| namespace.is_none_or(|namespace| key.starts_with(&format!("{namespace}/")));
        let expected: BTreeMap<_, _> = states[&revision].clone().into_iter().filter(|(key, _)| is_in(key)).collect();
        assert_eq!(listed, expected, "at {revision}");
    }
}

#[test]
fn namespace_cannot_take_the_whole_space() {
    let size = |text: &str| {
        let key = ObjectKey::new(Some("a"), "0000");
        Arc::new(written(&key, text)(FIRST_REVISION).unwrap()).size()
    };
    let limit = 64 * size("");
    let store = Store::new(Limits { stored_bytes: limit, ..limits() });
    let fill = |namespace: &str| {
        let create = |n: &usize| {
            let key = ObjectKey::new(Some(namespace), &format!("{n:04}"));
            done(store.put(&table(), &key, None, written(&key, ""))).is_ok()
        };
        (0..100).take_while(create).count()
    };
    assert_eq!([fill("a"), fill("b"), fill("c")], [32, 16, 8]);
    let key = ObjectKey::new(Some("a"), "0000");
    let current = store.get(&table(), &key).unwrap();
    let rejected = done(store.put(&table(), &key, Some(&current), written(&key, "longer"))).unwrap_err();
    let why = rejected.to_string();
    assert!(why.starts_with("etcdserver: mvcc: database space exceeded: the objects of namespace a take "), "{why}");
    // Updates without growth, and deletions, are possible.
    let current = done(store.put(&table(), &key, Some(&current), written(&key, ""))).unwrap();
    let deleting = |revision| {
        let metadata = json!({"name": key.name(), "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let object = json!({"apiVersion": "v1", "kind": "Thing", "metadata": metadata, "n": ""});
        Ok(Entry::new(key.clone(), Object::try_from(object).unwrap(), revision, SelectableFields::default(), 0))
    };
    let current = done(store.put(&table(), &key, Some(&current), deleting)).unwrap();
    done(store.remove(&table(), &key, &current, last(&key, 0))).unwrap();
    for n in 1..32 {
        let key = ObjectKey::new(Some("a"), &format!("{n:04}"));
        let current = store.get(&table(), &key).unwrap();
        done(store.remove(&table(), &key, &current, last(&key, 0))).unwrap();
    }
    assert_eq!([fill("b"), fill("d")], [0, 20], "what was deleted is free");
}

proptest! {
    #[test]
    fn every_past_state_in_the_window_can_be_restored(
        steps in proptest::collection::vec((0u8..3, 0u8..4, any::<bool>()), 1..60),
    ) {
        let limits = Limits { events: 20, bytes: usize::MAX, ..limits() };
        let store = Store::new(limits);
        let mut model: BTreeMap<String, u64> = BTreeMap::new();
        let mut past: Vec<(Revision, BTreeMap<String, u64>)> = vec![(store.revision(), model.clone())];
        for (n, (namespace, name, remove)) in steps.into_iter().enumerate() {
            let key = ObjectKey::new(Some(["a", "a-b", "b"][usize::from(namespace)]), &name.to_string());
            let current = store.get(&table(), &key);
            match (&current, remove) {
                (Some(current), true) => {
                    done(store.remove(&table(), &key, current, last(&key, n as u64))).unwrap();
                    model.remove(key.as_str());
                }
                (None, true) => continue,
                _ => {
                    done(store.put(&table(), &key, current.as_ref(), entry(&key, n as u64))).unwrap();
                    model.insert(key.to_string(), n as u64);
                }
            }
            past.push((store.revision(), model.clone()));
        }
        let state = |snapshot: Snapshot| -> BTreeMap<String, u64> {
            snapshot.entries.iter().map(|e| (e.key.to_string(), number(e))).collect()
        };
        prop_assert_eq!(&state(store.list(&table(), None)), &model);
        let oldest = past.len().saturating_sub(21);
        for (i, (revision, then)) in past.iter().enumerate() {
            match store.list_at(&table(), None, *revision) {
                Ok(snapshot) => prop_assert_eq!(&state(snapshot), then),
                Err(Error::Compacted { .. }) => prop_assert!(i < oldest, "revision {} is in reach", revision),
                Err(e) => panic!("{e}"),
            }
            // Replaying the later events onto that state results in the current one.
            if let Ok((events, _)) = store.events_after(&table(), *revision, usize::MAX) {
                let mut replayed = then.clone();
                for event in events {
                    let known = replayed.get(event.after.key.as_str()).copied();
                    prop_assert_eq!(event.before.as_ref().map(|b| number(b)), known);
                    if event.removed {
                        replayed.remove(event.after.key.as_str());
                    } else {
                        replayed.insert(event.after.key.to_string(), number(&event.after));
                    }
                }
                prop_assert_eq!(&replayed, &model);
            }
        }
        let beyond = store.revision() + 1;
        let error = store.list_at(&table(), None, beyond).unwrap_err();
        prop_assert_eq!(error, Error::Future { requested: beyond, current: beyond - 1 });
    }
}
