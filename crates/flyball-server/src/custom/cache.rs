//! The CRDs as they were last read, so that a write to one does not read, and compile, all the others again.

use super::{acceptance, lifecycle};
use crate::registry::Resource;
use crate::storage::{Entry, Revision, Store};
use flyball_core::Object;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All CRDs.
#[derive(Default)]
pub(crate) struct Definitions {
    state: Mutex<State>,
    serving: Mutex<()>,
}

#[derive(Default)]
struct State {
    by_name: BTreeMap<String, Arc<Definition>>,
    /// Groups with CRDs that changed since [`Definitions::take_changed_groups`].
    changed_groups: BTreeSet<String>,
}

/// Groups to go through; what is left of them when this is dropped is handed out again.
pub(super) struct ChangedGroups<'d> {
    left: BTreeSet<String>,
    definitions: &'d Definitions,
}

impl ChangedGroups<'_> {
    pub(super) fn first(&self) -> Option<String> {
        self.left.first().cloned()
    }

    pub(super) fn done(&mut self) {
        self.left.pop_first();
    }
}

impl Drop for ChangedGroups<'_> {
    fn drop(&mut self) {
        self.definitions.lock().changed_groups.append(&mut self.left);
    }
}

/// One state of a CRD.
pub(crate) struct Definition {
    revision: Revision,
    /// The CRD without its versions, which are long and stand in `resources`.
    pub(super) crd: Object,
    /// What it serves; nothing before its names are accepted.
    pub(super) resources: Vec<Arc<Resource>>,
}

impl Definition {
    fn read(entry: &Entry) -> Self {
        let mut crd = entry.object().unwrap_or_default();
        let established = acceptance::condition(&crd, "Established") == Some("True");
        let resources = if established { super::resources(&crd) } else { Vec::new() };
        crd.get_mut("spec").and_then(Value::as_object_mut).map(|spec| spec.remove("versions"));
        crd.metadata_mut().remove("managedFields");
        Self { revision: entry.revision, crd, resources: resources.into_iter().map(Arc::new).collect() }
    }

    pub(super) fn group(&self) -> &str {
        self.crd.at(&["spec", "group"]).and_then(Value::as_str).unwrap_or_default()
    }
}

impl Definitions {
    /// Waits for its turn to make a catalog of what is stored now. One that is made of older CRDs must not take the place
    /// of one that is made of newer ones.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is stored now, the oldest first: who came first has the first claim to a name.
    pub(super) fn get(&self, store: &Store) -> Vec<Arc<Definition>> {
        self.load(store, |_, _| {})
    }

    /// Does the same; reports how many are read, of how many.
    pub(crate) fn load(&self, store: &Store, progress: impl Fn(u64, u64)) -> Vec<Arc<Definition>> {
        let mut state = self.lock();
        let State { by_name, changed_groups } = &mut *state;
        let entries = store.list(&lifecycle::table(), None).entries;
        let mut before = std::mem::take(by_name);
        for (read, entry) in entries.iter().enumerate() {
            progress(read as u64, entries.len() as u64);
            let name = entry.key.name().to_owned();
            let same = before.remove(&name).filter(|known| known.revision == entry.revision);
            let definition = same.unwrap_or_else(|| {
                let read = Definition::read(entry);
                changed_groups.insert(read.group().to_owned());
                Arc::new(read)
            });
            by_name.insert(name, definition);
        }
        changed_groups.extend(before.values().map(|gone| gone.group().to_owned()));
        let mut all: Vec<_> = by_name.values().cloned().collect();
        let created = |known: &Definition| {
            known.crd.at(&["metadata", "creationTimestamp"]).and_then(Value::as_str).map(str::to_owned)
        };
        all.sort_by_cached_key(|known| created(known));
        all
    }

    /// Takes the groups with CRDs that [`Self::get`] found changed since the last call.
    pub(super) fn take_changed_groups(&self) -> ChangedGroups<'_> {
        ChangedGroups { left: std::mem::take(&mut self.lock().changed_groups), definitions: self }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the definitions")
    }
}
