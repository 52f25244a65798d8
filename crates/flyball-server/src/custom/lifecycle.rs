//! What follows from a write to a CRD: its names are accepted, its resources served, its objects cleaned up.

use super::acceptance::{self, AcceptedNames};
use super::cache::Definition;
use crate::auth::User;
use crate::kinds::Part;
use crate::registry::{Change, Resource, Target, Writer};
use crate::request::options::DeleteOptions;
use crate::response::Warnings;
use crate::server::Inner;
use flyball_core::{Clock, GroupResource, Object, Status};
use serde_json::json;
use std::sync::Arc;

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";
/// Holds a deleted CRD until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The table of CRDs.
pub(crate) fn table() -> GroupResource {
    GroupResource::new(GROUP, PLURAL)
}

/// Completes the mark that a deletion leaves on a CRD: a finalizer holds it until its objects are gone.
pub(crate) fn mark(crd: &mut Object, live: &Object, clock: &Clock) {
    let metadata = crd.metadata_mut();
    metadata.remove("deletionGracePeriodSeconds");
    match live.generation() {
        0 => metadata.remove("generation"),
        generation => metadata.insert("generation".into(), generation.into()),
    };
    if live.deletion_timestamp().is_some() {
        return;
    }
    if !crd.finalizers().any(|finalizer| finalizer == CLEANUP) {
        let finalizers = crd.metadata_mut().entry("finalizers").or_insert_with(|| json!([]));
        finalizers.as_array_mut().into_iter().for_each(|finalizers| finalizers.push(CLEANUP.into()));
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let status = acceptance::terminating(crd, "InstanceDeletionPending", message, clock);
    crd.insert("status".into(), status);
}

impl Inner {
    /// Brings the catalog, and the CRDs' own conditions, to what the stored CRDs say.
    pub(crate) async fn sync_definitions(&self) {
        // Every pass settles what the one before has made possible; each writes less than the last.
        for _ in 0..8 {
            let all = self.definitions.get(&self.store);
            let mut settled = true;
            for definition in all.iter().filter(|definition| definition.crd.deletion_timestamp().is_some()) {
                settled &= !self.clean_up(definition).await;
            }
            // Before they are said to be established.
            self.serve_definitions();
            let mut groups = self.definitions.take_changed_groups();
            // Read after that: a group is judged with all that made it one to judge, whoever wrote it.
            let all = self.definitions.get(&self.store);
            while let Some(group) = groups.first() {
                settled &= !self.accept_names(&group, &all).await;
                groups.done();
            }
            drop(groups);
            if settled {
                return;
            }
        }
        self.serve_definitions();
    }

    /// Serves what the stored CRDs say.
    pub(crate) fn serve_definitions(&self) {
        let _turn = self.definitions.turn();
        let mut catalog = crate::registry::Catalog::built_in();
        for definition in self.definitions.get(&self.store) {
            definition.resources.iter().for_each(|resource| catalog.add(resource.clone()));
        }
        catalog.sort_versions();
        self.put_catalog(catalog);
    }

    /// Writes the status of the CRDs of a group; tells whether any has changed.
    async fn accept_names(&self, group: &str, all: &[Arc<Definition>]) -> bool {
        let accepted = |all: &[Arc<Definition>]| {
            AcceptedNames::of(all.iter().filter(|known| known.group() == group).map(|known| &known.crd))
        };
        let (mut names, mut changed) = (accepted(all), false);
        let is_live = |known: &&Arc<Definition>| known.group() == group && known.crd.deletion_timestamp().is_none();
        for definition in all.iter().filter(is_live) {
            let crd = &definition.crd;
            let status = acceptance::judge(crd, &names, &self.clock);
            if crd.get("status") == Some(&status) {
                continue;
            }
            let write = move |crd: &mut Object| {
                crd.insert("status".into(), status.clone());
                Ok(())
            };
            if self.write_definition(crd.name(), write).await {
                changed = true;
                names = accepted(&self.definitions.get(&self.store));
            }
        }
        changed
    }

    async fn write_definition(
        &self,
        name: &str,
        with: impl Fn(&mut Object) -> Result<(), Status> + Send + Sync + 'static,
    ) -> bool {
        let Some(resource) = self.catalog().get(GROUP, "v1", PLURAL) else { return false };
        let target = Target { resource, namespace: None, name: Some(name.to_owned()), part: Part::Status };
        let (user, warnings) = (User::admin(), Warnings::default());
        let writer = Writer::server(&user, &warnings);
        // `change` would call back here; the write alone is wanted.
        match Box::pin(self.change(&target, &Change::With(Box::new(with)), &writer)).await {
            Ok(_) => true,
            Err(status) => {
                tracing::error!(%status, crd = name, "the status of a CRD could not be written");
                false
            }
        }
    }

    /// Deletes the objects of a CRD that is going, and lets it go when they are gone.
    async fn clean_up(&self, definition: &Definition) -> bool {
        let crd = &definition.crd;
        if !crd.finalizers().any(|finalizer| finalizer == CLEANUP) {
            return false;
        }
        let terminating = acceptance::terminating(
            crd,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
            &self.clock,
        );
        if crd.get("status") != Some(&terminating) {
            let status = terminating.clone();
            self.write_definition(crd.name(), move |crd| {
                crd.insert("status".into(), status.clone());
                Ok(())
            })
            .await;
            self.serve_definitions();
        }
        let stored = |resource: &&Arc<Resource>| {
            resource.custom().is_some_and(|custom| *custom.storage_version == *resource.kind.version)
        };
        if let Some(resource) = definition.resources.iter().find(stored) {
            self.delete_instances(resource).await;
            if self.store.count(&resource.table) > 0 {
                return false; // finalizers hold some of them
            }
        }
        self.release(crd).await
    }

    async fn delete_instances(&self, resource: &Arc<Resource>) {
        let entries = self.store.list(&resource.table, None).entries;
        let entries: Vec<_> = entries.into_iter().filter(|entry| !entry.is_deleting()).collect();
        let target = Target { resource: resource.clone(), namespace: None, name: None, part: Part::Whole };
        let (user, warnings) = (User::admin(), Warnings::default());
        let writer = Writer::server(&user, &warnings);
        if let Err(status) = Box::pin(self.delete_all(&target, &entries, &DeleteOptions::default(), &writer)).await {
            tracing::error!(%status, resource = %resource.group_resource(), "the objects of a deleted CRD could not be deleted");
        }
    }

    async fn release(&self, crd: &Object) -> bool {
        let Some(resource) = self.catalog().get(GROUP, "v1", PLURAL) else { return false };
        let target = Target { resource, namespace: None, name: Some(crd.name().to_owned()), part: Part::Whole };
        let (user, warnings) = (User::admin(), Warnings::default());
        let writer = Writer::server(&user, &warnings);
        let without = Change::With(Box::new(|crd: &mut Object| {
            let left: Vec<String> =
                crd.finalizers().filter(|finalizer| *finalizer != CLEANUP).map(str::to_owned).collect();
            if left.is_empty() {
                crd.metadata_mut().remove("finalizers");
            } else {
                crd.metadata_mut().insert("finalizers".into(), json!(left));
            }
            Ok(())
        }));
        Box::pin(self.change(&target, &without, &writer)).await.is_ok()
    }
}
