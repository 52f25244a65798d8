//! How an object changes.
//!
//! Every change runs the same way: read what is stored, make a candidate of it, record who owns what, admit, validate,
//! store if nothing changed meanwhile, else begin anew.

use super::decode::{self, Decoded};
use super::managed::{Conversions, MAX_COUNTS};
use super::resource::Resource;
use super::write::{Change, Outcome, Target, Writer, Written, refusal};
use super::{managed, meta};
use crate::admission::{Attributes, Operation};
use crate::custom::schema_number;
use crate::kinds::{Checks, Part};
use crate::server::Inner;
use crate::storage::{self, Entry};
use flyball_core::field::FieldError;
use flyball_core::{GroupVersionKind, Object, ObjectKey, Status, names};
use serde_json::Value;
use std::sync::Arc;

/// How often a change begins anew before it gives up.
const MAX_ATTEMPTS: usize = 10;

impl Inner {
    /// Changes an object, or makes it where that is allowed.
    pub(crate) async fn change(
        &self,
        target: &Target,
        change: &Change,
        writer: &Writer<'_>,
    ) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        let key = target.key();
        for _ in 0..MAX_ATTEMPTS {
            let Some(entry) = self.store.get(&resource.table, &key) else {
                return self.change_nothing(target, change, writer).await;
            };
            let _turn = self.turn(resource).await;
            let live = self.object(resource, &*self.shown_one(resource, entry.clone()).await?)?;
            let mut object = self.candidate(target, change, Some(&live), writer).await?;
            check_version(target, change, &object, &live)?;
            object.metadata_mut().insert("resourceVersion".into(), live.resource_version().into());
            let mut attributes = Attributes::new(target, Operation::Update, writer);
            attributes.name = key.name();
            self.admission.admit(self, &attributes, &mut object, Some(&live)).await?;
            self.finish(target, &mut object, &live, writer)?;
            writer.warnings.add(resource.warnings(&object, Some(&live)));
            writer.warnings.add(meta::finalizer_warnings(resource, &object, Some(&live)));
            self.admission.validate(self, &attributes, &object, Some(&live)).await?;
            if !writer.options.dry_run {
                resource.settle(&mut object);
            }
            let object = if object == live && !self.rewrites(&target.resource, &entry, &live).await? {
                Written::Stored(self.shown_one(resource, entry).await?)
            } else if writer.options.dry_run {
                self.bounded_entry(resource, &key, object.clone(), 0, Some(&entry)).map_err(refusal)?;
                Written::Shown(Box::new(object))
            } else {
                match self.store_change(&target.resource, &key, &entry, object, &live).await? {
                    Ok(Written::Stored(entry)) => Written::Stored(self.shown_one(resource, entry).await?),
                    Ok(written) => written,
                    Err(storage::Error::Changed) => continue,
                    Err(error) => return Err(refusal(error)),
                }
            };
            return Ok(Outcome { object, created: false });
        }
        Err(Status::stale(&resource.group_resource(), key.name()))
    }

    /// Tells whether a write that changes nothing changes what is stored: it moves a custom resource to the storage
    /// version, and adds defaults that are younger than the object.
    async fn rewrites(&self, resource: &Arc<Resource>, entry: &Arc<Entry>, live: &Object) -> Result<bool, Status> {
        let Some(stored) = resource.stored_as(self) else { return Ok(false) };
        if entry.schema == stored.schema_number {
            return Ok(false);
        }
        if !schema_number::same_version(entry.schema, stored.schema_number) {
            return Ok(true);
        }
        let (stored_as, object) = self.to_stored(resource, live.clone()).await?;
        Ok(self.entry(&stored_as, &entry.key, object, entry.revision).object() != entry.object())
    }

    /// Stores what an object has become; one that was only held by finalizers goes with the last of them.
    async fn store_change(
        &self,
        resource: &Arc<Resource>,
        key: &ObjectKey,
        entry: &Arc<Entry>,
        object: Object,
        live: &Object,
    ) -> Result<Result<Written, storage::Error>, Status> {
        if is_released(resource, &object, live) {
            // Watches are shown what was stored last, the writer what it made of it.
            let last = self.store.remove(&resource.table, key, entry, |revision| entry.at(revision)).await;
            return Ok(last.map(|last| {
                self.removed(resource, &last);
                Written::Shown(Box::new(object))
            }));
        }
        let (stored_as, object) = self.to_stored(resource, object).await?;
        let make = |revision| self.bounded_entry(&stored_as, key, object, revision, Some(entry));
        let stored = self.store.put(&resource.table, key, Some(entry), make).await;
        Ok(stored.map(|entry| {
            self.written(resource, &entry);
            Written::Stored(entry)
        }))
    }

    /// Tells whether something is stored that cannot be read: whoever replaces it creates it.
    fn is_quarantined(&self, target: &Target) -> bool {
        self.store.quarantined(&target.resource.table, &target.key()).is_some()
    }

    /// A change of what is not there: some make it.
    async fn change_nothing(&self, target: &Target, change: &Change, writer: &Writer<'_>) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        let whole = target.part == Part::Whole;
        match change {
            Change::Replace(object) if whole && (resource.create_on_update() || self.is_quarantined(target)) => {
                let mut object = object.clone();
                object.metadata_mut().remove("resourceVersion");
                self.create(target, object, writer).await
            }
            Change::Apply(wanted) if whole => {
                if !wanted.uid().is_empty() {
                    let uid = wanted.uid();
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Status::conflict(&resource.group_resource(), target.name(), why));
                }
                let mut object = self.candidate(target, change, None, writer).await?;
                object.metadata_mut().remove("resourceVersion");
                meta::place(&mut object, target.namespace.as_deref())?;
                self.insert(target, object, writer).await
            }
            _ => Err(Status::not_found(&resource.group_resource(), target.name())),
        }
    }

    /// Finds out whether a change can be made at all of what is there, and makes nothing of it.
    pub(crate) async fn try_out(&self, target: &Target, change: &Change, writer: &Writer<'_>) -> Result<(), Status> {
        let resource = &*target.resource;
        let live = match self.store.get(&resource.table, &target.key()) {
            Some(entry) => Some(self.object(resource, &*self.shown_one(resource, entry).await?)?),
            None => None,
        };
        self.candidate(target, change, live.as_ref(), writer).await.map(drop)
    }

    /// Makes what a client wants out of what is there, with the owners of its fields in whatever version.
    async fn candidate(
        &self,
        target: &Target,
        change: &Change,
        live: Option<&Object>,
        writer: &Writer<'_>,
    ) -> Result<Object, Status> {
        let mut conversions = Conversions::default();
        for _ in 1..MAX_COUNTS {
            let made = self.candidate_with(&conversions, target, change, live, writer);
            if !conversions.complete(self, &target.resource).await {
                return made;
            }
        }
        self.candidate_with(&conversions, target, change, live, writer)
    }

    /// The same, with what is known of how other versions show the object.
    fn candidate_with(
        &self,
        conversions: &Conversions,
        target: &Target,
        change: &Change,
        live: Option<&Object>,
        writer: &Writer<'_>,
    ) -> Result<Object, Status> {
        let resource = &*target.resource;
        let now = self.clock.now_rfc3339();
        let by = managed::By { name: &writer.manager, part: target.part, now: &now, conversions };
        let catalog = self.catalog();
        let mut object = match (change, live) {
            (Change::Apply(wanted), _) => {
                let mut wanted = wanted.clone();
                if live.is_some() {
                    // Which version it is made on has been seen to.
                    wanted.metadata_mut().remove("resourceVersion");
                }
                let merged = managed::apply(&catalog, resource, live, &wanted, writer.options.force, &by)?;
                let (mut object, _) = decode::read(resource, merged)?;
                resource.default_within(&mut object, live)?;
                live.iter().for_each(|live| put_back(resource, &mut object, live, target.part));
                return Ok(object);
            }
            (Change::Replace(object), _) => object.clone(),
            (Change::With(with), Some(live)) => {
                let mut object = live.clone();
                with(&mut object)?;
                object
            }
            (Change::Patch(patch), Some(live)) => {
                let Decoded { object, warnings } =
                    patch.apply(Some(&catalog), resource, live, writer.options.field_validation)?;
                writer.warnings.add(warnings);
                target.check_name(&object)?;
                object
            }
            (Change::Patch(_) | Change::With(_), None) => unreachable!("only what is there is patched"),
        };
        resource.default_within(&mut object, live)?;
        meta::place(&mut object, target.namespace.as_deref())?;
        writer.warnings.add(meta::dedup_owners(&mut object, matches!(change, Change::Patch(_))));
        // Binding a pod is no write of its fields, as far as their owners are concerned.
        if target.part != Part::Binding {
            managed::update(&catalog, resource, live, &mut object, &by);
        }
        live.iter().for_each(|live| put_back(resource, &mut object, live, target.part));
        Ok(object)
    }

    /// Carries over what a change may leave out, and validates the result.
    fn finish(&self, target: &Target, object: &mut Object, live: &Object, writer: &Writer<'_>) -> Result<(), Status> {
        let resource = &*target.resource;
        meta::carry_generation(object, live);
        resource.prepare(object, Some(live), target.part, &self.clock);
        meta::carry(object, live);
        managed::keep_times(object, live);
        let mut errors = meta::validate(resource, object, names::path_segment);
        errors.extend(meta::validate_update(object, live));
        // The rules of a kind look at metadata again, and clients are told what they find.
        if resource.checks() != Checks::Once {
            errors.extend(meta::validate_update(object, live));
        }
        let found = resource.validate(object, Some(live), target.part);
        writer.warnings.add(found.tolerated.iter().map(ToString::to_string));
        errors.extend(found.errors);
        if resource.checks() == Checks::Whole && target.part == Part::Whole {
            errors.extend(meta::validate(resource, object, resource.name_rule()));
            errors.extend(resource.validate_finalizers(object));
        }
        if !errors.is_empty() {
            return Err(Status::invalid(&resource.refused_kind(), object.name(), &errors));
        }
        if resource.counts_generations()
            && !matches!(target.part, Part::Binding | Part::Status)
            && wants_other(resource, object, live)
        {
            object.metadata_mut().insert("generation".into(), (live.generation() + 1).into());
        }
        resource.forget(object);
        Ok(())
    }
}

/// Puts back what a write through a part has no say in.
fn put_back(resource: &Resource, object: &mut Object, live: &Object, part: Part) {
    let restore = |object: &mut Object, field: &str| {
        match live.get(field) {
            Some(value) => object.insert(field.into(), value.clone()),
            None => object.remove(field),
        };
    };
    match part {
        // These put back themselves what they do not change.
        Part::Approval | Part::Binding | Part::Scale => {}
        Part::Status => {
            let mut kept = live.clone();
            match object.remove("status") {
                Some(status) => kept.insert("status".into(), status),
                None => kept.remove("status"),
            };
            let mut metadata = std::mem::take(object.metadata_mut());
            if resource.custom().is_some() {
                const OWN: [&str; 2] = ["managedFields", "resourceVersion"];
                metadata.retain(|field, _| OWN.contains(&field.as_str()));
                kept.metadata_mut().retain(|field, _| !OWN.contains(&field.as_str()));
                kept.metadata_mut().extend(metadata);
            } else {
                if &*resource.kind.kind == "Deployment" {
                    match live.metadata().and_then(|metadata| metadata.get("labels")) {
                        Some(labels) => metadata.insert("labels".into(), labels.clone()),
                        None => metadata.remove("labels"),
                    };
                }
                *kept.metadata_mut() = metadata;
            }
            *object = kept;
        }
        _ if resource.has_part(Part::Status) => restore(object, "status"),
        _ => {}
    }
}

/// Tells whether the last finalizer that held a deleted object has gone.
fn is_released(resource: &Resource, object: &Object, live: &Object) -> bool {
    let deleted = object.deletion_timestamp().is_some() && live.deletion_timestamp().is_some();
    let grace = object.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
    deleted
        && grace == 0
        && object.finalizers().next().is_none()
        && !crate::kinds::outlives_finalizers(resource, object)
}

/// Refuses a change that was made on another version of the object than the one that is there.
fn check_version(target: &Target, change: &Change, object: &Object, live: &Object) -> Result<(), Status> {
    let resource = &*target.resource;
    let given = match change {
        Change::Apply(wanted) => wanted.resource_version(),
        _ => object.resource_version(),
    };
    let uid = object.uid();
    if matches!(change, Change::Replace(_)) && !uid.is_empty() && uid != live.uid() {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", live.uid());
        return Err(Status::conflict(
            &resource.group_resource(),
            target.name(),
            storage_error(resource, &live.key(), &why),
        ));
    }
    if matches!(change, Change::Apply(_)) && given.is_empty() {
        return Ok(());
    }
    let number: u64 = match given {
        "" => 0,
        given => super::read::parse_number(given).map_err(|why| Status::new(500, None, why))?,
    };
    if number == 0 {
        if resource.versioned_updates() && target.part != Part::Scale {
            let kind = GroupVersionKind { kind: resource.plural.clone(), ..resource.kind.clone() };
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            return Err(Status::invalid(&kind, target.name(), &[error]));
        }
        return Ok(());
    }
    if number.to_string() != live.resource_version() {
        return Err(Status::stale(&resource.group_resource(), target.name()));
    }
    Ok(())
}

/// Tells whether more than metadata and status differ: whether something else is wanted now.
fn wants_other(resource: &Resource, object: &Object, live: &Object) -> bool {
    let status_apart = resource.has_part(Part::Status);
    let skipped = |name: &str| matches!(name, "apiVersion" | "kind" | "metadata") || name == "status" && status_apart;
    let differs = |a: &Object, b: &Object| a.iter().any(|(name, value)| !skipped(name) && b.get(name) != Some(value));
    if differs(object, live) || differs(live, object) {
        return true;
    }
    let annotations = |object: &Object| object.metadata().and_then(|metadata| metadata.get("annotations")).cloned();
    &*resource.kind.kind == "Deployment" && resource.custom().is_none() && annotations(object) != annotations(live)
}

/// Words a refusal of storage's as the real server does.
pub(crate) fn storage_error(resource: &Resource, key: &ObjectKey, why: &str) -> String {
    let (group, plural) = (&*resource.kind.group, &*resource.plural);
    // Built-in kinds lie side by side, some of them under names that they once had.
    let place = match (group, plural) {
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => format!("{group}/{plural}"),
        _ if resource.custom().is_some() => format!("{group}/{plural}"),
        _ => plural.to_owned(),
    };
    let key = format!("/registry/{place}/{key}");
    format!("StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}")
}
