//! Registry: the only code that creates, changes and deletes objects.
//!
//! Takes decoded requests, returns objects or a [`Status`]. A write reads the stored object, creates a [candidate] from
//! it and the request, runs admission and validation, and stores it; after a conflict it is retried. It does not depend
//! on HTTP beyond media types, nor on the form of stored objects. Invariant: no lock is held while admission runs,
//! since webhooks may write objects.
//!
//! [`Status`]: flyball_core::Status
//! [candidate]: candidate::Candidate

mod addresses;
mod allocations;
mod candidate;
mod change;
mod conflict;
mod create;
mod delete;
pub(crate) mod managed;
mod meta;
mod patch;
mod read;
pub(crate) mod scale;
mod seed;
mod writers;

pub(crate) use change::{Change, Input, Outcome, WrittenObject, storage_error};
pub(crate) use delete::{DeletionResult, check_preconditions};
pub(crate) use patch::{Patch, PatchKind};
pub(crate) use read::{ListResult, Selection, parse_version};
pub(crate) use writers::{WriteLog, WrittenBy};

use crate::admission::{Admission, Editor};
use crate::auth::Authorizer;
use crate::catalog::{Catalog, CurrentCatalog, Resource};
use crate::codec::Codec;
use crate::storage::Store;
use crate::webhook::Webhooks;
use addresses::Addresses;
use flyball_core::{Clock, Rng};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Reads and writes objects.
pub(crate) struct Registry {
    pub(crate) store: Arc<Store>,
    pub(crate) catalog: Arc<CurrentCatalog>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) admission: Admission,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    /// The users and programs of the newest writes.
    pub(crate) writes: WriteLog,
    addresses: Addresses,
    /// True if a CRD was written, or the last object of a terminating one was removed.
    definitions_changed: AtomicBool,
}

impl Registry {
    pub(crate) fn new(
        store: Arc<Store>,
        catalog: Arc<CurrentCatalog>,
        codec: Arc<Codec>,
        authorizer: Arc<Authorizer>,
        webhooks: &Arc<Webhooks>,
        (clock, rng): (Clock, Rng),
    ) -> Arc<Self> {
        Arc::new_cyclic(|registry: &Weak<Self>| {
            let editor: Weak<dyn Editor> = registry.clone();
            let admission = Admission::new(&store, &codec, &authorizer, webhooks, (&clock, &rng), editor);
            let addresses = Addresses::new(store.clone(), clock.clone(), rng.clone());
            let definitions_changed = AtomicBool::new(false);
            let writes = WriteLog::default();
            Self { store, catalog, codec, authorizer, admission, clock, rng, writes, addresses, definitions_changed }
        })
    }

    /// Replaces the catalog, and notifies the watches of resources that were changed or removed.
    pub(crate) fn serve(&self, catalog: Catalog) {
        let catalog = Arc::new(catalog);
        let before = self.catalog.replace(catalog.clone());
        let is_same = |resource: &Resource| {
            let now = catalog.get(&resource.kind.group, &resource.kind.version, &resource.plural);
            now.is_some_and(|now| std::ptr::eq(&*now, resource))
        };
        for resource in before.resources().filter(|resource| resource.custom().is_some() && !is_same(resource)) {
            self.store.notifier(&resource.table).notify();
        }
    }

    /// Records the consequences of a write: changed CRDs, changed roles.
    fn note_written(&self, resource: &Resource) {
        if resource.declares_resources() {
            self.mark_definitions_changed();
        }
        self.refresh_roles(resource);
    }

    /// Records the consequences of a removal.
    fn note_removed(&self, resource: &Resource) {
        // It may be the last object of a terminating CRD.
        if resource.custom().is_some_and(|custom| custom.terminating) {
            self.mark_definitions_changed();
        }
        self.note_written(resource);
    }

    /// Reads a written role or binding before the response, on the thread of the request.
    fn refresh_roles(&self, resource: &Resource) {
        if crate::auth::is_policy(&resource.table) {
            self.authorizer.refresh();
        }
    }

    /// Requests a synchronization of CRDs.
    pub(crate) fn mark_definitions_changed(&self) {
        self.definitions_changed.store(true, Ordering::Release);
    }

    /// Returns true if CRDs need to be synchronized.
    pub(crate) fn definitions_changed(&self) -> bool {
        self.definitions_changed.load(Ordering::Acquire)
    }

    /// Returns and resets the value.
    pub(crate) fn take_definitions_changed(&self) -> bool {
        self.definitions_changed.swap(false, Ordering::AcqRel)
    }
}
