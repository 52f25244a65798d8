//! Counts the bytes that the values of a rendering hold.
//!
//! A rendering runs on one thread from its beginning to its end, and everything that it makes belongs to that thread.
//! So the count is one number for each thread: each holder adds its bytes when it is made and takes them away when it
//! is dropped. Who wants to know what one rendering holds compares with the number from before it.

use std::cell::{Cell, RefCell};
use std::rc::Weak;

/// A value that can contain itself, and is emptied at the end of a rendering.
pub(crate) trait Clear {
    /// Drops all that it holds.
    fn clear(&self);
}

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    static CHANGED: RefCell<Vec<Weak<dyn Clear>>> = const { RefCell::new(Vec::new()) };
}

/// Returns how many bytes the values of this thread hold.
pub(crate) fn held() -> usize {
    HELD.with(Cell::get)
}

/// Returns true if this thread holds more than the rendering on it may.
pub(crate) fn is_exhausted() -> bool {
    held() > LIMIT.with(Cell::get)
}

/// The bounds of a rendering, for as long as it takes.
pub(crate) struct Scope {
    limit: usize,
    changed: usize,
}

impl Scope {
    /// Allows this thread to hold this number of additional bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let limit = LIMIT.with(|limit| limit.replace(held().saturating_add(bytes)));
        Self { limit, changed: CHANGED.with(|maps| maps.borrow().len()) }
    }

    /// Returns how many bytes may still be held.
    pub(crate) fn room() -> usize {
        LIMIT.with(Cell::get).saturating_sub(held())
    }
}

impl Drop for Scope {
    /// Empties the maps that were changed meanwhile: one that contains itself would never be dropped.
    fn drop(&mut self) {
        LIMIT.with(|limit| limit.set(self.limit));
        let maps = CHANGED.with(|maps| maps.borrow_mut().split_off(self.changed));
        maps.iter().filter_map(Weak::upgrade).for_each(|map| map.clear());
    }
}

/// A number of bytes that count until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held(usize);

impl Held {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut held = Self(0);
        held.add(bytes);
        held
    }

    /// Counts more bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes);
        HELD.with(|held| held.set(held.get().saturating_add(bytes)));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A thread that ends has no count any more.
        let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(self.0)));
    }
}

/// Notes a map that was changed after it was made, so that it may contain itself.
pub(crate) fn changed(map: Weak<dyn Clear>) {
    CHANGED.with(|maps| maps.borrow_mut().push(map));
}

/// Returns roughly the bytes that a JSON value takes.
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
