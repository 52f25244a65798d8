//! The objects of one resource, and its latest events.

use super::past::PastBytes;
use super::{Entry, Error, Revision, SelectableFields, WriteNotifier};
use crate::bounds::Bounds;
use flyball_core::ObjectKey;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The objects of a table, in the order of keys.
pub(crate) type Objects = BTreeMap<ObjectKey, Arc<Entry>>;

/// The size limit of all objects, and the limits of the window of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of events.
    pub(crate) events: usize,
    /// Approximate maximum number of bytes of objects that only events reference.
    pub(crate) bytes: usize,
    /// The same for the windows of all tables.
    pub(crate) all_bytes: usize,
    /// Maximum number of bytes of all objects.
    pub(crate) stored_bytes: usize,
}

impl Limits {
    pub(crate) fn of(bounds: &Bounds) -> Self {
        let Bounds { window_events, window_bytes, all_windows_bytes, stored_bytes, .. } = *bounds;
        Self { events: window_events, bytes: window_bytes, all_bytes: all_windows_bytes, stored_bytes }
    }
}

/// A write to a table.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The new state of the object.
    Put(Arc<Entry>),
    /// The object was removed; contains its last state, with the revision of the removal.
    Remove(Arc<Entry>),
}

impl Change {
    /// Returns the new state, or for a removal the last state.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        match self {
            Self::Put(entry) | Self::Remove(entry) => entry,
        }
    }
}

/// A change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: Revision,
    /// The previous state, if the object existed.
    pub(crate) before: Option<Arc<Entry>>,
    /// The new state; for a removal the last state, with the revision of the removal.
    pub(crate) after: Arc<Entry>,
    pub(crate) removed: bool,
}

impl Event {
    /// Returns the memory in bytes of states that only the event references.
    fn size(&self) -> usize {
        let removed = if self.removed { self.after.size() } else { 0 };
        self.before.as_ref().map_or(0, Entry::size) + removed
    }
}

/// Both maps are copy-on-write, and shared with images.
#[derive(Debug)]
pub(super) struct Table {
    objects: Arc<Objects>,
    /// Stored objects that cannot be decoded, and are not served.
    quarantine: Arc<Objects>,
    window: Arc<VecDeque<Arc<Event>>>,
    /// The window contains every event after this revision.
    start: Revision,
    /// Bytes of the objects that only the window references.
    bytes: usize,
    notifier: Arc<WriteNotifier>,
}

impl Table {
    /// Creates a table without events up to a revision.
    pub(super) fn new(start: Revision) -> Self {
        Self::of(Objects::new(), Objects::new(), start)
    }

    /// Creates a table with these objects and undecodable ones, whose last event was before a revision.
    pub(super) fn of(objects: Objects, quarantine: Objects, start: Revision) -> Self {
        let (objects, quarantine) = (Arc::new(objects), Arc::new(quarantine));
        Self { objects, quarantine, window: Arc::default(), start, bytes: 0, notifier: Arc::default() }
    }

    /// Copies the table, with a separate notifier.
    pub(super) fn image(&self) -> Self {
        let Self { objects, quarantine, window, start, bytes, notifier: _ } = self;
        Self {
            objects: objects.clone(),
            quarantine: quarantine.clone(),
            window: window.clone(),
            start: *start,
            bytes: *bytes,
            notifier: Arc::default(),
        }
    }

    /// Returns all entries for a snapshot, including quarantined ones.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.objects.values().chain(self.quarantine.values())
    }

    /// Returns the objects that cannot be decoded.
    pub(super) fn quarantine(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.quarantine.values()
    }

    pub(super) fn quarantined(&self, key: &ObjectKey) -> Option<Arc<Entry>> {
        self.quarantine.get(key).cloned()
    }

    /// Replaces the selectable fields of the objects.
    pub(super) fn select_by(&mut self, mut facts: impl FnMut(&Entry) -> SelectableFields) {
        for entry in Arc::make_mut(&mut self.objects).values_mut() {
            let facts = facts(entry);
            match Arc::get_mut(entry) {
                Some(entry) => entry.facts = facts,
                None => *entry = Arc::new(entry.selected_by(facts)),
            }
        }
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

    /// Returns the notifier to call after a change.
    pub(super) fn notifier(&self) -> Arc<WriteNotifier> {
        self.notifier.clone()
    }

    /// Applies a change and adds its event to the window; returns the previous state.
    pub(super) fn apply(
        &mut self,
        key: &ObjectKey,
        change: Change,
        limits: &Limits,
        past: &PastBytes,
    ) -> Option<Arc<Entry>> {
        let mut replaced = None;
        if self.quarantine.contains_key(key) {
            replaced = Arc::make_mut(&mut self.quarantine).remove(key);
            // It was never served, so its removal is not an event.
            if matches!(change, Change::Remove(_)) {
                return replaced;
            }
        }
        let objects = Arc::make_mut(&mut self.objects);
        let (before, after, removed) = match change {
            Change::Put(entry) => (objects.insert(key.clone(), entry.clone()), entry, false),
            Change::Remove(last) => (objects.remove(key), last, true),
        };
        let replaced = replaced.or_else(|| before.clone());
        let event = Event { revision: after.revision, before, after, removed };
        self.bytes += event.size();
        Arc::make_mut(&mut self.window).push_back(Arc::new(event));
        while self.window.len() > limits.events || self.bytes > limits.bytes && self.window.len() > 1 {
            self.forget_event(past);
        }
        replaced
    }

    /// Removes the oldest event from the window.
    pub(super) fn forget_event(&mut self, past: &PastBytes) {
        if let Some(event) = Arc::make_mut(&mut self.window).pop_front() {
            self.start = event.revision;
            self.bytes -= event.size();
            event.before.iter().for_each(|before| before.become_past(past));
            if event.removed {
                event.after.become_past(past);
            }
        }
    }

    /// Returns the bytes of the objects that only the window references.
    pub(super) fn window_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if there are no objects.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.quarantine.is_empty()
    }

    /// Returns true if there is a watch.
    pub(super) fn is_watched(&self) -> bool {
        Arc::strong_count(&self.notifier) > 1
    }

    /// Adds the next objects of one namespace, or of all, in the order of their keys, after those that are there.
    /// Returns true if these are all.
    pub(super) fn read(&self, namespace: Option<&str>, batch: usize, entries: &mut Vec<Arc<Entry>>) -> bool {
        // '0' follows '/' in order, so these two bounds enclose exactly the keys of the namespace.
        let bounds = namespace.map(|namespace| (format!("{namespace}/"), format!("{namespace}0")));
        let (first, end) = match &bounds {
            Some((first, end)) => (Bound::Included(first.as_str()), Bound::Excluded(end.as_str())),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let last = entries.last().map(|entry| entry.key.clone());
        let start = last.as_ref().map_or(first, |last| Bound::Excluded(last.as_str()));
        let mut rest = self.objects.range::<str, _>((start, end)).map(|(_, entry)| entry.clone());
        entries.extend(rest.by_ref().take(batch));
        rest.next().is_none()
    }

    pub(super) fn events_after(&self, revision: Revision, max: usize) -> Result<Vec<Arc<Event>>, Error> {
        self.reaches(revision)?;
        let first = self.window.partition_point(|event| event.revision <= revision);
        Ok(self.window.range(first..).take(max).cloned().collect())
    }

    /// Returns the events after a revision that the window contains.
    pub(super) fn retained_after(&self, revision: Revision) -> impl Iterator<Item = &Arc<Event>> {
        let first = self.window.partition_point(|event| event.revision <= revision);
        self.window.range(first..)
    }

    fn reaches(&self, revision: Revision) -> Result<(), Error> {
        if revision < self.start { Err(Error::Compacted { requested: revision, oldest: self.start }) } else { Ok(()) }
    }
}

/// Restores a past state of the objects of one namespace, or of all, by undoing the events since.
pub(super) fn undo(entries: Vec<Arc<Entry>>, namespace: Option<&str>, since: &[Arc<Event>]) -> Vec<Arc<Entry>> {
    let concerns = |event: &&Arc<Event>| namespace.is_none() || event.after.key.namespace() == namespace;
    // The first event of an object has its state at the revision.
    let mut before: BTreeMap<&ObjectKey, &Option<Arc<Entry>>> = BTreeMap::new();
    for event in since.iter().filter(concerns) {
        before.entry(&event.after.key).or_insert(&event.before);
    }
    if before.is_empty() {
        return entries;
    }
    let mut then: BTreeMap<&ObjectKey, &Arc<Entry>> = entries.iter().map(|entry| (&entry.key, entry)).collect();
    for (key, before) in before {
        match before {
            Some(before) => then.insert(key, before),
            None => then.remove(key),
        };
    }
    then.into_values().cloned().collect()
}
