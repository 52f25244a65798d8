//! The bytes of past states: entries that are neither current nor in a window, but still in use, by lists that have not
//! sent them yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the past states that are in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct PastBytes(Arc<AtomicUsize>);

impl PastBytes {
    /// Adds bytes until the result is dropped.
    pub(super) fn add(&self, bytes: usize) -> PastState {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        PastState { bytes, all: self.clone() }
    }

    /// Returns the number of bytes.
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The part of an entry in the bytes of all past states.
#[derive(Debug)]
pub(crate) struct PastState {
    bytes: usize,
    all: PastBytes,
}

impl PastState {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for PastState {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
