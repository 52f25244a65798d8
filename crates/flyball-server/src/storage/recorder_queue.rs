//! The queue of a recorder: committed writes that are not in its file yet.
//!
//! It never waits: if the disk is too slow, the queue ends, and with it the recording.

use super::Change;
use super::recorded::{Origin, RecordingEnd};
use flyball_core::GroupResource;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of bytes of writes that wait for the disk.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Bytes of a queued write beside its object.
const QUEUED_BYTES: usize = 512;

/// The writes that are not in the file yet.
#[derive(Debug, Default)]
pub(super) struct RecorderQueue {
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
pub(super) enum QueuedRecord {
    Change(GroupResource, Change),
    Origin(Arc<Origin>),
}

impl RecorderQueue {
    /// Adds a committed write. The caller holds the lock of the store, so that writes are in order.
    pub(super) fn push_change(&self, table: &GroupResource, change: &Change) {
        let bytes = change.entry().body.len() + QUEUED_BYTES;
        self.push(bytes, || QueuedRecord::Change(table.clone(), change.clone()));
    }

    /// Adds the origin of a write that was added before.
    pub(super) fn push_origin(&self, origin: &Arc<Origin>) {
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
    pub(super) fn stop(&self, end: RecordingEnd) {
        self.state.lock().end.get_or_insert(end);
        self.wake.notify_one();
    }

    /// Waits for records; returns the reason if there are no more.
    pub(super) fn next(&self) -> Result<VecDeque<QueuedRecord>, RecordingEnd> {
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
    pub(super) fn clear(&self) {
        drop(std::mem::take(&mut self.state.lock().queue));
    }
}
