//! The CRDs as they were last read, so that a write to one does not read, and compile, all the others again.

use super::{acceptance, lifecycle};
use crate::registry::Resource;
use crate::storage::{Entry, Revision, Store};
use flyball_core::Object;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// All CRDs, by name.
#[derive(Default)]
pub(crate) struct Definitions(Mutex<BTreeMap<String, Arc<Definition>>>);

/// One state of a CRD.
pub(super) struct Definition {
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
}

impl Definitions {
    /// Returns what is stored now, the oldest first: who came first has the first claim to a name.
    pub(super) fn get(&self, store: &Store) -> Vec<Arc<Definition>> {
        let mut known = self.0.lock().expect("nothing panics while it holds the definitions");
        let entries = store.list(&lifecycle::table(), None).entries;
        let now = entries.iter().map(|entry| {
            let name = entry.key.name().to_owned();
            let same = known.remove(&name).filter(|known| known.revision == entry.revision);
            (name, same.unwrap_or_else(|| Arc::new(Definition::read(entry))))
        });
        *known = now.collect();
        let mut all: Vec<_> = known.values().cloned().collect();
        let created = |known: &Definition| {
            known.crd.at(&["metadata", "creationTimestamp"]).and_then(Value::as_str).map(str::to_owned)
        };
        all.sort_by_cached_key(|known| created(known));
        all
    }
}
