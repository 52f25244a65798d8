//! Webhooks and policies as they are configured now.

use crate::storage::{Entry, Store};
use flyball_core::{GroupResource, Object};
use std::sync::{Arc, Mutex};

/// What a table of configurations holds, read once for as long as nothing in it changes.
pub(super) struct Configured<T> {
    table: GroupResource,
    read: fn(&Object) -> T,
    known: Mutex<Known<T>>,
}

struct Known<T> {
    entries: Vec<Arc<Entry>>,
    values: Arc<Vec<T>>,
}

impl<T> Configured<T> {
    pub(super) fn new(resource: &str, read: fn(&Object) -> T) -> Self {
        let table = GroupResource::new("admissionregistration.k8s.io", resource);
        Self { table, read, known: Mutex::new(Known { entries: Vec::new(), values: Arc::default() }) }
    }

    /// Returns what is configured, by name.
    pub(super) fn get(&self, store: &Store) -> Arc<Vec<T>> {
        let entries = store.list(&self.table, None).entries;
        let mut known = self.known.lock().expect("reading a configuration does not panic");
        let same = known.entries.len() == entries.len()
            && known.entries.iter().zip(&entries).all(|(known, entry)| Arc::ptr_eq(known, entry));
        if !same {
            let values = entries.iter().filter_map(|entry| Some((self.read)(&entry.object().ok()?))).collect();
            *known = Known { entries, values: Arc::new(values) };
        }
        known.values.clone()
    }
}
