//! Storage of the objects of all resources, with one sequence of revisions.
//!
//! Stores objects as JSON and returns [`Entry`]s: the encoded bytes with a few decoded fields for the selectors of
//! lists and watches. One counter numbers all writes. A table keeps its latest events in a bounded window, from which
//! watches continue and past states are restored.
//!
//! A store is either in memory only, or has a [journal](Journal): then a write waits until it is on disk, and is not
//! visible before. Without a journal, writes do not wait.
//!
//! Storage does not depend on HTTP, kinds or the content of objects. Invariants: revisions increase with each write; an
//! entry is immutable; the window contains every event after its start, in order.

mod entry;
mod frame;
mod identity;
mod journal;
mod notifier;
mod past;
mod pending;
mod record;
mod recorded;
mod recorder_queue;
mod recording;
mod shared;
mod sizes;
mod table;

#[cfg(test)]
mod tests;

pub(crate) use entry::{Entry, EntryError, SelectableFields};
pub(crate) use notifier::WriteNotifier;
pub(crate) use pending::PendingEntries;
pub(crate) use recorded::Origin;
pub use recorded::RecordingEnd;
pub use recording::{RecordedOrigin, RecordedWrite, Recording, RecordingError, RecordingHistory};
pub(crate) use shared::Image;
pub(crate) use table::{Change, Event, Limits, Objects};

use crate::data_dir::{DataDir, DataDirError};
use flyball_core::{GroupResource, ObjectKey};
use journal::{Journal, RecoveredContent};
use parking_lot::{Mutex, MutexGuard};
use recording::Recorder;
use shared::{SharedStore, Write, WriteState};
use std::collections::BTreeMap;
use std::sync::Arc;
use table::Table;

/// The number of a write; `metadata.resourceVersion` outside of storage.
pub(crate) type Revision = u64;

/// The revision of the empty store.
///
/// It is not 0, which has a special meaning in the API, and it leaves room for revisions that are too old, which
/// clients and tests may request.
const FIRST_REVISION: Revision = 100;

/// The error of a storage operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The object was changed concurrently; the caller must read it again.
    #[error("the object was changed concurrently")]
    Changed,
    /// The revision is older than the window.
    #[error("revision {requested} is older than the oldest retained revision {oldest}")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// Oldest available revision.
        oldest: Revision,
    },
    /// The revision is in the future.
    #[error("revision {requested} is newer than the current revision {current}")]
    Future {
        /// The requested revision.
        requested: Revision,
        /// Latest revision.
        current: Revision,
    },
    /// The object exceeds the size limit.
    #[error("{why}")]
    TooLarge {
        /// Message with the object, its size or memory, and the limit.
        why: Arc<str>,
    },
    /// The object is nested too deep.
    #[error("{why}")]
    TooDeep {
        /// Message with the object, its depth, and the limit.
        why: Arc<str>,
    },
    /// There is no space for the object.
    #[error("{why}")]
    Full {
        /// Message with the namespace, its size, and the limit.
        why: Arc<str>,
    },
    /// The write to disk failed.
    #[error("{why}")]
    NotKept {
        /// Message with the directory and the reason.
        why: Arc<str>,
    },
}

/// All objects.
#[derive(Debug)]
pub(crate) struct Store {
    shared: Arc<SharedStore>,
    journal: Mutex<Option<Journal>>,
    recorder: Mutex<Option<Recorder>>,
}

/// The objects of a list, and its revision.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: Revision,
    /// In the order of keys.
    pub(crate) entries: Vec<Arc<Entry>>,
}

/// The state of a recovered journal, from which [`Store::keep`] continues.
#[derive(Debug)]
pub(crate) struct RecoveredJournal {
    recovered: RecoveredContent,
    revision: Revision,
}

/// Maximum number of objects that a list reads before it unlocks the store.
const LIST_BATCH: usize = 1000;

/// Maximum number of times that a list of the current objects is read in batches.
const MAX_LIST_ATTEMPTS: usize = 3;

/// Maximum number of unreadable objects that are logged individually at startup.
const MAX_LOGGED: usize = 100;

/// Moves undecodable objects of a table to quarantine: they are stored but not served until they are replaced or
/// deleted.
fn quarantine(table: &GroupResource, objects: &mut Objects, count: &mut usize) -> Objects {
    let mut quarantine = Objects::new();
    objects.retain(|key, entry| match entry::measure(&entry.body) {
        Ok(depth) => {
            Arc::get_mut(entry).into_iter().for_each(|entry| entry.depth = depth);
            true
        }
        Err(why) => {
            *count += 1;
            if *count <= MAX_LOGGED {
                tracing::warn!(
                    resource = %table,
                    object = %key,
                    %why,
                    "a stored object cannot be decoded and is quarantined; delete it or create it again"
                );
            }
            quarantine.insert(key.clone(), entry.clone());
            false
        }
    });
    quarantine
}

impl Store {
    /// Creates an empty store.
    pub(crate) fn new(limits: Limits) -> Self {
        Self::of(Image::new(FIRST_REVISION, BTreeMap::new()), limits)
    }

    /// Creates a store from an image, in memory.
    pub(crate) fn of(image: Image, limits: Limits) -> Self {
        let shared = Arc::new(SharedStore::new(image, limits));
        Self { shared, journal: Mutex::default(), recorder: Mutex::default() }
    }

    /// Recovers the store of a directory. Writes are not journaled before [`Store::keep`].
    ///
    /// Objects have no selectable fields before [`Store::select_by`] sets them.
    pub(crate) fn recover(directory: &DataDir, limits: Limits) -> Result<(Self, RecoveredJournal), DataDirError> {
        let mut recovered = Journal::recover(directory)?;
        let tables = std::mem::take(&mut recovered.tables);
        let revision = recovered.revision.max(FIRST_REVISION);
        let mut count = 0;
        let tables = tables.into_iter().map(|(name, mut objects)| {
            let quarantine = quarantine(&name, &mut objects, &mut count);
            (name, Table::of(objects, quarantine, revision))
        });
        let tables = tables.collect();
        if count > MAX_LOGGED {
            tracing::warn!(more = count - MAX_LOGGED, "further stored objects cannot be decoded and are quarantined");
        }
        Ok((Self::of(Image::new(revision, tables), limits), RecoveredJournal { recovered, revision }))
    }

    /// Counts all objects.
    pub(crate) fn count_all(&self) -> usize {
        self.shared.state.lock().image.tables.values().map(Table::len).sum()
    }

    /// Sets the selectable fields of the objects.
    pub(crate) fn select_by(&self, mut facts: impl FnMut(&GroupResource, &Entry) -> SelectableFields) {
        let mut state = self.shared.state.lock();
        state.image.tables.iter_mut().for_each(|(name, table)| table.select_by(|entry| facts(name, entry)));
    }

    /// Writes all changes since recovery, and all later ones, to the journal.
    pub(crate) fn keep(&self, directory: DataDir, journal: &RecoveredJournal) -> Result<(), DataDirError> {
        let first = self.shared.stage_from_now_on(journal.revision);
        let journal = Journal::begin(directory, &journal.recovered, &first, self.shared.clone())?;
        *self.journal() = Some(journal);
        Ok(())
    }

    fn journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.journal.lock()
    }

    /// Stops journaling: waits until pending writes are on disk, and releases the directory. Further writes are
    /// rejected. A recording ends as well.
    pub(crate) fn close(&self) {
        drop(self.journal().take());
        self.end_recording();
    }

    /// Returns true if there is a journal.
    pub(crate) fn has_journal(&self) -> bool {
        self.journal().is_some()
    }

    /// Returns a copy-on-write image of the state.
    pub(crate) fn image(&self) -> Image {
        self.shared.image()
    }

    /// Returns the latest revision.
    pub(crate) fn revision(&self) -> Revision {
        self.shared.state.lock().image.revision
    }

    /// Waits until the store has reached a revision.
    pub(crate) async fn reach(&self, revision: Revision) {
        loop {
            let mut written = std::pin::pin!(self.shared.written());
            // Registered before the check, so that no write between the two is missed.
            written.as_mut().enable();
            if self.revision() >= revision {
                return;
            }
            written.await;
        }
    }

    /// Returns an object.
    pub(crate) fn get(&self, table: &GroupResource, key: &ObjectKey) -> Option<Arc<Entry>> {
        self.shared.state.lock().image.tables.get(table)?.get(key)
    }

    /// Returns a stored object that cannot be decoded.
    pub(crate) fn quarantined(&self, table: &GroupResource, key: &ObjectKey) -> Option<Arc<Entry>> {
        self.shared.state.lock().image.tables.get(table)?.quarantined(key)
    }

    /// Returns the stored objects that cannot be decoded, of all tables, if a function returns true for them.
    pub(crate) fn quarantined_where(
        &self,
        select: impl Fn(&GroupResource, &ObjectKey) -> bool,
    ) -> Vec<(GroupResource, Arc<Entry>)> {
        let state = self.shared.state.lock();
        let all =
            state.image.tables.iter().flat_map(|(name, table)| table.quarantine().map(move |entry| (name, entry)));
        let selected = all.filter(|(name, entry)| select(name, &entry.key));
        selected.map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    /// Replaces `expected`, which must be the stored entry (`None` for a create), with a new one.
    ///
    /// `make` gets the revision and returns the new entry or an error. It runs under the store's lock, so it must be
    /// fast and must not access the store.
    ///
    /// A write continues if its future is dropped.
    pub(crate) async fn put(
        &self,
        table: &GroupResource,
        key: &ObjectKey,
        expected: Option<&Arc<Entry>>,
        make: impl FnOnce(Revision) -> Result<Entry, Error> + Send,
    ) -> Result<Arc<Entry>, Error> {
        self.change(table, key, expected, |revision| Ok(Change::Put(Arc::new(make(revision)?)))).await
    }

    /// Removes `expected`, which must be the stored entry; `make` returns its last state, with the revision of the
    /// removal.
    pub(crate) async fn remove(
        &self,
        table: &GroupResource,
        key: &ObjectKey,
        expected: &Arc<Entry>,
        make: impl FnOnce(Revision) -> Entry + Send,
    ) -> Result<Arc<Entry>, Error> {
        self.change(table, key, Some(expected), |revision| Ok(Change::Remove(Arc::new(make(revision))))).await
    }

    async fn change(
        &self,
        table: &GroupResource,
        key: &ObjectKey,
        expected: Option<&Arc<Entry>>,
        make: impl FnOnce(Revision) -> Result<Change, Error> + Send,
    ) -> Result<Arc<Entry>, Error> {
        let mut make = Some(make);
        loop {
            match self.shared.begin(table, key, expected, &mut make)? {
                WriteState::Done(entry) => return Ok(entry),
                WriteState::StagedWrites(entry, committed) => {
                    let closed = || Error::NotKept { why: "the data directory is closed for writes".into() };
                    committed.await.map_err(|_| closed())??;
                    return Ok(entry);
                }
                WriteState::Busy(mut flushed) => drop(flushed.changed().await),
            }
        }
    }

    /// Writes an object without concurrent writers, before the journal is opened.
    pub(crate) fn seed(&self, table: &GroupResource, key: &ObjectKey, make: impl FnOnce(Revision) -> Entry) {
        let current = self.get(table, key);
        let mut make = Some(|revision| Ok(Change::Put(Arc::new(make(revision)))));
        let written = self.shared.begin(table, key, current.as_ref(), &mut make);
        debug_assert!(matches!(written, Ok(WriteState::Done(_))), "the server is not created yet");
    }

    /// Returns the current objects of one namespace or of all namespaces.
    pub(crate) fn list(&self, table: &GroupResource, namespace: Option<&str>) -> Snapshot {
        for _ in 0..MAX_LIST_ATTEMPTS {
            // It fails if the window passes the revision in the meantime.
            if let Ok(snapshot) = self.read(table, namespace, None, LIST_BATCH) {
                return snapshot;
            }
        }
        self.read(table, namespace, None, usize::MAX).expect("a single batch is read under one lock")
    }

    /// Returns the objects of one namespace or of all namespaces at a revision.
    pub(crate) fn list_at(
        &self,
        table: &GroupResource,
        namespace: Option<&str>,
        revision: Revision,
    ) -> Result<Snapshot, Error> {
        self.read(table, namespace, Some(revision), LIST_BATCH)
    }

    /// Reads the objects at a revision, or now, in batches. The store is locked for one batch at a time, so that a long
    /// list does not delay other requests. Changes since the revision are undone at the end.
    fn read(
        &self,
        name: &GroupResource,
        namespace: Option<&str>,
        revision: Option<Revision>,
        batch: usize,
    ) -> Result<Snapshot, Error> {
        let (mut revision, mut entries) = (revision, Vec::new());
        loop {
            let state = self.shared.state.lock();
            let image = &state.image;
            let revision = *revision.get_or_insert(image.revision);
            if revision > image.revision {
                return Err(Error::Future { requested: revision, current: image.revision });
            }
            let Some(table) = image.tables.get(name) else {
                return image.reaches(name, revision).map(|()| Snapshot { revision, entries: Vec::new() });
            };
            let is_complete = table.read(namespace, batch, &mut entries);
            let since = table.events_after(revision, if is_complete { usize::MAX } else { 0 })?;
            drop(state);
            if is_complete {
                return Ok(Snapshot { revision, entries: table::undo(entries, namespace, &since) });
            }
        }
    }

    /// Counts the objects of a table.
    pub(crate) fn count(&self, table: &GroupResource) -> usize {
        self.shared.state.lock().image.tables.get(table).map_or(0, Table::len)
    }

    /// Counts the objects of each table that has any.
    pub(crate) fn counts(&self) -> Vec<(GroupResource, usize)> {
        let state = &self.shared.state.lock().image;
        state.tables.iter().map(|(name, table)| (name.clone(), table.len())).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the revision of the latest write to a table.
    pub(crate) fn changed(&self, table: &GroupResource) -> Revision {
        let state = &self.shared.state.lock().image;
        state.tables.get(table).map_or_else(|| state.start_of(table), Table::changed)
    }

    /// Returns at most `max` events of a table after a revision, and the latest revision if these are all events.
    pub(crate) fn events_after(
        &self,
        table: &GroupResource,
        revision: Revision,
        max: usize,
    ) -> Result<(Vec<Arc<Event>>, Option<Revision>), Error> {
        let state = &self.shared.state.lock().image;
        let Some(table) = state.tables.get(table) else {
            return state.reaches(table, revision).map(|()| (Vec::new(), Some(state.revision)));
        };
        let events = table.events_after(revision, max)?;
        let all = events.len() < max;
        Ok((events, all.then_some(state.revision)))
    }

    /// Returns the events of all tables after a revision, in order, as far as the windows contain them.
    pub(crate) fn changes_after(&self, revision: Revision) -> Vec<(GroupResource, Arc<Event>)> {
        let state = &self.shared.state.lock().image;
        let mut changes = Vec::new();
        for (name, table) in state.tables.iter().filter(|(_, table)| table.changed() > revision) {
            changes.extend(table.retained_after(revision).map(|event| (name.clone(), event.clone())));
        }
        changes.sort_by_key(|(_, event)| event.revision);
        changes
    }

    /// Returns the revision of the latest write to the selected tables.
    pub(crate) fn last_change(&self, select: impl Fn(&GroupResource) -> bool) -> Revision {
        let state = &self.shared.state.lock().image;
        let selected = state.tables.iter().filter(|(name, _)| select(name));
        selected.map(|(_, table)| table.changed()).max().unwrap_or_default()
    }

    /// Returns the notifier of writes to a table.
    pub(crate) fn notifier(&self, table: &GroupResource) -> Arc<WriteNotifier> {
        self.shared.state.lock().image.table(table).notifier()
    }

    /// Removes a table without objects, with its events: lists and watches from earlier revisions are compacted.
    /// Returns false if watches still read its events.
    #[must_use]
    pub(crate) fn remove_table(&self, table: &GroupResource) -> bool {
        self.shared.state.lock().image.remove_table(table)
    }

    /// Returns the bytes of past states in memory that no window references: lists and watches have not sent them yet.
    pub(crate) fn past_bytes(&self) -> usize {
        self.shared.state.lock().image.past.get()
    }

    /// Returns the bytes of all objects.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.shared.state.lock().image.sizes.total()
    }

    /// Returns the bytes of past states that only the windows of tables reference.
    pub(crate) fn window_bytes(&self) -> usize {
        self.shared.state.lock().image.window_bytes
    }
}
