//! Size accounting of all objects, with a limit for each namespace.

use super::{Entry, Error};
use flyball_core::ObjectKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of bytes that marking an object for deletion adds: a timestamp, a grace period and a finalizer.
const DELETION_BYTES: usize = 1 << 10;

/// Bytes of the stored objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    total: usize,
    /// By namespace; cluster-scoped objects have none.
    namespaces: BTreeMap<Arc<str>, usize>,
}

impl Sizes {
    /// Returns the bytes of all objects.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Records the sizes of an object before and after a write; 0 if it does not exist.
    pub(super) fn replace(&mut self, key: &ObjectKey, before: usize, after: usize) {
        self.total = self.total + after - before;
        let Some(namespace) = key.namespace() else { return };
        match self.namespaces.get_mut(namespace) {
            Some(size) => {
                *size = *size + after - before;
                if *size == 0 {
                    self.namespaces.remove(namespace);
                }
            }
            None => drop(self.namespaces.insert(namespace.into(), after)),
        }
    }

    /// Rejects a write if there is no space for it: objects of a namespace may use at most half of the space that other
    /// namespaces leave, so that a namespace cannot use up the space of others. Objects can always shrink, and can
    /// always be marked for deletion.
    pub(super) fn check(
        &self,
        key: &ObjectKey,
        before: Option<&Arc<Entry>>,
        after: &Arc<Entry>,
        limit: usize,
    ) -> Result<(), Error> {
        let growth = after.size().saturating_sub(before.map_or(0, Entry::size));
        let namespace = key.namespace().unwrap_or_default();
        let own = self.namespaces.get(namespace).copied().unwrap_or_default();
        let free = limit.saturating_sub(self.total);
        let free = if namespace.is_empty() { free } else { free.saturating_sub(own) / 2 };
        // The store is locked, so only writes that add at most the bytes of a deletion are decoded.
        let begins_deletion = || before.is_some_and(|before| !before.is_deleting() && after.is_deleting());
        if growth == 0 || growth <= free || growth <= DELETION_BYTES && begins_deletion() {
            return Ok(());
        }
        let why = if namespace.is_empty() {
            format!("all objects take {} bytes of {limit}", self.total)
        } else {
            format!(
                "the objects of namespace {namespace} take {own} bytes, all objects {} bytes of {limit}",
                self.total
            )
        };
        Err(Error::Full { why: format!("etcdserver: mvcc: database space exceeded: {why}").into() })
    }
}
