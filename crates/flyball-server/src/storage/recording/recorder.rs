//! The recorder of a store: a queue of writes, and a thread that appends them to a file.

use super::file::RecordingFile;
use super::{Origin, RecordingContext, RecordingEnd, RecordingError};
use crate::storage::journal::record;
use crate::storage::{Change, Image, Revision, Store};
use flyball_core::GroupResource;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{fs, io};

/// Maximum number of bytes of writes that wait for the disk.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Bytes of a queued write beside its object.
const QUEUED_BYTES: usize = 512;

/// A recorder. Its thread runs until the recorder is dropped, and then writes the queue and the end of the file.
#[derive(Debug)]
pub(in crate::storage) struct Recorder {
    queue: Arc<RecorderQueue>,
    thread: Option<JoinHandle<()>>,
}

/// The writes that are not in the file yet.
#[derive(Debug, Default)]
pub(in crate::storage) struct RecorderQueue {
    state: Mutex<QueueState>,
    /// Wakes the thread.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    queue: VecDeque<QueuedRecord>,
    bytes: usize,
    /// Set when no more records are accepted.
    end: Option<RecordingEnd>,
}

#[derive(Debug)]
enum QueuedRecord {
    Change(GroupResource, Change),
    Origin(Arc<Origin>),
}

impl RecorderQueue {
    /// Adds a committed write. The caller holds the lock of the store, so that writes are in order.
    pub(in crate::storage) fn push_change(&self, table: &GroupResource, change: &Change) {
        let bytes = change.entry().body.len() + QUEUED_BYTES;
        self.push(bytes, || QueuedRecord::Change(table.clone(), change.clone()));
    }

    /// Adds the origin of a write that was added before.
    pub(in crate::storage) fn push_origin(&self, origin: &Arc<Origin>) {
        self.push(QUEUED_BYTES, || QueuedRecord::Origin(origin.clone()));
    }

    fn push(&self, bytes: usize, record: impl FnOnce() -> QueuedRecord) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        if state.bytes + bytes > MAX_QUEUED_BYTES {
            state.end = Some(RecordingEnd::Overload);
        } else {
            state.bytes += bytes;
            state.queue.push_back(record());
        }
        self.wake.notify_one();
    }

    /// Rejects further records.
    fn stop(&self, end: RecordingEnd) {
        self.state.lock().end.get_or_insert(end);
        self.wake.notify_one();
    }

    /// Waits for records; returns the reason if there are no more.
    fn next(&self) -> Result<VecDeque<QueuedRecord>, RecordingEnd> {
        let mut state = self.state.lock();
        self.wake.wait_while(&mut state, |state| state.queue.is_empty() && state.end.is_none());
        state.bytes = 0;
        let records = std::mem::take(&mut state.queue);
        match state.end {
            Some(end) if records.is_empty() => Err(end),
            _ => Ok(records),
        }
    }

    /// Drops all records.
    fn clear(&self) {
        drop(std::mem::take(&mut self.state.lock().queue));
    }
}

impl Recorder {
    /// Writes all objects, and starts the thread.
    fn begin(mut file: RecordingFile, image: Image, queue: Arc<RecorderQueue>) -> Result<Self, RecordingError> {
        let path = file.path.clone();
        if !write_objects(&mut file, &image).during("write", &path)? {
            return Err(RecordingError::TooSmall { limit: file.limit });
        }
        let first = image.revision();
        drop(image);
        let shared = queue.clone();
        let thread = thread::Builder::new().name("flyball-recorder".into()).spawn(move || run(file, &shared, first));
        Ok(Self { queue, thread: Some(thread.during("start a thread for", &path)?) })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.queue.stop(RecordingEnd::Closed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns false if the objects do not fit.
fn write_objects(file: &mut RecordingFile, image: &Image) -> io::Result<bool> {
    let mut count = 0;
    for (table, entry) in image.entries() {
        if !file.add(|out| record::put(out, table, entry))? {
            return Ok(false);
        }
        count += 1;
    }
    let has_ended = file.add(|out| record::end(out, image.revision(), count))?;
    file.flush()?;
    Ok(has_ended)
}

/// Appends records until the queue ends or the file is full.
fn run(mut file: RecordingFile, queue: &RecorderQueue, first: Revision) {
    let mut last = first;
    let end = loop {
        let records = match queue.next() {
            Ok(records) => records,
            Err(end) => break Ok(end),
        };
        match append(&mut file, &records, &mut last) {
            Ok(true) => {}
            Ok(false) => break Ok(RecordingEnd::Limit),
            Err(error) => break Err(error),
        }
    };
    // Later writes are not queued.
    queue.stop(RecordingEnd::Closed);
    queue.clear();
    let path = file.path.display();
    let ended = match end {
        Ok(end) => file.end(end).map(|()| end),
        Err(error) => Err(error),
    };
    match ended {
        Ok(RecordingEnd::Closed | RecordingEnd::Open) => {}
        Ok(RecordingEnd::Limit) => tracing::warn!(
            %path,
            limit = file.limit,
            last_revision = last,
            "the recording has reached its limit and ends; the cluster continues. To record more, start it with a larger --record-limit"
        ),
        Ok(RecordingEnd::Overload) => tracing::warn!(
            %path,
            last_revision = last,
            "the recording ends, since the disk is slower than the writes; the cluster continues"
        ),
        Err(error) => tracing::warn!(
            %path,
            %error,
            last_revision = last,
            "the recording ends, since it cannot be written; the cluster continues"
        ),
    }
}

/// Appends records; returns false at the limit.
fn append(file: &mut RecordingFile, records: &VecDeque<QueuedRecord>, last: &mut Revision) -> io::Result<bool> {
    for queued in records {
        let is_added = file.add(|out| match queued {
            QueuedRecord::Change(table, change) => record::change(out, table, change),
            QueuedRecord::Origin(origin) => record::origin(out, origin),
        })?;
        if !is_added {
            return Ok(false);
        }
        if let QueuedRecord::Change(_, change) = queued {
            *last = change.entry().revision;
        }
    }
    file.flush()?;
    Ok(true)
}

impl Store {
    /// Records all objects, and all further writes, in a new file of at most `limit` bytes.
    pub(crate) fn record(&self, path: &Path, limit: u64) -> Result<(), RecordingError> {
        let mut recorder = self.recorder.lock();
        if recorder.is_some() {
            return Err(RecordingError::Recorded);
        }
        let file = RecordingFile::create(path, limit)?;
        let (image, queue) = self.shared.begin_recording();
        match Recorder::begin(file, image, queue) {
            Ok(begun) => *recorder = Some(begun),
            Err(error) => {
                self.shared.end_recording();
                // It was created here, and is incomplete.
                let _ = fs::remove_file(path);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records the origin of a write that was stored, if the store is recorded.
    pub(crate) fn record_origin(&self, origin: &Arc<Origin>) {
        self.shared.push_origin(origin);
    }

    /// Ends the recording, if there is one.
    pub(in crate::storage) fn end_recording(&self) {
        self.shared.end_recording();
        drop(self.recorder.lock().take());
    }
}
