//! Definitions: the consequences of writes to CRDs.
//!
//! It accepts the names of a CRD, serves its resources, and deletes its objects. kube-apiserver has controllers for
//! this; here it happens right after the write, as further writes. Takes the stored CRDs, and sets the catalog of the
//! registry. Invariant: a catalog of older CRDs never replaces one of newer CRDs. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>.

mod cache;

use crate::admission::Writer;
use crate::auth::User;
use crate::catalog::{Catalog, Resource, Target};
use crate::kinds::definition::CLEANUP;
use crate::kinds::definition::acceptance::{self, AcceptedNames};
use crate::kinds::{self, CUSTOM_RESOURCE_DEFINITION, Part};
use crate::registry::{Change, Registry};
use crate::request::options::DeleteOptions;
use crate::response::Warnings;
use cache::{Cache, Definition};
use flyball_core::{Object, Status};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;

/// Synchronizes the catalog with the stored CRDs.
pub(crate) struct Definitions {
    registry: Arc<Registry>,
    cache: Cache,
    /// Locked while writes to CRDs are processed.
    syncing: Mutex<()>,
    /// True if CRDs may have been written that no request of this server will process.
    is_unsynced: AtomicBool,
}

/// The CRDs whose objects a synchronization deletes, if the CRDs are being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CleanUp {
    All,
    /// The CRD with this name.
    One(String),
    Nothing,
}

/// Writes to CRDs that are being processed; if the request ends before, the next one processes them.
struct PendingWrites<'r> {
    registry: &'r Registry,
    is_done: bool,
}

impl Drop for PendingWrites<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.registry.mark_definitions_changed();
        }
    }
}

impl CleanUp {
    fn includes(&self, definition: &Definition) -> bool {
        match self {
            Self::All => true,
            Self::One(name) => definition.crd.name() == name,
            Self::Nothing => false,
        }
    }
}

impl Definitions {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { registry, cache: Cache::default(), syncing: Mutex::default(), is_unsynced: AtomicBool::new(false) }
    }

    /// Reads all CRDs; reports how many are read, of how many.
    pub(crate) fn load(&self, progress: impl Fn(u64, u64)) {
        self.cache.load(&self.registry.store, progress);
    }

    /// Requests that the first request processes all CRDs.
    pub(crate) fn mark_unsynced(&self) {
        self.is_unsynced.store(true, Ordering::Release);
    }

    /// Processes all CRDs once after [`Self::mark_unsynced`].
    pub(crate) async fn sync_first(&self) {
        if self.is_unsynced.load(Ordering::Acquire) && self.is_unsynced.swap(false, Ordering::AcqRel) {
            self.registry.mark_definitions_changed();
            Box::pin(self.sync(&CleanUp::All)).await;
        }
    }

    /// Returns true if all writes to CRDs are processed.
    pub(crate) fn is_synced(&self) -> bool {
        let is_syncing = self.syncing.try_lock().is_err();
        !is_syncing && !self.registry.definitions_changed() && !self.is_unsynced.load(Ordering::Acquire)
    }

    /// Processes the writes to CRDs so far, and deletes the objects of these CRDs if they are being deleted.
    ///
    /// Requests wait for each other only while names are accepted and resources served, not while objects are deleted,
    /// which may call conversion webhooks.
    pub(crate) async fn sync(&self, clean_up: &CleanUp) {
        // Each pass may enable another one; the passes end, since each writes less than the one before.
        for _ in 0..8 {
            let mut settled = true;
            if *clean_up != CleanUp::Nothing {
                let all = self.cache.get(&self.registry.store);
                let deleted = |known: &&Arc<Definition>| known.crd.deletion_timestamp().is_some();
                for definition in all.iter().filter(deleted).filter(|definition| clean_up.includes(definition)) {
                    settled &= !self.clean_up(definition).await;
                }
            }
            // Another request may be processing the write of this one.
            let turn = self.syncing.lock().await;
            while self.registry.take_definitions_changed() {
                let mut pending = PendingWrites { registry: &self.registry, is_done: false };
                self.sync_once().await;
                pending.is_done = true;
            }
            drop(turn);
            if settled {
                return;
            }
        }
    }

    /// Synchronizes the catalog and the conditions of CRDs with the stored CRDs.
    async fn sync_once(&self) {
        for _ in 0..8 {
            let mut settled = true;
            // Before the condition `Established` is set.
            self.serve();
            let mut groups = self.cache.take_changed_groups();
            // Read after that, so that the group includes all writes that marked it as changed.
            let all = self.cache.get(&self.registry.store);
            while let Some(group) = groups.first() {
                settled &= !self.accept_names(&group, &all).await;
                groups.done();
            }
            drop(groups);
            if settled {
                return;
            }
        }
        self.serve();
    }

    /// Locks out other replacements of the catalog.
    #[cfg(test)]
    pub(crate) fn turn(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.cache.turn()
    }

    /// Builds and serves the catalog of the stored CRDs.
    pub(crate) fn serve(&self) {
        let _turn = self.cache.turn();
        let mut catalog = Catalog::built_in();
        for definition in self.cache.get(&self.registry.store) {
            definition.resources.iter().for_each(|resource| catalog.add(resource.clone()));
        }
        catalog.sort_versions();
        self.registry.serve(catalog);
        // Watches that end now still read the last events: their tables are removed with the next change of a CRD.
        let mut removed = self.cache.take_removed_tables();
        removed.retain(|table| {
            let is_served = self.registry.catalog.get().resources().any(|resource| resource.table == *table);
            !is_served && !self.registry.store.remove_table(table)
        });
        self.cache.keep_removed_tables(removed);
    }

    /// Writes the status of the CRDs of a group; returns whether any has changed.
    async fn accept_names(&self, group: &str, all: &[Arc<Definition>]) -> bool {
        let accepted = |all: &[Arc<Definition>]| {
            let crds = all.iter().filter(|known| known.group() == group).map(|known| &known.crd);
            AcceptedNames::of(kinds::of_group(group), crds)
        };
        let (mut names, mut changed) = (accepted(all), false);
        let is_live = |known: &&Arc<Definition>| known.group() == group && known.crd.deletion_timestamp().is_none();
        for definition in all.iter().filter(is_live) {
            let crd = &definition.crd;
            let status = acceptance::accept(crd, &names, &self.registry.clock);
            if crd.get("status") == Some(&status) {
                continue;
            }
            let write = move |crd: &mut Object| {
                crd.insert("status".into(), status.clone());
                Ok(())
            };
            if self.write_definition(crd.name(), write).await {
                changed = true;
                names = accepted(&self.cache.get(&self.registry.store));
            }
        }
        changed
    }

    async fn write_definition(
        &self,
        name: &str,
        with: impl Fn(&mut Object) -> Result<(), Status> + Send + Sync + 'static,
    ) -> bool {
        let resource = self.registry.catalog.get().of(&CUSTOM_RESOURCE_DEFINITION);
        let target = Target { resource, namespace: None, name: Some(name.to_owned()), part: Part::Status };
        let (user, warnings) = (User::admin(), Warnings::default());
        let writer = Writer::server(&user, &warnings);
        match Box::pin(self.registry.change(&target, &Change::With(Box::new(with)), &writer)).await {
            Ok(_) => true,
            Err(status) => {
                tracing::error!(%status, crd = name, "failed to write the status of a CRD");
                false
            }
        }
    }

    /// Deletes the objects of a CRD that is being deleted, and then removes its finalizer.
    async fn clean_up(&self, definition: &Definition) -> bool {
        let crd = &definition.crd;
        if !crd.finalizers().any(|finalizer| finalizer == CLEANUP) {
            return false;
        }
        let terminating = acceptance::terminating(
            crd,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
            &self.registry.clock,
        );
        if crd.get("status") != Some(&terminating) {
            let status = terminating.clone();
            self.write_definition(crd.name(), move |crd| {
                crd.insert("status".into(), status.clone());
                Ok(())
            })
            .await;
            self.serve();
        }
        let stored = |resource: &&Arc<Resource>| {
            resource.custom().is_some_and(|custom| *custom.storage_version == *resource.kind.version)
        };
        if let Some(resource) = definition.resources.iter().find(stored) {
            self.delete_instances(resource).await;
            if self.registry.store.count(&resource.table) > 0 {
                return false; // some of them have finalizers
            }
        }
        self.release(crd).await
    }

    async fn delete_instances(&self, resource: &Arc<Resource>) {
        let entries = self.registry.store.list(&resource.table, None).entries;
        let entries: Vec<_> = entries.into_iter().filter(|entry| !entry.is_deleting()).collect();
        let target = Target { resource: resource.clone(), namespace: None, name: None, part: Part::Whole };
        let (user, warnings) = (User::admin(), Warnings::default());
        let writer = Writer::server(&user, &warnings);
        if let Err(status) =
            Box::pin(self.registry.delete_all(&target, &entries, &DeleteOptions::default(), &writer)).await
        {
            tracing::error!(%status, resource = %resource.group_resource(), "failed to delete the objects of a CRD");
        }
        let name = resource.group_resource().to_string();
        if let Err(error) = self.registry.remove_unreadable(|table, _| *table == resource.table, &name).await {
            tracing::error!(%error, resource = name, "failed to remove the unreadable objects of a CRD");
        }
    }

    async fn release(&self, crd: &Object) -> bool {
        let resource = self.registry.catalog.get().of(&CUSTOM_RESOURCE_DEFINITION);
        let target = Target { resource, namespace: None, name: Some(crd.name().to_owned()), part: Part::Whole };
        let (user, warnings) = (User::admin(), Warnings::default());
        let writer = Writer::server(&user, &warnings);
        let without = Change::With(Box::new(|crd: &mut Object| {
            let remaining: Vec<String> =
                crd.finalizers().filter(|finalizer| *finalizer != CLEANUP).map(str::to_owned).collect();
            if remaining.is_empty() {
                crd.metadata_mut().remove("finalizers");
            } else {
                crd.metadata_mut().insert("finalizers".into(), json!(remaining));
            }
            Ok(())
        }));
        Box::pin(self.registry.change(&target, &without, &writer)).await.is_ok()
    }
}
