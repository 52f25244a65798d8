//! Keeps what the watchers bring, so that reconciles read without asking the API server.
//!
//! One [`Store`] holds one kind in one scope, whatever the number of controllers that use it: a [`Writer`] per store takes
//! what the watcher learns, and tells the listeners (the controllers' queues) what changed. Objects are kept as the
//! JSON text they came in, see [`Entry`], and decoded by whoever reads them.
//!
//! What a reader may rely on: a store that is synced shows all objects as of one revision, never a mixture of two; an object
//! only ever moves forward; listeners hear of a change after readers can see it.

mod caches;
mod declaration;
mod echoes;
mod entry;
mod fields;
mod index;
mod metrics;
mod selection;
mod shape;
mod shown;
mod store;

pub use caches::Caches;
pub(crate) use caches::Error;
pub use declaration::Cache;
pub(crate) use declaration::{Plan, Portion};
pub(crate) use echoes::Echoes;
pub(crate) use entry::Entry;
pub(crate) use fields::Kept;
pub(crate) use index::{Declared as DeclaredIndex, IndexId, Named as NamedIndex};
pub use index::{Index, KindIndex};
pub(crate) use metrics::CacheCollector;
pub(crate) use selection::{Selection, percent_encoded};
pub(crate) use shown::Shown;
pub(crate) use store::{Delta, Store, StoreId, Trouble, Writer};

use flyball_core::ObjectKey;
use std::fmt::Debug;

/// Hears what changes in a store.
pub(crate) trait Listener: Debug + Send + Sync {
    /// An object came, changed or went; readers see it already.
    fn changed(&self, change: &Change<'_>);

    /// Everything up to this revision has been told, change by change.
    fn seen(&self, store: StoreId, revision: u64);

    /// A list made the store as of this revision; of what came and went since the last change told, nothing was told.
    fn listed(&self, store: &Store, revision: u64);
}

/// One object that came (no `old`), changed or went (no `new`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) store: StoreId,
    pub(crate) key: &'a ObjectKey,
    pub(crate) old: Option<&'a Shown<'a>>,
    pub(crate) new: Option<&'a Shown<'a>>,
    pub(crate) origin: Origin,
}

/// How a change came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The first list, whose objects may be old.
    FirstList,
    /// A later list: several changes of an object may have become one.
    List,
    /// The watch, which tells every single change.
    Watch,
}
