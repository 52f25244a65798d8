//! Memory accounting for the values of a rendering.
//!
//! A rendering runs on a single thread, and all of its values stay on that thread, so the count is thread-local: each
//! owner of memory adds its bytes when it is created and subtracts them when it is dropped. The memory of a rendering
//! is the difference to the count before it.

use std::cell::{Cell, RefCell};
use std::rc::Weak;

/// A value that can contain itself and is cleared at the end of a rendering.
pub(crate) trait Clear {
    /// Drops its content.
    fn clear(&self);
}

thread_local! {
    static USED_BYTES: Cell<usize> = const { Cell::new(0) };
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    static CHANGED: RefCell<Vec<Weak<dyn Clear>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the number of bytes used by the values of this thread.
pub(crate) fn used_bytes() -> usize {
    USED_BYTES.with(Cell::get)
}

/// Returns true if this thread exceeds the limit of its rendering.
pub(crate) fn is_exhausted() -> bool {
    used_bytes() > LIMIT.with(Cell::get)
}

/// The memory limit during a rendering.
pub(crate) struct Scope {
    limit: usize,
    changed: usize,
}

impl Scope {
    /// Allows this thread to allocate this number of bytes in addition to the current ones.
    pub(crate) fn new(bytes: usize) -> Self {
        let limit = LIMIT.with(|limit| limit.replace(used_bytes().saturating_add(bytes)));
        Self { limit, changed: CHANGED.with(|maps| maps.borrow().len()) }
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn room() -> usize {
        LIMIT.with(Cell::get).saturating_sub(used_bytes())
    }
}

impl Drop for Scope {
    /// Clears the maps that were changed in the meantime, because a map that contains itself would never be dropped.
    fn drop(&mut self) {
        LIMIT.with(|limit| limit.set(self.limit));
        let maps = CHANGED.with(|maps| maps.borrow_mut().split_off(self.changed));
        maps.iter().filter_map(Weak::upgrade).for_each(|map| map.clear());
    }
}

/// A number of bytes, counted until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct MemoryCharge(usize);

impl MemoryCharge {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut charge = Self(0);
        charge.add(bytes);
        charge
    }

    /// Adds bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes);
        USED_BYTES.with(|used| used.set(used.get().saturating_add(bytes)));
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        // The thread-local count is already destroyed when a thread ends.
        let _ = USED_BYTES.try_with(|used| used.set(used.get().saturating_sub(self.0)));
    }
}

/// Registers a map that was changed after its creation, since it may contain itself.
pub(crate) fn changed(map: Weak<dyn Clear>) {
    CHANGED.with(|maps| maps.borrow_mut().push(map));
}

/// Estimates the size of a JSON value in bytes.
pub(crate) fn size_of_json(value: &serde_json::Value) -> usize {
    const VALUE: usize = 96;
    VALUE
        + match value {
            serde_json::Value::String(text) => text.len(),
            serde_json::Value::Array(items) => items.iter().map(size_of_json).sum(),
            serde_json::Value::Object(fields) => {
                fields.iter().map(|(key, value)| key.len() + size_of_json(value)).sum()
            }
            _ => 0,
        }
}
