//! The state that the store and the thread of its journal share: the objects, and the writes on their way to disk.

use super::table::{Limits, Table};
use super::{Change, Entry, Error, Revision, WriteNotifier};
use flyball_core::{GroupResource, ObjectKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot, watch};

/// Bytes that are put on disk at a time, roughly.
const BATCH: usize = 16 << 20;

/// All objects with their latest events. One that was taken of another costs nothing until either is written to.
#[derive(Debug)]
pub(crate) struct Image {
    pub(super) revision: Revision,
    /// Nothing is known of what was before.
    pub(super) start: Revision,
    pub(super) tables: BTreeMap<GroupResource, Table>,
}

impl Image {
    pub(super) fn empty(start: Revision) -> Self {
        Self { revision: start, start, tables: BTreeMap::new() }
    }

    /// Takes an image of the image.
    pub(crate) fn image(&self) -> Self {
        let tables = self.tables.iter().map(|(name, table)| (name.clone(), table.image())).collect();
        Self { revision: self.revision, start: self.start, tables }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns all objects.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&GroupResource, &Arc<Entry>)> {
        self.tables.iter().flat_map(|(name, table)| table.entries().map(move |entry| (name, entry)))
    }

    /// Rejects a revision of which nothing is known.
    pub(super) fn reaches(&self, revision: Revision) -> Result<(), Error> {
        if revision < self.start { Err(Error::Compacted { asked: revision, oldest: self.start }) } else { Ok(()) }
    }

    /// Carries a change out, and returns the notifier to call once the store is free, as whoever it wakes comes to read.
    #[must_use]
    fn apply(&mut self, table: &GroupResource, key: &ObjectKey, change: Change, limits: &Limits) -> Arc<WriteNotifier> {
        if !self.tables.contains_key(table) {
            self.tables.insert(table.clone(), Table::new(self.start));
        }
        self.revision = change.entry().revision;
        let table = self.tables.get_mut(table).expect("just made");
        table.apply(key, change, limits);
        table.notifier()
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    limits: Limits,
    /// Wakes the journal's thread.
    wake: Condvar,
    /// Counts the batches that are done with.
    flushes: watch::Sender<u64>,
    /// Wakes those who wait for a revision, whatever the table.
    written: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    /// The image that everybody sees.
    pub(super) image: Image,
    /// The write that is on its way to disk, if there is one.
    staged: Option<Staged>,
}

#[derive(Debug)]
struct Staged {
    /// The last revision that was given out.
    revision: Revision,
    queue: VecDeque<Write>,
    /// The keys that are being written: nothing else is, in their place.
    keys: BTreeSet<(GroupResource, ObjectKey)>,
    is_closing: bool,
    /// Why nothing is written any more.
    broken: Option<Error>,
}

/// A write on its way to disk.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) table: GroupResource,
    pub(super) change: Change,
    /// The writer that waits for it.
    done: Option<oneshot::Sender<Result<(), Error>>>,
}

/// The state of a write that was begun.
pub(super) enum Begun {
    /// It is written.
    Done(Arc<Entry>),
    /// It is on its way.
    Staged(Arc<Entry>, oneshot::Receiver<Result<(), Error>>),
    /// Another one of the same object is on its way; it has to be seen what becomes of it.
    Busy(watch::Receiver<u64>),
}

impl Shared {
    pub(super) fn new(image: Image, limits: Limits) -> Self {
        let state = Mutex::new(State { image, staged: None });
        #[expect(clippy::disallowed_methods, reason = "only a journal flushes, and none is simulated")]
        let flushes = watch::Sender::new(0);
        Self { state, limits, wake: Condvar::new(), flushes, written: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the store")
    }

    /// Waits for the next write.
    pub(super) fn written(&self) -> Notified<'_> {
        self.written.notified()
    }

    pub(super) fn image(&self) -> Image {
        self.lock().image.image()
    }

    /// Carries a write out, or hands it to the journal.
    pub(super) fn begin<M: FnOnce(Revision) -> Result<Change, Error>>(
        &self,
        table: &GroupResource,
        key: &ObjectKey,
        expected: Option<&Arc<Entry>>,
        make: &mut Option<M>,
    ) -> Result<Begun, Error> {
        let mut state = self.lock();
        let State { image, staged } = &mut *state;
        if let Some(staged) = staged {
            if let Some(broken) = &staged.broken {
                return Err(broken.clone());
            }
            if staged.keys.contains(&(table.clone(), key.clone())) {
                return Ok(Begun::Busy(self.flushes.subscribe()));
            }
        }
        let current = image.tables.get(table).and_then(|table| match expected {
            // What cannot be read is in nobody's way, and can be removed.
            Some(_) => table.get(key).or_else(|| table.quarantined(key)),
            None => table.get(key),
        });
        if current.map(|entry| entry.revision) != expected.map(|entry| entry.revision) {
            return Err(Error::Changed);
        }
        let make = make.take().expect("a write is made once");
        let Some(staged) = staged else {
            let change = make(image.revision + 1)?;
            let entry = change.entry().clone();
            let notifier = image.apply(table, key, change, &self.limits);
            drop(state);
            notifier.notify();
            self.written.notify_waiters();
            return Ok(Begun::Done(entry));
        };
        let change = make(staged.revision + 1)?;
        staged.revision += 1;
        let (entry, (done, kept)) = (change.entry().clone(), oneshot::channel());
        staged.keys.insert((table.clone(), key.clone()));
        staged.queue.push_back(Write { table: table.clone(), change, done: Some(done) });
        self.wake.notify_one();
        Ok(Begun::Staged(entry, kept))
    }

    /// Sends writes to disk from now on; returns those after a revision, which are not there yet.
    pub(super) fn stage_from_now_on(&self, revision: Revision) -> Vec<Write> {
        let State { image, staged } = &mut *self.lock();
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
        *staged = Some(Staged {
            revision: image.revision,
            queue: VecDeque::new(),
            keys: BTreeSet::new(),
            is_closing: false,
            broken: None,
        });
        since
    }

    /// Waits for writes; `None` once there will be no more.
    pub(super) fn next_batch(&self) -> Option<Vec<Write>> {
        let idle = |state: &mut State| {
            state.staged.as_ref().is_some_and(|staged| staged.queue.is_empty() && !staged.is_closing)
        };
        let mut state = self.wake.wait_while(self.lock(), idle).expect("nothing panics while it holds the store");
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

    /// Shows writes that are on disk, or forgets those that are not, and tells who waits.
    pub(super) fn finish(&self, batch: Vec<Write>, kept: Result<(), Error>) {
        let (mut waiting, mut notifiers) = (Vec::with_capacity(batch.len()), BTreeMap::new());
        {
            let State { image, staged } = &mut *self.lock();
            for Write { table, change, done } in batch {
                let key = change.entry().key.clone();
                if kept.is_ok() {
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
            // Who hung up does not want to know.
            let _ = done.send(kept.clone());
        }
    }

    /// Takes no more writes, and refuses those that wait.
    pub(super) fn break_off(&self, why: Error) {
        let waiting: Vec<Write> = {
            let mut state = self.lock();
            let Some(staged) = &mut state.staged else { return };
            staged.broken.get_or_insert_with(|| why.clone());
            staged.queue.drain(..).collect()
        };
        self.finish(waiting, Err(why));
    }

    /// Has the journal's thread end once it has written what there is.
    pub(super) fn close(&self) {
        if let Some(staged) = &mut self.lock().staged {
            staged.is_closing = true;
        }
        self.wake.notify_one();
    }
}
