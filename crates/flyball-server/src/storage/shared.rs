//! The state shared by the store and its journal thread: the objects, and the writes pending on disk.

use super::past::PastBytes;
use super::recorded::Origin;
use super::recorder_queue::RecorderQueue;
use super::sizes::Sizes;
use super::table::{Limits, Table};
use super::{Change, Entry, Error, Revision, WriteNotifier};
use flyball_core::{GroupResource, ObjectKey};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot, watch};

/// Approximate size of a batch, in bytes.
const BATCH: usize = 16 << 20;

/// Maximum number of removed tables whose last revision is remembered.
const MAX_REMOVED_TABLES: usize = 1000;

/// All objects with their latest events. Copies are copy-on-write.
#[derive(Debug)]
pub(crate) struct Image {
    pub(super) revision: Revision,
    /// The oldest known revision.
    start: Revision,
    pub(super) tables: BTreeMap<GroupResource, Table>,
    /// The revisions of removed tables, before which their events are not known.
    removed: BTreeMap<GroupResource, Revision>,
    pub(super) sizes: Sizes,
    /// Bytes of the objects that only the windows reference.
    pub(super) window_bytes: usize,
    /// Bytes of past states that no window references.
    pub(super) past: PastBytes,
}

impl Image {
    pub(super) fn new(start: Revision, tables: BTreeMap<GroupResource, Table>) -> Self {
        let mut sizes = Sizes::default();
        for entry in tables.values().flat_map(Table::entries) {
            sizes.replace(&entry.key, 0, entry.size());
        }
        let past = PastBytes::default();
        Self { revision: start, start, tables, removed: BTreeMap::new(), sizes, window_bytes: 0, past }
    }

    /// Copies the image.
    pub(crate) fn image(&self) -> Self {
        let tables = self.tables.iter().map(|(name, table)| (name.clone(), table.image())).collect();
        let Self { revision, start, tables: _, removed, sizes, window_bytes, past } = self;
        Self {
            revision: *revision,
            start: *start,
            tables,
            removed: removed.clone(),
            sizes: sizes.clone(),
            window_bytes: *window_bytes,
            past: past.clone(),
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns all objects.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&GroupResource, &Arc<Entry>)> {
        self.tables.iter().flat_map(|(name, table)| table.entries().map(move |entry| (name, entry)))
    }

    /// Returns the oldest known revision of a table that does not exist.
    pub(super) fn start_of(&self, table: &GroupResource) -> Revision {
        self.removed.get(table).copied().unwrap_or_default().max(self.start)
    }

    /// Rejects a compacted revision of a table that does not exist.
    pub(super) fn reaches(&self, table: &GroupResource, revision: Revision) -> Result<(), Error> {
        let oldest = self.start_of(table);
        if revision < oldest { Err(Error::Compacted { requested: revision, oldest }) } else { Ok(()) }
    }

    /// Returns a table, which is created if it does not exist.
    pub(super) fn table(&mut self, name: &GroupResource) -> &mut Table {
        if !self.tables.contains_key(name) {
            let start = self.start_of(name);
            self.removed.remove(name);
            self.tables.insert(name.clone(), Table::new(start));
        }
        self.tables.get_mut(name).expect("just made")
    }

    /// Removes a table with its events, unless it has objects. Its earlier revisions are compacted. Returns false if
    /// watches still read its events.
    pub(super) fn remove_table(&mut self, name: &GroupResource) -> bool {
        let Some(table) = self.tables.get_mut(name).filter(|table| table.is_empty()) else { return true };
        if table.is_watched() {
            return false;
        }
        self.window_bytes -= table.window_bytes();
        while table.window_bytes() > 0 {
            table.forget_event(&self.past);
        }
        self.tables.remove(name);
        self.removed.insert(name.clone(), self.revision);
        if self.removed.len() > MAX_REMOVED_TABLES {
            let oldest = self.removed.iter().min_by_key(|(_, revision)| **revision);
            if let Some((name, revision)) = oldest.map(|(name, revision)| (name.clone(), *revision)) {
                self.removed.remove(&name);
                self.start = self.start.max(revision);
            }
        }
        true
    }

    /// Removes events of the largest windows until they fit together.
    fn shrink_windows(&mut self, limit: usize) {
        while self.window_bytes > limit {
            let Some(largest) = self.tables.values_mut().max_by_key(|table| table.window_bytes()) else { return };
            let before = largest.window_bytes();
            if before == 0 {
                return;
            }
            largest.forget_event(&self.past);
            self.window_bytes -= before - largest.window_bytes();
        }
    }

    /// Applies a change, and returns the notifier to call after the lock is released, since woken watches read the
    /// store.
    #[must_use]
    fn apply(&mut self, table: &GroupResource, key: &ObjectKey, change: Change, limits: &Limits) -> Arc<WriteNotifier> {
        self.revision = change.entry().revision;
        let past = self.past.clone();
        let table = self.table(table);
        let after = if let Change::Put(entry) = &change { entry.size() } else { 0 };
        let window_before = table.window_bytes();
        let before = table.apply(key, change, limits, &past);
        let (window_after, notifier) = (table.window_bytes(), table.notifier());
        self.window_bytes = self.window_bytes + window_after - window_before;
        self.sizes.replace(key, before.as_ref().map_or(0, Entry::size), after);
        self.shrink_windows(limits.all_bytes);
        notifier
    }
}

#[derive(Debug)]
pub(super) struct SharedStore {
    pub(super) state: Mutex<State>,
    limits: Limits,
    /// Wakes the journal's thread.
    wake: Condvar,
    /// Number of finished batches.
    flushes: watch::Sender<u64>,
    /// Notifies waiters for a revision, of any table.
    written: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    /// The committed image.
    pub(super) image: Image,
    /// The pending writes to disk, if there is a journal.
    staged: Option<StagedWrites>,
    /// Receives each committed write, if the store is recorded.
    recorder: Option<Arc<RecorderQueue>>,
}

#[derive(Debug)]
struct StagedWrites {
    /// The last assigned revision.
    revision: Revision,
    queue: VecDeque<Write>,
    /// The keys of staged writes; each key has at most one.
    keys: BTreeSet<(GroupResource, ObjectKey)>,
    is_closing: bool,
    /// The error that stopped the journal.
    broken: Option<Error>,
}

/// A write that is pending on disk.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) table: GroupResource,
    pub(super) change: Change,
    /// The writer that waits for the result.
    done: Option<oneshot::Sender<Result<(), Error>>>,
}

/// The state of a write after [`SharedStore::begin`].
pub(super) enum WriteState {
    /// The write is committed.
    Done(Arc<Entry>),
    /// The write is staged.
    StagedWrites(Arc<Entry>, oneshot::Receiver<Result<(), Error>>),
    /// Another write of the same object is staged, and must be awaited.
    Busy(watch::Receiver<u64>),
}

impl SharedStore {
    pub(super) fn new(image: Image, limits: Limits) -> Self {
        let state = Mutex::new(State { image, staged: None, recorder: None });
        #[expect(clippy::disallowed_methods, reason = "only a journal flushes, and none is simulated")]
        let flushes = watch::Sender::new(0);
        Self { state, limits, wake: Condvar::new(), flushes, written: Notify::new() }
    }

    /// Waits for the next write.
    pub(super) fn written(&self) -> Notified<'_> {
        self.written.notified()
    }

    pub(super) fn image(&self) -> Image {
        self.state.lock().image.image()
    }

    /// Commits a write, or stages it for the journal.
    pub(super) fn begin<M: FnOnce(Revision) -> Result<Change, Error>>(
        &self,
        table: &GroupResource,
        key: &ObjectKey,
        expected: Option<&Arc<Entry>>,
        make: &mut Option<M>,
    ) -> Result<WriteState, Error> {
        let mut state = self.state.lock();
        let State { image, staged, recorder } = &mut *state;
        if let Some(staged) = staged {
            if let Some(broken) = &staged.broken {
                return Err(broken.clone());
            }
            if staged.keys.contains(&(table.clone(), key.clone())) {
                return Ok(WriteState::Busy(self.flushes.subscribe()));
            }
        }
        let current = image.tables.get(table).and_then(|table| match expected {
            // A quarantined object does not block a create, and can be deleted.
            Some(_) => table.get(key).or_else(|| table.quarantined(key)),
            None => table.get(key),
        });
        if current.map(|entry| entry.revision) != expected.map(|entry| entry.revision) {
            return Err(Error::Changed);
        }
        let make = make.take().expect("a write is made once");
        let make = |revision| {
            let change = make(revision)?;
            if let Change::Put(entry) = &change {
                image.sizes.check(key, expected, entry, self.limits.stored_bytes)?;
            }
            Ok(change)
        };
        let Some(staged) = staged else {
            let change = make(image.revision + 1)?;
            let entry = change.entry().clone();
            recorder.iter().for_each(|recorder| recorder.push_change(table, &change));
            let notifier = image.apply(table, key, change, &self.limits);
            drop(state);
            notifier.notify();
            self.written.notify_waiters();
            return Ok(WriteState::Done(entry));
        };
        let change = make(staged.revision + 1)?;
        staged.revision += 1;
        let (entry, (done, committed)) = (change.entry().clone(), oneshot::channel());
        staged.keys.insert((table.clone(), key.clone()));
        staged.queue.push_back(Write { table: table.clone(), change, done: Some(done) });
        self.wake.notify_one();
        Ok(WriteState::StagedWrites(entry, committed))
    }

    /// Stages all later writes for the journal; returns those after a revision, which are not on disk.
    pub(super) fn stage_from_now_on(&self, revision: Revision) -> Vec<Write> {
        let State { image, staged, .. } = &mut *self.state.lock();
        let mut since: Vec<Write> = Vec::new();
        for (name, table) in &image.tables {
            let events = table.events_after(revision, usize::MAX).unwrap_or_default();
            since.extend(events.into_iter().map(|event| {
                let after = event.after.clone();
                let change = if event.removed { Change::Remove(after) } else { Change::Put(after) };
                Write { table: name.clone(), change, done: None }
            }));
        }
        since.sort_by_key(|write| write.change.entry().revision);
        *staged = Some(StagedWrites {
            revision: image.revision,
            queue: VecDeque::new(),
            keys: BTreeSet::new(),
            is_closing: false,
            broken: None,
        });
        since
    }

    /// Waits for writes; `None` when the journal ends.
    pub(super) fn next_batch(&self) -> Option<Vec<Write>> {
        let idle = |state: &mut State| {
            state.staged.as_ref().is_some_and(|staged| staged.queue.is_empty() && !staged.is_closing)
        };
        let mut state = self.state.lock();
        self.wake.wait_while(&mut state, idle);
        let queue = &mut state.staged.as_mut()?.queue;
        let mut bytes = 0;
        let fits = queue.iter().take_while(|write| {
            let before = bytes;
            bytes += write.change.entry().body.len();
            before < BATCH
        });
        let count = fits.count();
        (count > 0).then(|| queue.drain(..count).collect())
    }

    /// Commits writes that are on disk, or drops those that failed, and notifies their writers.
    pub(super) fn finish(&self, batch: Vec<Write>, result: Result<(), Error>) {
        let (mut waiting, mut notifiers) = (Vec::with_capacity(batch.len()), BTreeMap::new());
        {
            let State { image, staged, recorder } = &mut *self.state.lock();
            for Write { table, change, done } in batch {
                let key = change.entry().key.clone();
                if result.is_ok() {
                    recorder.iter().for_each(|recorder| recorder.push_change(&table, &change));
                    notifiers.insert(table.clone(), image.apply(&table, &key, change, &self.limits));
                }
                if let Some(staged) = staged {
                    staged.keys.remove(&(table, key));
                }
                waiting.extend(done);
            }
        }
        notifiers.values().for_each(|notifier| notifier.notify());
        self.written.notify_waiters();
        self.flushes.send_modify(|count| *count += 1);
        for done in waiting {
            // The writer may have been dropped.
            let _ = done.send(result.clone());
        }
    }

    /// Returns all objects, and the queue of all writes from now on.
    pub(super) fn begin_recording(&self) -> (Image, Arc<RecorderQueue>) {
        let mut state = self.state.lock();
        let queue = Arc::<RecorderQueue>::default();
        state.recorder = Some(queue.clone());
        (state.image.image(), queue)
    }

    pub(super) fn end_recording(&self) {
        self.state.lock().recorder = None;
    }

    /// Records the origin of a committed write.
    pub(super) fn push_origin(&self, origin: &Arc<Origin>) {
        let recorder = self.state.lock().recorder.clone();
        recorder.iter().for_each(|recorder| recorder.push_origin(origin));
    }

    /// Rejects all staged and later writes.
    pub(super) fn reject_writes(&self, why: Error) {
        let waiting: Vec<Write> = {
            let mut state = self.state.lock();
            let Some(staged) = &mut state.staged else { return };
            staged.broken.get_or_insert_with(|| why.clone());
            staged.queue.drain(..).collect()
        };
        self.finish(waiting, Err(why));
    }

    /// Stops the journal's thread after it has written its queue.
    pub(super) fn close(&self) {
        if let Some(staged) = &mut self.state.lock().staged {
            staged.is_closing = true;
        }
        self.wake.notify_one();
    }
}
