//! Live state: summaries of objects in the order of their last change, a journal of observed changes, and the watches.
//!
//! A reader has a cursor, the sequence number that it has read. The next batch contains each object that changed since
//! once, in its newest state. So a slow reader causes no queue: it merely gets larger steps. If removals that it has
//! not read are forgotten, it starts over with a snapshot.
//!
//! Invariant: each object has exactly one entry in `by_sequence`, that of its last change.

use crate::kind::Kind;
use crate::summary::{LastWrites, Summary, bounded};
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Limit of objects of all kinds; further ones are counted.
const MAX_OBJECTS: usize = 100_000;
/// Limit of remembered removals.
const MAX_REMOVALS: usize = 10_000;
/// Limit of remembered changes.
const MAX_CHANGES: usize = 10_000;
/// Limit of kinds.
const MAX_KINDS: usize = 2_000;

/// An observed change of an object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Change {
    pub(crate) sequence: u64,
    /// Time of the observation.
    pub(crate) time: String,
    pub(crate) id: String,
    pub(crate) kind: usize,
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) owner: String,
    pub(crate) verb: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) before: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) after: String,
    /// Changed parts of the object.
    pub(crate) parts: Vec<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) writer: String,
    /// The last writes in the managed fields of the new version.
    #[serde(skip)]
    pub(crate) last_writes: LastWrites,
}

/// State of the watch of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Watch {
    #[serde(flatten)]
    pub(crate) kind: Kind,
    pub(crate) objects: usize,
    pub(crate) synced: bool,
    /// Time of the last list, event or bookmark.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) changed: String,
    /// Failure of the last request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) error: String,
    /// True if the user may not list the kind.
    pub(crate) denied: bool,
    /// Time since which requests have no connection; empty if the last one had.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) disconnected: String,
}

/// Reason of the failure of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFailure {
    /// The user may not list the kind.
    Denied,
    /// The API server did not respond.
    Disconnected,
    Other,
}

/// The changes since a cursor.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Batch {
    /// True if it begins a snapshot: the reader forgets all objects first.
    pub(crate) reset: bool,
    #[serde(serialize_with = "serialize_shared")]
    pub(crate) objects: Vec<Arc<Summary>>,
    pub(crate) removed: Vec<String>,
    pub(crate) cursor: u64,
    /// True if the next batch is available at once.
    pub(crate) more: bool,
}

fn serialize_shared<S: Serializer>(objects: &[Arc<Summary>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(objects.iter().map(|object| &**object))
}

#[derive(Default)]
struct State {
    sequence: u64,
    objects: BTreeMap<String, (u64, Arc<Summary>)>,
    by_sequence: BTreeMap<u64, Arc<Summary>>,
    removals: VecDeque<(u64, String)>,
    /// Sequence number of the last forgotten removal.
    forgotten: u64,
    journal: VecDeque<Arc<Change>>,
    watches: Vec<Watch>,
    /// Objects beyond the limit.
    omitted: u64,
}

/// The live state, shared by watches and readers.
#[derive(Default)]
pub(crate) struct Store {
    state: Mutex<State>,
    pub(crate) changed: Notify,
}

impl Store {
    /// Adds a kind, and returns its index. An index is never reused. Returns nothing at the limit.
    pub(crate) fn add_kind(&self, kind: &Kind) -> Option<(usize, bool)> {
        let mut state = self.state.lock();
        let same = |watch: &Watch| watch.kind.group == kind.group && watch.kind.plural == kind.plural;
        if let Some(index) = state.watches.iter().position(same) {
            return Some((index, false));
        }
        if state.watches.len() >= MAX_KINDS {
            return None;
        }
        let (changed, error, disconnected) = (String::new(), String::new(), String::new());
        let (objects, synced, denied) = (0, false, false);
        state.watches.push(Watch { kind: kind.clone(), objects, synced, changed, error, denied, disconnected });
        Some((state.watches.len() - 1, true))
    }

    /// Replaces all objects of a kind by a list.
    pub(crate) fn replace(&self, kind: usize, objects: Vec<Summary>, time: &str) {
        let mut state = self.state.lock();
        let listed: BTreeSet<&str> = objects.iter().map(|object| object.id.as_str()).collect();
        let stored = state.objects.iter().filter(|(_, (_, object))| object.kind == kind);
        let gone: Vec<String> = stored.map(|(id, _)| id.clone()).filter(|id| !listed.contains(id.as_str())).collect();
        let journaled = state.watches.get(kind).is_some_and(|watch| watch.synced);
        gone.iter().for_each(|id| state.remove(id, time));
        objects.into_iter().for_each(|object| state.put(object, time, journaled));
        if let Some(watch) = state.watches.get_mut(kind) {
            (watch.synced, watch.denied, watch.changed) = (true, false, time.to_owned());
            watch.error.clear();
            watch.disconnected.clear();
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Stores a created or changed object.
    pub(crate) fn put(&self, object: Summary, time: &str) {
        let (mut state, kind) = (self.state.lock(), object.kind);
        state.put(object, time, true);
        state.touch(kind, time);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Removes a deleted object.
    pub(crate) fn remove(&self, kind: usize, id: &str, time: &str) {
        let mut state = self.state.lock();
        state.remove(id, time);
        state.touch(kind, time);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Notes that a watch has delivered something, such as a bookmark.
    pub(crate) fn touch(&self, kind: usize, time: &str) {
        self.state.lock().touch(kind, time);
    }

    /// Notes a failure of a watch.
    pub(crate) fn fail(&self, kind: usize, error: &str, failure: WatchFailure, time: &str) {
        if let Some(watch) = self.state.lock().watches.get_mut(kind) {
            (watch.error, watch.denied) = (bounded(error), failure == WatchFailure::Denied);
            match failure {
                WatchFailure::Disconnected if watch.disconnected.is_empty() => time.clone_into(&mut watch.disconnected),
                WatchFailure::Disconnected => {}
                WatchFailure::Denied | WatchFailure::Other => watch.disconnected.clear(),
            }
        }
        self.changed.notify_waiters();
    }

    /// Returns the time since which most watches have no connection to the API server.
    pub(crate) fn disconnected(&self) -> Option<String> {
        let state = self.state.lock();
        let permitted = state.watches.iter().filter(|watch| !watch.denied).count();
        let disconnected = state.watches.iter().map(|watch| &watch.disconnected).filter(|since| !since.is_empty());
        let (count, since) = (disconnected.clone().count(), disconnected.min());
        since.filter(|_| count * 2 > permitted).cloned()
    }

    /// Returns the changes since a cursor, at most `limit` objects; all objects without a cursor.
    pub(crate) fn batch(&self, cursor: Option<u64>, limit: usize) -> Batch {
        let state = self.state.lock();
        let reset = cursor.is_none_or(|cursor| cursor < state.forgotten || cursor > state.sequence);
        let from = if reset { 0 } else { cursor.unwrap_or_default() };
        let mut changed = state.by_sequence.range(from + 1..);
        let objects: Vec<(u64, Arc<Summary>)> =
            changed.by_ref().take(limit).map(|(sequence, object)| (*sequence, object.clone())).collect();
        let more = changed.next().is_some();
        let cursor = if more { objects.last().map_or(from, |(sequence, _)| *sequence) } else { state.sequence };
        let is_read = |sequence: u64| sequence > from && sequence <= cursor && !reset;
        let removed = state.removals.iter().filter(|(sequence, _)| is_read(*sequence));
        let removed = removed.map(|(_, id)| id.clone()).collect();
        Batch { reset, objects: objects.into_iter().map(|(_, object)| object).collect(), removed, cursor, more }
    }

    pub(crate) fn watches(&self) -> Vec<Watch> {
        self.state.lock().watches.clone()
    }

    /// Returns the number of stored objects, and of those beyond the limit.
    pub(crate) fn size(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.objects.len(), state.omitted)
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Summary>> {
        self.state.lock().objects.get(id).map(|(_, object)| object.clone())
    }

    /// Finds an object by group, kind, namespace and name.
    pub(crate) fn find(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<Arc<Summary>> {
        let state = self.state.lock();
        let same = |watch: &Watch| watch.kind.group == group && watch.kind.kind == kind;
        let index = state.watches.iter().position(same)?;
        let mut objects = state.objects.values().map(|(_, object)| object);
        let found = objects.find(|object| {
            object.kind == index && object.name == name && (object.namespace == namespace || namespace.is_empty())
        });
        found.cloned()
    }

    /// Returns the objects that an object controls, at most `limit`, in the order of creation.
    pub(crate) fn children(&self, id: &str, limit: usize) -> Vec<Arc<Summary>> {
        // Objects without an owner are no children.
        if id.is_empty() {
            return Vec::new();
        }
        let state = self.state.lock();
        let objects = state.objects.values().map(|(_, object)| object).filter(|object| object.owner == id);
        let mut children: Vec<Arc<Summary>> = objects.cloned().collect();
        children.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
        children.truncate(limit);
        children
    }

    /// Returns observed changes that satisfy a condition, newest first.
    pub(crate) fn changes(&self, limit: usize, filter: impl Fn(&Change) -> bool) -> Vec<Arc<Change>> {
        let state = self.state.lock();
        state.journal.iter().rev().filter(|change| filter(change)).take(limit).cloned().collect()
    }
}

impl State {
    fn touch(&mut self, kind: usize, time: &str) {
        if let Some(watch) = self.watches.get_mut(kind) {
            time.clone_into(&mut watch.changed);
            watch.error.clear();
            watch.disconnected.clear();
        }
    }

    fn put(&mut self, object: Summary, time: &str, journaled: bool) {
        let before = self.objects.get(&object.id).map(|(sequence, before)| (*sequence, before.clone()));
        if before.as_ref().is_some_and(|(_, before)| **before == object) {
            return;
        }
        if before.is_none() && self.objects.len() >= MAX_OBJECTS {
            self.omitted += 1;
            return;
        }
        self.sequence += 1;
        match &before {
            Some((sequence, _)) => drop(self.by_sequence.remove(sequence)),
            None => self.count(object.kind, 1),
        }
        if journaled {
            let (verb, parts) = match &before {
                None => ("create", Vec::new()),
                Some((_, before)) => ("change", object.parts.difference(before.parts)),
            };
            self.record(&object, verb, before.as_ref().map(|(_, before)| &**before), parts, time);
        }
        let object = Arc::new(object);
        self.by_sequence.insert(self.sequence, object.clone());
        self.objects.insert(object.id.clone(), (self.sequence, object));
    }

    fn remove(&mut self, id: &str, time: &str) {
        let Some((sequence, object)) = self.objects.remove(id) else { return };
        self.by_sequence.remove(&sequence);
        self.sequence += 1;
        self.count(object.kind, -1);
        self.record(&object, "delete", Some(&object), Vec::new(), time);
        self.removals.push_back((self.sequence, id.to_owned()));
        if self.removals.len() > MAX_REMOVALS
            && let Some((sequence, _)) = self.removals.pop_front()
        {
            self.forgotten = sequence;
        }
    }

    fn count(&mut self, kind: usize, by: isize) {
        if let Some(watch) = self.watches.get_mut(kind) {
            watch.objects = watch.objects.saturating_add_signed(by);
        }
    }

    fn record(
        &mut self,
        object: &Summary,
        verb: &'static str,
        before: Option<&Summary>,
        parts: Vec<&'static str>,
        time: &str,
    ) {
        if self.journal.len() >= MAX_CHANGES {
            self.journal.pop_front();
        }
        let is_deleted = verb == "delete";
        self.journal.push_back(Arc::new(Change {
            sequence: self.sequence,
            time: time.to_owned(),
            id: object.id.clone(),
            kind: object.kind,
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            owner: object.owner.clone(),
            verb,
            before: before.map(|before| before.version.clone()).unwrap_or_default(),
            after: if is_deleted { String::new() } else { object.version.clone() },
            parts,
            writer: match before {
                _ if is_deleted => String::new(),
                Some(before) => object.last_writes.writer(&before.last_writes),
                None => object.last_writes.creator(&object.created),
            },
            last_writes: match is_deleted {
                true => LastWrites::default(),
                false => object.last_writes.after(before.map(|before| &before.last_writes)),
            },
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TIME: &str = "2026-01-01T00:00:00Z";

    fn object(name: &str, version: &str) -> Summary {
        let metadata = json!({"uid": name, "name": name, "resourceVersion": version});
        Summary::of(0, &json!({"metadata": metadata, "spec": version}), TIME.parse().expect("a time"))
    }

    fn store() -> Store {
        let store = Store::default();
        let text = |text: &str| text.to_owned();
        let kind =
            Kind { group: text(""), version: text("v1"), kind: text("Pod"), plural: text("pods"), namespaced: true };
        assert_eq!(store.add_kind(&kind), Some((0, true)));
        assert_eq!(store.add_kind(&kind), Some((0, false)));
        store
    }

    /// Applies batches as a browser does, until there are no more.
    fn read(store: &Store, rows: &mut BTreeMap<String, String>, cursor: &mut Option<u64>, limit: usize) -> bool {
        let mut reset = false;
        loop {
            let batch = store.batch(*cursor, limit);
            if batch.reset {
                rows.clear();
                reset = true;
            }
            for id in &batch.removed {
                rows.remove(id);
            }
            rows.extend(batch.objects.iter().map(|object| (object.id.clone(), object.version.clone())));
            *cursor = Some(batch.cursor);
            if !batch.more {
                return reset;
            }
        }
    }

    #[test]
    fn reader_of_any_speed_has_the_state_of_the_store() {
        let store = store();
        let (mut rows, mut cursor) = (BTreeMap::new(), None);
        for step in 0..400_u32 {
            // A fixed sequence of writes to 37 objects.
            let name = format!("o{}", step.wrapping_mul(2_654_435_761) % 37);
            match step % 5 {
                0 => store.remove(0, &name, TIME),
                _ => store.put(object(&name, &step.to_string()), TIME),
            }
            if step % 7 == 0 {
                read(&store, &mut rows, &mut cursor, 3);
                let mut all = BTreeMap::new();
                assert!(read(&store, &mut all, &mut None, 1000));
                assert_eq!(rows, all, "step {step}");
            }
        }
    }

    #[test]
    fn slow_reader_gets_each_object_once() {
        let store = store();
        let cursor = store.batch(None, 10).cursor;
        (0..1000).for_each(|version| store.put(object("a", &version.to_string()), TIME));
        let batch = store.batch(Some(cursor), 10);
        assert_eq!((batch.objects.len(), batch.more, batch.objects[0].version.as_str()), (1, false, "999"));
    }

    #[test]
    fn forgotten_removals_cause_a_snapshot() {
        let store = store();
        let (mut rows, mut cursor) = (BTreeMap::new(), None);
        store.put(object("a", "1"), TIME);
        read(&store, &mut rows, &mut cursor, 10);
        store.remove(0, "a", TIME);
        for at in 0..=MAX_REMOVALS {
            let name = format!("b{at}");
            store.put(object(&name, "1"), TIME);
            store.remove(0, &name, TIME);
        }
        assert!(read(&store, &mut rows, &mut cursor, 10), "a snapshot");
        assert_eq!(rows.len(), 0);
    }

    #[test]
    fn cluster_is_disconnected_if_most_watches_are() {
        let store = Store::default();
        for plural in ["a", "b", "c", "d"] {
            let text = |text: &str| text.to_owned();
            let (group, version, kind, plural) = (text(""), text("v1"), text(plural), text(plural));
            store.add_kind(&Kind { group, version, kind, plural, namespaced: true });
        }
        store.fail(0, "403", WatchFailure::Denied, TIME);
        store.fail(1, "500", WatchFailure::Other, TIME);
        assert_eq!(store.disconnected(), None);
        store.fail(2, "refused", WatchFailure::Disconnected, "2026-01-01T00:00:02Z");
        assert_eq!(store.disconnected(), None, "one of three that the user may list");
        store.fail(3, "refused", WatchFailure::Disconnected, "2026-01-01T00:00:03Z");
        store.fail(2, "refused", WatchFailure::Disconnected, "2026-01-01T00:00:30Z");
        assert_eq!(store.disconnected().as_deref(), Some("2026-01-01T00:00:02Z"), "since the first failure");
        store.replace(2, Vec::new(), TIME);
        assert_eq!(store.disconnected(), None);
    }

    #[test]
    fn objects_without_an_owner_are_no_children() {
        let store = store();
        store.put(object("a", "1"), TIME);
        assert_eq!(store.children("", 10).len(), 0);
    }

    #[test]
    fn relist_removes_and_journals_the_difference() {
        let store = store();
        store.replace(0, vec![object("a", "1"), object("b", "1")], TIME);
        assert_eq!(store.changes(10, |_| true).len(), 0, "the first list is no change");
        store.replace(0, vec![object("b", "2"), object("c", "3")], TIME);
        let changes = store.changes(10, |_| true);
        let texts: Vec<String> = changes.iter().map(|change| format!("{} {}", change.verb, change.name)).collect();
        assert_eq!(texts, ["create c", "change b", "delete a"]);
        assert_eq!((changes[1].before.as_str(), changes[1].parts.as_slice()), ("1", &["spec"][..]));
        assert_eq!(store.watches()[0].objects, 2);
    }
}
