//! The recorder of a store: a thread that appends queued writes to a file.

use super::file::RecordingFile;
use super::{RecordingContext, RecordingError};
use crate::storage::record;
use crate::storage::recorded::{Origin, RecordingEnd};
use crate::storage::recorder_queue::{QueuedRecord, RecorderQueue};
use crate::storage::{Image, Revision, Store};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{fs, io};

/// A recorder. Its thread runs until the recorder is dropped, and then writes the queue and the end of the file.
#[derive(Debug)]
pub(in crate::storage) struct Recorder {
    queue: Arc<RecorderQueue>,
    thread: Option<JoinHandle<()>>,
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
    let ended = match end {
        Ok(end) => file.end(end).map(|()| end),
        Err(error) => Err(error),
    };
    let path = file.path.display();
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
