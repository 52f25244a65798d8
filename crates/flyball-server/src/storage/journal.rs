//! The journal, which stores writes on disk.
//!
//! Receives writes in the order of their revisions and reports when they are on disk. One thread writes all writes that
//! arrived in the meantime as one frame, so that many writers share one sync. A log that has grown beyond the size of
//! the objects is replaced by a snapshot, which another thread writes while the next log continues.
//!
//! It does not depend on HTTP or kinds. Invariant: a write is not visible before it is on disk, and
//! [`Journal::recover`] finds every acknowledged write after any crash of the process or the machine.

mod compact;
mod log;
mod recover;

#[cfg(test)]
mod tests;

pub(crate) use recover::RecoveredContent;

use super::frame::FRAME;
use super::{Error, Image, SharedStore, Write, record};
use crate::data_dir::{DataDir, DataDirContext, DataDirError};
use log::{Log, WriteError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Maximum number of doublings of the wait for the next snapshot after failures.
const MAX_DOUBLINGS: u32 = 3;

/// Maximum size of the buffer that is kept for the next frame, in bytes.
const RETAINED_BUFFER_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Log,
    Snapshot,
}

fn file_name(kind: Kind, number: u64) -> String {
    let ending = match kind {
        Kind::Log => "log",
        Kind::Snapshot => "snapshot",
    };
    format!("{number:012}.{ending}")
}

/// A journal. Its thread runs until the journal is dropped, and then writes the queue to disk.
#[derive(Debug)]
pub(super) struct Journal {
    shared: Arc<SharedStore>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Recovers a directory.
    pub(crate) fn recover(directory: &DataDir) -> Result<RecoveredContent, DataDirError> {
        recover::recover(directory.path(), directory.progress())
    }

    /// Continues after recovery, and writes the changes since then.
    pub(super) fn begin(
        directory: DataDir,
        recovered: &RecoveredContent,
        first: &[Write],
        shared: Arc<SharedStore>,
    ) -> Result<Self, DataDirError> {
        let number = recovered.tail.number;
        let path = directory.path().join(file_name(Kind::Log, number));
        let log = match recovered.tail.log.clone() {
            Some((header, length)) => Log::resume(&path, header, length),
            None => Log::create(&path, number),
        };
        let mut writer = Writer {
            log: log.during("write", &path)?,
            number,
            snapshot: recovered.snapshot,
            buffer: Vec::new(),
            compaction: None,
            is_owed: recovered.tail.follows_others,
            failures: 0,
            next: 0,
            directory,
        };
        if !first.is_empty() {
            writer
                .write(first)
                .map_err(|(WriteError::Rejected(error) | WriteError::Broken(error))| error)
                .during("write", &path)?;
        }
        let thread = {
            let shared = shared.clone();
            thread::Builder::new().name("flyball-journal".into()).spawn(move || writer.run(&shared))
        };
        Ok(Self { shared, thread: Some(thread.during("start a thread for", &path)?) })
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Writer {
    directory: DataDir,
    log: Log,
    number: u64,
    /// Size of the last snapshot.
    snapshot: u64,
    buffer: Vec<u8>,
    compaction: Option<JoinHandle<io::Result<u64>>>,
    /// True if the snapshot of this log is still pending.
    is_owed: bool,
    /// Number of consecutive failed attempts.
    failures: u32,
    /// Length of the log at which the next attempt is due.
    next: u64,
}

impl Writer {
    fn run(mut self, shared: &SharedStore) {
        // Waiters are released even if this thread panics.
        let _ends = CloseGuard(shared, self.directory.path().to_owned());
        while let Some(batch) = shared.next_batch() {
            match self.write(&batch) {
                Ok(()) => shared.finish(batch, Ok(())),
                Err(failure) => {
                    let rejected = write_error(self.directory.path(), &failure);
                    tracing::error!(error = %rejected, "write rejected");
                    if let WriteError::Broken(_) = failure {
                        shared.reject_writes(rejected.clone());
                    }
                    shared.finish(batch, Err(rejected));
                }
            }
            self.compact(shared);
        }
        if let Some(compaction) = self.compaction.take() {
            let _ = compaction.join();
        }
        self.log.close();
    }

    fn write(&mut self, batch: &[Write]) -> Result<(), WriteError> {
        self.buffer.clear();
        self.buffer.resize(FRAME, 0);
        for write in batch {
            record::change(&mut self.buffer, &write.table, &write.change);
        }
        let done = self.log.append(&mut self.buffer);
        self.buffer.truncate(RETAINED_BUFFER_BYTES);
        self.buffer.shrink_to(RETAINED_BUFFER_BYTES);
        done
    }

    /// Replaces the logs by a snapshot once they are large enough.
    ///
    /// Each snapshot starts a new log, and the next snapshot starts only after the previous one is complete: if it
    /// fails, the same log continues.
    fn compact(&mut self, shared: &SharedStore) {
        if let Some(done) = self.compaction.take_if(|compaction| compaction.is_finished()) {
            match done.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked"))) {
                Ok(size) => {
                    self.snapshot = size;
                    (self.is_owed, self.failures, self.next) = (false, 0, 0);
                }
                Err(error) => self.defer_snapshot("failed to write a snapshot", &error),
            }
        }
        if self.compaction.is_some() || self.log.length < self.next {
            return;
        }
        if !self.is_owed {
            if self.log.length < self.interval() {
                return;
            }
            let number = self.number + 1;
            match Log::create(&self.directory.path().join(file_name(Kind::Log, number)), number) {
                Ok(log) => std::mem::replace(&mut self.log, log).close(),
                Err(error) => return self.defer_snapshot("failed to begin a new log", &error),
            }
            (self.number, self.is_owed, self.next) = (number, true, 0);
        }
        let (folder, number, image): (_, _, Image) = (self.directory.path().to_owned(), self.number, shared.image());
        let spawned = thread::Builder::new()
            .name("flyball-snapshot".into())
            .spawn(move || compact::compact(&folder, number, &image));
        match spawned {
            Ok(compaction) => self.compaction = Some(compaction),
            Err(error) => self.defer_snapshot("failed to start a snapshot", &error),
        }
    }

    /// Returns the growth of a log after which a snapshot is written.
    fn interval(&self) -> u64 {
        self.snapshot.max(self.directory.compact_after())
    }

    /// Delays the next attempt until the log has grown; the delay increases with each failure.
    fn defer_snapshot(&mut self, what: &str, error: &io::Error) {
        let wait = self.interval() << self.failures.min(MAX_DOUBLINGS);
        self.failures += 1;
        self.next = self.log.length + wait;
        let log = file_name(Kind::Log, self.number);
        tracing::error!(%error, log, failures = self.failures, "{what}: writes continue in the current log; next attempt after {wait} bytes");
    }
}

fn write_error(path: &Path, failure: &WriteError) -> Error {
    let (error, more) = match failure {
        WriteError::Rejected(error) => (error, ""),
        WriteError::Broken(error) => (error, "; writes are rejected until the server restarts"),
    };
    Error::NotKept { why: format!("failed to write to data directory {}: {error}{more}", path.display()).into() }
}

struct CloseGuard<'s>(&'s SharedStore, PathBuf);

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        let why = format!("data directory {} is closed for writes", self.1.display());
        self.0.reject_writes(Error::NotKept { why: why.into() });
    }
}
