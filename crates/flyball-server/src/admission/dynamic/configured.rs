//! The current configuration of webhooks and policies.

use crate::kinds::Kind;
use crate::storage::{Entry, Store};
use flyball_core::{GroupResource, Object};
use parking_lot::Mutex;
use std::sync::Arc;

/// The configurations of a table, parsed once for as long as nothing in it changes.
pub(super) struct ConfigurationCache<T> {
    table: GroupResource,
    read: fn(&Object) -> T,
    parsed: Mutex<ParsedEntries<T>>,
}

struct ParsedEntries<T> {
    entries: Vec<Arc<Entry>>,
    values: Arc<Vec<T>>,
}

impl<T> ConfigurationCache<T> {
    pub(super) fn new(kind: &Kind, read: fn(&Object) -> T) -> Self {
        Self {
            table: kind.table(),
            read,
            parsed: Mutex::new(ParsedEntries { entries: Vec::new(), values: Arc::default() }),
        }
    }

    /// Returns the current configuration, by name.
    pub(super) fn get(&self, store: &Store) -> Arc<Vec<T>> {
        let entries = store.list(&self.table, None).entries;
        let mut parsed = self.parsed.lock();
        let same = parsed.entries.len() == entries.len()
            && parsed.entries.iter().zip(&entries).all(|(parsed, entry)| Arc::ptr_eq(parsed, entry));
        if !same {
            let values = entries.iter().filter_map(|entry| Some((self.read)(&entry.object().ok()?))).collect();
            *parsed = ParsedEntries { entries, values: Arc::new(values) };
        }
        parsed.values.clone()
    }
}
