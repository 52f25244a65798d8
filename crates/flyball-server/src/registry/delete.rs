//! Deletion: immediately, or by a deletion timestamp until the grace period is over and finalizers are removed.

use super::Registry;
use super::change::WrittenObject;
use crate::admission::{Attributes, Writer};
use crate::catalog::{Resource, Target};
use crate::kinds::Part;
use crate::request::options::{DeleteOptions, Propagation};
use crate::storage::{self, Entry};
use flyball_core::{GroupResource, Object, ObjectKey, Status, time};
use serde_json::{Value, json};
use std::sync::Arc;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum DeletionResult {
    /// The object was deleted; this is its last state.
    Gone(Box<Object>),
    /// The object is only marked.
    Marked(WrittenObject),
}

impl Registry {
    /// Deletes an object, or marks it to be deleted.
    pub(crate) async fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
        writer: &Writer<'_>,
    ) -> Result<DeletionResult, Status> {
        self.delete_as(target, target.name(), options, writer).await
    }

    /// Deletes one object, with the name for admission: none for a collection.
    async fn delete_as(
        &self,
        target: &Target,
        name: &str,
        options: &DeleteOptions,
        writer: &Writer<'_>,
    ) -> Result<DeletionResult, Status> {
        let key = target.key();
        loop {
            if let Some(entry) = self.store.quarantined(&target.resource.table, &key) {
                return self.delete_unreadable(target, &entry, options, writer).await;
            }
            let entry = self.get(&target.resource, &key)?;
            let live = self.live(&target.resource, &entry).await?;
            check_preconditions(&target.resource, options, &live)?;
            let attributes = Attributes::of_deletion(target, options, writer).with_name(name).with_old(&live);
            self.admission.admit(&attributes, None).await?;
            self.admission.validate(&attributes, None).await?;
            match self.delete_once(target, &entry, live, options, writer).await? {
                Err(storage::Error::Changed) => {}
                Err(error) => return Err(Status::internal(error)),
                Ok(deleted) => return Ok(deleted),
            }
        }
    }

    /// Deletes a quarantined object, regardless of finalizers, which no client could remove.
    async fn delete_unreadable(
        &self,
        target: &Target,
        entry: &Arc<Entry>,
        options: &DeleteOptions,
        writer: &Writer<'_>,
    ) -> Result<DeletionResult, Status> {
        let mut object = Object::default();
        object.set_kind(&target.resource.kind);
        object.metadata_mut().insert("name".into(), target.name().into());
        if let Some(namespace) = &target.namespace {
            object.metadata_mut().insert("namespace".into(), namespace.as_str().into());
        }
        object.metadata_mut().insert("resourceVersion".into(), entry.revision.to_string().into());
        check_preconditions(&target.resource, options, &object)?;
        if options.dry_run {
            return Ok(DeletionResult::Gone(Box::new(object)));
        }
        let table = &target.resource.table;
        let removed = self.store.remove(table, &entry.key, entry, |revision| entry.at(revision)).await;
        let removed = removed.map_err(|error| match error {
            storage::Error::Changed => Status::stale(&target.resource.group_resource(), target.name()),
            error => Status::internal(error),
        })?;
        self.record_write(target, &entry.key, removed.revision, writer);
        object.metadata_mut().insert("resourceVersion".into(), removed.revision.to_string().into());
        Ok(DeletionResult::Gone(Box::new(object)))
    }

    async fn delete_once(
        &self,
        target: &Target,
        entry: &Arc<Entry>,
        live: Object,
        options: &DeleteOptions,
        writer: &Writer<'_>,
    ) -> Result<Result<DeletionResult, storage::Error>, Status> {
        let (resource, key) = (&target.resource, &entry.key);
        let graceful = resource.deletion().and_then(|deletion| deletion.grace);
        let grace = graceful.map_or(0, |grace| grace(&live, options.grace_period_seconds));
        let finalizers = finalizers_for(resource, &live, options.propagation);
        let finalizers_changed = !finalizers.iter().map(String::as_str).eq(live.finalizers());
        let with_finalizers = |mut object: Object| {
            if finalizers_changed {
                set_finalizers(&mut object, &finalizers);
            }
            object
        };
        let stays = !finalizers.is_empty() || grace > 0 || resource.outlives_deletion(&live);
        // Kinds with a grace period are marked even if it is zero.
        let ends = !stays && graceful.is_some();
        if !stays && !ends {
            let object = with_finalizers(live);
            return Ok(if options.dry_run {
                Ok(DeletionResult::Gone(Box::new(object)))
            } else {
                self.remove_entry(target, entry, object, writer).await
            });
        }
        let mut object = with_finalizers(live.clone());
        mark(&mut object, &live, grace, self.clock.now());
        if let Some(deletion) = resource.deletion() {
            (deletion.mark)(&mut object, &live, &self.clock);
        }
        let is_unchanged = object == live;
        drop(live);
        if options.dry_run || is_unchanged && !ends {
            let object = Box::new(object);
            return Ok(Ok(if ends {
                DeletionResult::Gone(object)
            } else {
                DeletionResult::Marked(WrittenObject::Unstored(object))
            }));
        }
        if is_unchanged {
            return Ok(self.remove_entry(target, entry, object, writer).await);
        }
        let (stored_as, object) = self.codec.as_stored(resource, object).await?;
        // Oversized objects can be deleted.
        let make = |revision| Ok(self.codec.encode(&stored_as, key, object, revision));
        let stored = self.store.put(&resource.table, key, Some(entry), make).await;
        match stored {
            Ok(entry) => {
                self.note_written(resource);
                self.record_write(target, key, entry.revision, writer);
                if ends {
                    let marked = self.codec.decode(resource, &entry)?;
                    let removed = self.remove_entry(target, &entry, marked.clone(), writer).await;
                    // A controller may have removed the marked object first, and another one may have been created
                    // since. That one must not be deleted.
                    let is_marked = |now: Arc<Entry>| now.object().is_ok_and(|now| now.uid() == marked.uid());
                    let gone = || !self.store.get(&resource.table, key).is_some_and(is_marked);
                    return Ok(match removed {
                        Err(storage::Error::Changed) if gone() => Ok(DeletionResult::Gone(Box::new(marked))),
                        removed => removed,
                    });
                }
                Ok(Ok(DeletionResult::Marked(WrittenObject::Stored(self.codec.convert(resource, entry).await?))))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// Removes an object from the store; returns it with the revision of its removal.
    async fn remove_entry(
        &self,
        target: &Target,
        entry: &Arc<Entry>,
        mut object: Object,
        writer: &Writer<'_>,
    ) -> Result<DeletionResult, storage::Error> {
        let removed = self.remove_stored(target, entry, writer).await?;
        object.metadata_mut().insert("resourceVersion".into(), removed.revision.to_string().into());
        Ok(DeletionResult::Gone(Box::new(object)))
    }

    /// Removes an object from the store; returns its last state. The unreadable objects of a namespace are removed
    /// before it: nobody can list them, and they do not belong to the next namespace of that name.
    pub(super) async fn remove_stored(
        &self,
        target: &Target,
        entry: &Arc<Entry>,
        writer: &Writer<'_>,
    ) -> Result<Arc<Entry>, storage::Error> {
        let (resource, key) = (&*target.resource, &entry.key);
        if resource.deletion().is_some_and(|deletion| deletion.removes_content) {
            self.remove_unreadable(|_, of| of.namespace() == Some(key.name()), key.name()).await?;
        }
        let removed = self.store.remove(&resource.table, key, entry, |revision| entry.at(revision)).await?;
        self.note_removed(resource);
        self.record_write(target, key, removed.revision, writer);
        Ok(removed)
    }

    /// Removes the stored objects that cannot be decoded and are selected, regardless of finalizers, with the object
    /// `owner` that contains or defines them.
    pub(crate) async fn remove_unreadable(
        &self,
        select: impl Fn(&GroupResource, &ObjectKey) -> bool,
        owner: &str,
    ) -> Result<(), storage::Error> {
        let unreadable = self.store.quarantined_where(select);
        for (table, entry) in &unreadable {
            match self.store.remove(table, &entry.key, entry, |revision| entry.at(revision)).await {
                // It was replaced or deleted in the meantime.
                Ok(_) | Err(storage::Error::Changed) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some((resource, first)) = unreadable.first() {
            let (objects, object) = (unreadable.len(), &first.key);
            tracing::warn!(owner, objects, %resource, %object, "removed stored objects that cannot be decoded");
        }
        Ok(())
    }

    /// Deletes the objects of a list; returns their state before.
    pub(crate) async fn delete_all(
        &self,
        target: &Target,
        entries: &[Arc<Entry>],
        options: &DeleteOptions,
        writer: &Writer<'_>,
    ) -> Result<(), Status> {
        for entry in entries {
            let one = Target {
                namespace: entry.key.namespace().map(str::to_owned),
                name: Some(entry.key.name().to_owned()),
                part: Part::Whole,
                resource: target.resource.clone(),
            };
            match self.delete_as(&one, "", options, writer).await {
                Ok(_) => {}
                Err(status) if status.code == 404 => {} // another client was faster
                Err(status) => return Err(status),
            }
        }
        Ok(())
    }
}

/// Rejects a deletion whose preconditions do not match the stored object.
pub(crate) fn check_preconditions(resource: &Resource, options: &DeleteOptions, live: &Object) -> Result<(), Status> {
    // These conflicts name the kind, where all others name the resource.
    let kind = GroupResource { group: resource.kind.group.clone(), resource: resource.kind.kind.clone() };
    let reject = |why: String| Err(Status::conflict(&kind, live.name(), why));
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != live.uid()) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            live.uid()
        );
        return reject(why);
    }
    if let Some(version) = options.resource_version.as_deref().filter(|version| *version != live.resource_version()) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            live.resource_version()
        );
        return reject(why);
    }
    Ok(())
}

/// Returns the finalizers of a deleted object by its propagation policy.
fn finalizers_for(resource: &Resource, live: &Object, propagation: Option<Propagation>) -> Vec<String> {
    let has = |name: &str| live.finalizers().any(|finalizer| finalizer == name);
    let policy = propagation.unwrap_or_else(|| {
        if has(ORPHAN) {
            Propagation::Orphan
        } else if has(FOREGROUND) {
            Propagation::Foreground
        } else if resource.deletion().is_some_and(|deletion| deletion.orphans) {
            Propagation::Orphan
        } else {
            Propagation::Background
        }
    });
    let mut finalizers: Vec<String> =
        live.finalizers().filter(|name| !matches!(*name, ORPHAN | FOREGROUND)).map(str::to_owned).collect();
    match policy {
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Background => {}
    }
    let mut before: Vec<&str> = live.finalizers().collect();
    let mut after: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    before.sort_unstable();
    after.sort_unstable();
    // The order does not matter.
    if before == after { live.finalizers().map(str::to_owned).collect() } else { finalizers }
}

fn set_finalizers(object: &mut Object, finalizers: &[String]) {
    if finalizers.is_empty() {
        object.metadata_mut().remove("finalizers");
    } else {
        object.metadata_mut().insert("finalizers".into(), json!(finalizers));
    }
}

/// Sets the deletion timestamp of an object; a later deletion may shorten the grace period, but not extend it.
fn mark(object: &mut Object, live: &Object, grace: i64, now: time::Timestamp) {
    let metadata = object.metadata_mut();
    let in_force =
        live.metadata().and_then(|metadata| metadata.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    if live.deletion_timestamp().is_some() && in_force.is_none_or(|in_force| in_force <= grace) {
        return;
    }
    let first = live.deletion_timestamp().is_none();
    let at = now.checked_add(time::SignedDuration::from_secs(grace)).unwrap_or(now);
    metadata.insert("deletionTimestamp".into(), time::rfc3339(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if first && generation > 0 {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}
