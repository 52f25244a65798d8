//! Cache of compiled CRDs, so that a write to one does not compile all others again.

use crate::catalog::{Resource, resources_of_definition};
use crate::kinds::definition::acceptance::{self, AcceptedNames};
use crate::kinds::{self, CUSTOM_RESOURCE_DEFINITION};
use crate::storage::{Entry, Revision, Store};
use flyball_core::{GroupResource, Object};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All CRDs.
#[derive(Default)]
pub(super) struct Cache {
    state: Mutex<State>,
    serving: Mutex<()>,
}

#[derive(Default)]
struct State {
    by_name: BTreeMap<String, Arc<Definition>>,
    /// Groups with CRDs that changed since [`Cache::take_changed_groups`].
    changed_groups: BTreeSet<String>,
    /// Tables of CRDs that were removed since [`Cache::take_removed_tables`].
    removed_tables: BTreeSet<GroupResource>,
}

/// Groups to process; the remaining ones are returned to the queue on drop.
pub(super) struct ChangedGroups<'d> {
    remaining: BTreeSet<String>,
    cache: &'d Cache,
}

impl ChangedGroups<'_> {
    pub(super) fn first(&self) -> Option<String> {
        self.remaining.first().cloned()
    }

    pub(super) fn done(&mut self) {
        self.remaining.pop_first();
    }
}

impl Drop for ChangedGroups<'_> {
    fn drop(&mut self) {
        self.cache.state.lock().changed_groups.append(&mut self.remaining);
    }
}

/// The state of a CRD at one revision.
pub(crate) struct Definition {
    revision: Revision,
    /// The CRD without its versions, which are long and contained in `resources`.
    pub(super) crd: Object,
    /// The names that it serves by.
    names: Value,
    /// The resources that it serves: none until its names are accepted.
    pub(super) resources: Vec<Arc<Resource>>,
}

impl Definition {
    /// Reads a CRD that replaces an earlier state.
    fn read(entry: &Entry, before: Option<&Self>) -> Self {
        let mut crd = entry.object().unwrap_or_default();
        // Resources are served under accepted names, which may differ from those in the spec.
        let names = if is_established(&crd) { crd.at(&["status", "acceptedNames"]) } else { None };
        let names = names.cloned().unwrap_or_default();
        let resources = served(&crd, &names, before);
        crd.get_mut("spec").and_then(Value::as_object_mut).map(|spec| spec.remove("versions"));
        crd.metadata_mut().remove("managedFields");
        Self { revision: entry.revision, crd, names, resources }
    }

    /// Reads a CRD whose requested names can be accepted.
    ///
    /// It is served before its condition `Established` is set, since clients rely on the condition.
    fn establishing(&self, entry: &Entry) -> Self {
        let names = self.crd.at(&["spec", "names"]).cloned().unwrap_or_default();
        let resources = served(&entry.object().unwrap_or_default(), &names, None);
        Self { revision: self.revision, crd: self.crd.clone(), names, resources }
    }

    fn is_waiting(&self) -> bool {
        !is_established(&self.crd) && self.crd.deletion_timestamp().is_none()
    }

    pub(super) fn group(&self) -> &str {
        self.crd.at(&["spec", "group"]).and_then(Value::as_str).unwrap_or_default()
    }
}

impl Cache {
    /// Waits for the lock under which the catalog is replaced, so that one of older CRDs never replaces one of newer
    /// CRDs.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.serving.lock()
    }

    /// Returns the stored CRDs, oldest first: the oldest CRD has precedence for a name.
    pub(super) fn get(&self, store: &Store) -> Vec<Arc<Definition>> {
        self.load(store, |_, _| {})
    }

    /// Like [`Self::get`]; reports the numbers of read and of all CRDs.
    pub(crate) fn load(&self, store: &Store, progress: impl Fn(u64, u64)) -> Vec<Arc<Definition>> {
        let mut state = self.state.lock();
        let State { by_name, changed_groups, removed_tables } = &mut *state;
        let entries = store.list(&CUSTOM_RESOURCE_DEFINITION.table(), None).entries;
        let mut before = std::mem::take(by_name);
        let mut waiting = BTreeMap::new();
        for (read, entry) in entries.iter().enumerate() {
            progress(read as u64, entries.len() as u64);
            let name = entry.key.name().to_owned();
            let definition = match before.remove(&name) {
                Some(same) if same.revision == entry.revision => same,
                earlier => {
                    let read = Definition::read(entry, earlier.as_deref());
                    changed_groups.insert(read.group().to_owned());
                    Arc::new(read)
                }
            };
            if definition.is_waiting() {
                waiting.entry(definition.group().to_owned()).or_insert_with(Vec::new).push(entry);
            }
            by_name.insert(name, definition);
        }
        for (group, entries) in waiting {
            let all = by_name.values().filter(|known| known.group() == group).map(|known| &known.crd);
            let accepted = AcceptedNames::of(kinds::of_group(&group), all);
            for entry in entries {
                let Some(definition) = by_name.get_mut(entry.key.name()) else { continue };
                match (accepted.allows(&definition.crd), definition.resources.is_empty()) {
                    (true, true) => *definition = Arc::new(definition.establishing(entry)),
                    (false, false) => *definition = Arc::new(Definition::read(entry, None)),
                    (true, false) | (false, true) => {}
                }
            }
        }
        changed_groups.extend(before.values().map(|removed| removed.group().to_owned()));
        removed_tables.extend(before.values().flat_map(|removed| &removed.resources).map(|of| of.table.clone()));
        let mut all: Vec<_> = by_name.values().cloned().collect();
        let created = |known: &Definition| {
            known.crd.at(&["metadata", "creationTimestamp"]).and_then(Value::as_str).map(str::to_owned)
        };
        all.sort_by_cached_key(|known| created(known));
        all
    }

    /// Removes and returns the tables of CRDs that [`Self::get`] found removed since the last call.
    pub(super) fn take_removed_tables(&self) -> BTreeSet<GroupResource> {
        std::mem::take(&mut self.state.lock().removed_tables)
    }

    /// Adds tables that could not be removed yet.
    pub(super) fn keep_removed_tables(&self, tables: BTreeSet<GroupResource>) {
        self.state.lock().removed_tables.extend(tables);
    }

    /// Removes and returns the groups with CRDs that [`Self::get`] found changed since the last call.
    pub(super) fn take_changed_groups(&self) -> ChangedGroups<'_> {
        ChangedGroups { remaining: std::mem::take(&mut self.state.lock().changed_groups), cache: self }
    }
}

fn is_established(crd: &Object) -> bool {
    acceptance::condition(crd, "Established") == Some("True")
}

/// Reads the resources of a CRD with these names. Those of an earlier state are reused unless spec, names or deletion
/// changed, since reading schemas takes long.
fn served(crd: &Object, names: &Value, before: Option<&Definition>) -> Vec<Arc<Resource>> {
    if names.is_null() {
        return Vec::new();
    }
    let state = |crd: &Object| (crd.uid().to_owned(), crd.generation(), crd.deletion_timestamp().is_some());
    match before {
        Some(before) if state(&before.crd) == state(crd) && before.names == *names => before.resources.clone(),
        _ => resources_of_definition(crd, names).into_iter().map(Arc::new).collect(),
    }
}
