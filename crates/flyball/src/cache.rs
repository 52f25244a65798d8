//! Caches of objects, from which reconciles read without a request.
//!
//! One [`Store`] holds one kind in one scope, shared by all controllers that use it. The [`Writer`] of a store
//! applies the deltas of its watcher and notifies listeners (the controllers' queues) of changes. Objects are stored as
//! the JSON text that was received, see [`Entry`], and decoded on use.
//!
//! Invariants: a synced store contains all objects as of one revision, never a mixture of two; an object is never
//! replaced by an older version; listeners are notified of a change after readers can see it.

mod caches;
mod declaration;
mod decoded;
mod dynamic;
mod entry;
mod fields;
mod index;
mod metrics;
mod own_writes;
mod selection;
mod shape;
mod store;

pub use caches::Caches;
pub(crate) use caches::Error;
pub use declaration::Cache;
pub(crate) use declaration::{CachedPart, Plan};
pub(crate) use decoded::DecodedEntry;
pub(crate) use entry::Entry;
pub(crate) use fields::KeptFields;
pub(crate) use index::{DeclaredIndex, IndexId, NamedIndex};
pub use index::{DynamicIndex, Index};
pub(crate) use metrics::CacheCollector;
pub(crate) use own_writes::OwnWriteResponses;
pub(crate) use selection::{Selection, percent_encoded};
pub(crate) use store::{Delta, LastError, Store, StoreId, Writer};

use flyball_core::ObjectKey;
use std::fmt::Debug;

/// A listener for the changes of a store.
pub(crate) trait Listener: Debug + Send + Sync {
    /// Called when an object was created, updated or deleted; readers see the change already.
    fn changed(&self, change: &Change<'_>);

    /// Called when all changes up to this revision have been delivered.
    fn observed(&self, store: StoreId, revision: u64);

    /// Called when a list replaced the contents of the store, as of this revision. Objects that were created and
    /// deleted since the last change were not reported.
    fn listed(&self, store: &Store, revision: u64);
}

/// The creation (no `old`), update or deletion (no `new`) of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) store: StoreId,
    pub(crate) key: &'a ObjectKey,
    pub(crate) old: Option<&'a DecodedEntry<'a>>,
    pub(crate) new: Option<&'a DecodedEntry<'a>>,
    pub(crate) origin: Origin,
}

/// The origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The first list, whose objects may be old.
    FirstList,
    /// A later list: several changes of an object may have become one.
    List,
    /// The watch, which delivers every single change.
    Watch,
}
