//! Cache of converted objects for lists: as with kube-apiserver's watch cache, a list returns objects that were
//! converted before, even if the webhook fails now. Reads of one object always call the webhook.
//!
//! Invariant: an entry is returned only for the revision that was converted.

use crate::storage::Entry;
use flyball_core::ObjectKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Maximum number of bytes of converted objects in the cache of a version; beyond it, the cache is emptied.
const MAX_BYTES: usize = 16 << 20;

/// The converted objects of a version of a resource.
#[derive(Default)]
pub(crate) struct ConversionCache(Mutex<State>);

#[derive(Default)]
struct State {
    entries: BTreeMap<ObjectKey, Arc<Entry>>,
    bytes: usize,
}

impl ConversionCache {
    /// Returns the converted form of this revision of an object.
    pub(crate) fn get(&self, of: &Entry) -> Option<Arc<Entry>> {
        let state = self.0.lock();
        state.entries.get(&of.key).filter(|entry| entry.revision == of.revision).cloned()
    }

    /// Caches a converted object.
    pub(crate) fn put(&self, entry: &Arc<Entry>) {
        let mut state = self.0.lock();
        let before = state.entries.insert(entry.key.clone(), entry.clone());
        state.bytes = state.bytes + entry.size() - before.map_or(0, |before| before.size());
        if state.bytes > MAX_BYTES {
            *state = State::default();
        }
    }
}

/// Prints nothing: the cache is not part of a CRD's declaration.
impl fmt::Debug for ConversionCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConversionCache")
    }
}
