//! Direct access to the stored objects and their history, for simulations that judge the outcome of a run.

use super::Server;
use crate::storage::{Entry, Event};
use bytes::Bytes;
use flyball_core::{GroupResource, ObjectKey};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A stored object, as JSON without `apiVersion` and `kind`, in its storage version.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// The resource.
    pub resource: GroupResource,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The revision of its last write.
    pub revision: u64,
    /// The object.
    pub body: Bytes,
}

impl StoredObject {
    fn of((resource, entry): (&GroupResource, &Arc<Entry>)) -> Self {
        let (resource, key, body) = (resource.clone(), entry.key.clone(), entry.body.clone());
        Self { resource, key, revision: entry.revision, body }
    }
}

/// A write to a stored object.
#[derive(Clone, Debug)]
pub struct StoredChange {
    /// The resource.
    pub resource: GroupResource,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The revision of the write.
    pub revision: u64,
    /// The previous state, if the object existed.
    pub before: Option<Bytes>,
    /// The new state; the last one if the object was removed.
    pub after: Bytes,
    /// True if the object was removed.
    pub is_removal: bool,
    /// Name of the user who wrote it. `None` for older writes, and for those without a request.
    pub user: Option<Box<str>>,
}

impl StoredChange {
    fn of(resource: &GroupResource, event: &Event, user: Option<Box<str>>) -> Self {
        Self {
            user,
            resource: resource.clone(),
            key: event.after.key.clone(),
            revision: event.revision,
            before: event.before.as_ref().map(|entry| entry.body.clone()),
            after: event.after.body.clone(),
            is_removal: event.removed,
        }
    }
}

impl Server {
    /// Returns all stored objects, in the order of resources and names, regardless of permissions.
    pub fn stored_objects(&self) -> Vec<StoredObject> {
        let image = self.0.registry.store.image();
        image.entries().map(StoredObject::of).collect()
    }

    /// Returns the stored objects of selected resources that were written after a revision, as
    /// [`stored_objects`](Self::stored_objects) does.
    pub fn stored_objects_after(&self, revision: u64, selects: impl Fn(&GroupResource) -> bool) -> Vec<StoredObject> {
        let image = self.0.registry.store.image();
        let written = image.entries().filter(|(_, entry)| entry.revision > revision);
        written.filter(|(resource, _)| selects(resource)).map(StoredObject::of).collect()
    }

    /// Returns true if an object is stored.
    pub fn contains(&self, resource: &GroupResource, key: &ObjectKey) -> bool {
        self.0.registry.store.get(resource, key).is_some()
    }

    /// Returns the revision of the last write to a resource.
    pub fn last_change_of(&self, resource: &GroupResource) -> u64 {
        self.0.registry.store.changed(resource)
    }

    /// Returns the writes after a revision, in order. Those that the server no longer keeps are missing: of a resource
    /// whose definition was removed, and those beyond the watch window.
    pub fn stored_changes(&self, revision: u64) -> Vec<StoredChange> {
        let registry = &self.0.registry;
        let changes = registry.store.changes_after(revision);
        let mut users = if changes.is_empty() { HashMap::new() } else { registry.writes.users_after(revision) };
        changes
            .iter()
            .map(|(resource, event)| StoredChange::of(resource, event, users.remove(&event.revision)))
            .collect()
    }

    /// Returns the revision of the last write.
    pub fn revision(&self) -> u64 {
        self.0.registry.store.revision()
    }

    /// Returns the number of requests so far.
    pub fn request_count(&self) -> u64 {
        self.0.requests.total()
    }

    /// Returns the number of requests so far by verb and resource, such as `LIST pods`.
    pub fn request_counts(&self) -> BTreeMap<String, u64> {
        self.0.requests.by_resource()
    }

    /// Returns the revision of the last write to resources other than these.
    pub fn last_change(&self, except: &[&str]) -> u64 {
        self.0.registry.store.last_change(|resource| !except.contains(&&*resource.resource))
    }
}
