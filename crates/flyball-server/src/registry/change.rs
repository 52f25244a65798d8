//! Changes of objects.
//!
//! Every change runs the same stages: read the stored object, create a candidate with managed fields, admit, validate,
//! and store it if the object is unchanged; otherwise retry.

use super::Registry;
use super::candidate::{Candidate, record_fields};
use super::managed::{self, Conversions, FieldManager, MAX_OWNERSHIP_PASSES};
use super::meta;
use super::patch::{Patch, check_custom_kind};
use crate::admission::{Attributes, Edit, Editor, Operation, Writer};
use crate::auth::User;
use crate::catalog::decode::{self, DecodedObject};
use crate::catalog::{Resource, Target};
use crate::custom::schema_number;
use crate::kinds::Part;
use crate::response::Warnings;
use crate::storage::{self, Entry, Revision};
use flyball_core::field::FieldError;
use flyball_core::{GroupVersionKind, Object, ObjectKey, Status};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of attempts of a change.
const MAX_ATTEMPTS: usize = 10;

/// A change of an object that a client requests.
pub(crate) enum Change<'c> {
    /// A PUT of this object.
    Replace(Input<'c, Object>),
    /// A patch of the stored object.
    Patch(Input<'c, Patch>),
    /// A server-side apply of this object.
    Apply(Input<'c, Object>),
    /// A function on the stored object; for writes of the server's own.
    With(Edit),
}

/// A decoded body. Each attempt of a change consumes it, because a copy could take many times the memory of the body:
/// the first attempt the value that was decoded before, further ones decode the body again.
pub(crate) struct Input<'c, T> {
    decoded: Mutex<Option<T>>,
    decode: Box<dyn Fn() -> Result<T, Status> + Send + Sync + 'c>,
}

impl<'c, T> Input<'c, T> {
    /// Creates the input from the decoded body, and the function that decodes it.
    pub(crate) fn new(decoded: T, decode: impl Fn() -> Result<T, Status> + Send + Sync + 'c) -> Self {
        Self { decoded: Mutex::new(Some(decoded)), decode: Box::new(decode) }
    }

    fn get(&self) -> Result<T, Status> {
        let decoded = self.decoded.lock().take();
        decoded.map_or_else(|| (self.decode)(), Ok)
    }
}

/// The result of a change before admission.
struct Draft {
    object: Object,
    /// The stored object in the version of the request.
    live: Option<Object>,
    /// The resource version that a client applies with.
    applied_version: String,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) object: WrittenObject,
    pub(crate) created: bool,
}

/// An object that was written, or would have been.
#[derive(Debug)]
pub(crate) enum WrittenObject {
    Stored(Arc<Entry>),
    /// The object of a dry run, or one that this write removed.
    Unstored(Box<Object>),
}

impl Registry {
    /// Changes an object, or creates it where that is allowed.
    pub(crate) async fn change(
        &self,
        target: &Target,
        change: &Change<'_>,
        writer: &Writer<'_>,
    ) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        let key = target.key();
        for _ in 0..MAX_ATTEMPTS {
            let Some(entry) = self.store.get(&resource.table, &key) else {
                return self.change_missing(target, change, writer).await;
            };
            let Draft { object, live, applied_version } = self.draft(target, change, Some(&entry), writer).await?;
            let live = live.expect("the draft of a stored object has decoded it");
            let mut candidate = Candidate::new(target, Some(&live), object);
            check_version(target, change, &candidate.object, &applied_version, &live)?;
            candidate.object.metadata_mut().insert("resourceVersion".into(), live.resource_version().into());
            let attributes = Attributes::new(target, Operation::Update, writer).with_name(key.name()).with_old(&live);
            self.admit(&attributes, &mut candidate.object).await?;
            candidate.set_system_fields(&self.clock, &self.rng);
            candidate.restore_times();
            candidate.validate(writer)?;
            candidate.count_generation();
            candidate.drop_empty_lists();
            candidate.warn(writer);
            self.admission.validate(&attributes, Some(&candidate.object)).await?;
            candidate.normalize_empty();
            let object = candidate.object;
            let object = if object == live && !self.rewrites(&target.resource, &entry, &live).await? {
                WrittenObject::Stored(self.codec.convert(resource, entry).await?)
            } else if writer.options.dry_run {
                drop(live);
                self.bounded_entry(resource, &key, object.clone(), 0, Some(&entry)).map_err(to_status)?;
                WrittenObject::Unstored(Box::new(object))
            } else {
                match self.store_change(target, &entry, object, live, writer).await? {
                    Ok(WrittenObject::Stored(entry)) => {
                        WrittenObject::Stored(self.codec.convert(resource, entry).await?)
                    }
                    Ok(written) => written,
                    Err(storage::Error::Changed) => continue,
                    Err(error) => return Err(to_status(error)),
                }
            };
            return Ok(Outcome { object, created: false });
        }
        Err(Status::stale(&resource.group_resource(), key.name()))
    }

    /// Runs mutating admission, then allocates addresses. Managed fields that it made invalid are restored.
    pub(super) async fn admit(&self, attributes: &Attributes<'_>, object: &mut Object) -> Result<(), Status> {
        let managed = self.admission.changes_objects().then(|| managed::Snapshot::of(object));
        self.admission.admit(attributes, Some(object)).await?;
        if let Some(why) = managed.and_then(|managed| managed.restore_invalid(object)) {
            attributes.warnings.add([format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {why}"
            )]);
        }
        if attributes.resource.allocates_addresses() {
            self.addresses.allocate(attributes, object)?;
        }
        Ok(())
    }

    /// Returns true if a write without changes still changes the stored form: it migrates a custom resource to the
    /// storage version, and adds defaults that are newer than the object.
    async fn rewrites(&self, resource: &Arc<Resource>, entry: &Arc<Entry>, live: &Object) -> Result<bool, Status> {
        let Some(stored) = self.codec.catalog().storage_version(resource) else { return Ok(false) };
        if entry.schema == stored.schema_number {
            return Ok(false);
        }
        if !schema_number::same_version(entry.schema, stored.schema_number) {
            return Ok(true);
        }
        let (stored_as, object) = self.codec.as_stored(resource, live.clone()).await?;
        let rewritten = self.codec.encode(&stored_as, &entry.key, object, entry.revision);
        Ok(rewritten.body != entry.body && rewritten.object() != entry.object())
    }

    /// Stores a changed object, or removes one whose last finalizer was removed.
    async fn store_change(
        &self,
        target: &Target,
        entry: &Arc<Entry>,
        object: Object,
        live: Object,
        writer: &Writer<'_>,
    ) -> Result<Result<WrittenObject, storage::Error>, Status> {
        let (resource, key) = (&target.resource, &entry.key);
        let is_released = is_released(resource, &object, &live);
        drop(live);
        if is_released {
            // Watches receive the last stored object, the writer the changed one.
            let last = self.remove_stored(target, entry, writer).await;
            return Ok(last.map(|_| WrittenObject::Unstored(Box::new(object))));
        }
        let (stored_as, object) = self.codec.as_stored(resource, object).await?;
        let make = |revision| self.bounded_entry(&stored_as, key, object, revision, Some(entry));
        let stored = self.store.put(&resource.table, key, Some(entry), make).await;
        Ok(stored.map(|entry| {
            self.note_written(resource);
            self.record_write(target, key, entry.revision, writer);
            WrittenObject::Stored(entry)
        }))
    }

    /// Returns true if the stored object cannot be decoded: then a PUT creates it.
    fn is_quarantined(&self, target: &Target) -> bool {
        self.store.quarantined(&target.resource.table, &target.key()).is_some()
    }

    /// Handles a change of a missing object: a PUT or an apply may create it.
    async fn change_missing(
        &self,
        target: &Target,
        change: &Change<'_>,
        writer: &Writer<'_>,
    ) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        let whole = target.part == Part::Whole;
        match change {
            Change::Replace(object) if whole && (resource.create_on_update() || self.is_quarantined(target)) => {
                let mut object = object.get()?;
                object.metadata_mut().remove("resourceVersion");
                self.create(target, object, writer).await
            }
            Change::Apply(_) if whole => {
                let Draft { object, .. } = self.draft(target, change, None, writer).await?;
                let mut candidate = Candidate::new(target, None, object);
                candidate.object.metadata_mut().remove("resourceVersion");
                candidate.set_namespace()?;
                self.insert(target, candidate, writer).await
            }
            _ => Err(Status::not_found(&resource.group_resource(), target.name())),
        }
    }

    /// Checks if a change applies to the stored object, without applying it.
    pub(crate) async fn check_change(
        &self,
        target: &Target,
        change: &Change<'_>,
        writer: &Writer<'_>,
    ) -> Result<(), Status> {
        let entry = self.store.get(&target.resource.table, &target.key());
        self.draft(target, change, entry.as_ref(), writer).await.map(drop)
    }

    /// Decodes a stored object as a version of its resource.
    pub(super) async fn live(&self, resource: &Resource, entry: &Arc<Entry>) -> Result<Object, Status> {
        let entry = self.codec.convert(resource, entry.clone()).await?;
        Ok(self.codec.decode(resource, &entry)?)
    }

    /// Changes an object, with managed fields of all versions.
    async fn draft(
        &self,
        target: &Target,
        change: &Change<'_>,
        entry: Option<&Arc<Entry>>,
        writer: &Writer<'_>,
    ) -> Result<Draft, Status> {
        let entry = match entry {
            Some(entry) => Some(self.codec.convert(&target.resource, entry.clone()).await?),
            None => None,
        };
        let mut conversions = Conversions::default();
        for _ in 1..MAX_OWNERSHIP_PASSES {
            let outcome = self.draft_with(&conversions, target, change, entry.as_deref(), writer);
            if !conversions.has_missing() {
                return outcome;
            }
            drop(outcome);
            conversions.complete(&self.codec, &target.resource).await?;
        }
        self.draft_with(&conversions, target, change, entry.as_deref(), writer)
    }

    /// Changes an object, with these conversions of the object to other versions.
    ///
    /// The stored object is decoded as late as possible, because objects may take many times the memory of their text.
    fn draft_with(
        &self,
        conversions: &Conversions,
        target: &Target,
        change: &Change<'_>,
        entry: Option<&Entry>,
        writer: &Writer<'_>,
    ) -> Result<Draft, Status> {
        let resource = &*target.resource;
        let now = self.clock.now_rfc3339();
        let by = FieldManager { name: &writer.manager, part: target.part, now: &now, conversions };
        let catalog = self.codec.catalog();
        let live = || entry.map(|entry| self.codec.decode(resource, entry)).transpose();
        let stored = || Ok::<_, Status>(live()?.expect("only existing objects are patched"));
        let object = match change {
            Change::Apply(wanted) => {
                let (wanted, live) = (wanted.get()?, live()?);
                return self.applied(target, wanted, live, &by, writer);
            }
            Change::Replace(object) => object.get()?,
            Change::With(with) => {
                let mut object = stored()?;
                with(&mut object)?;
                object
            }
            Change::Patch(patch) => {
                let DecodedObject { object, warnings } =
                    patch.get()?.apply(Some(&catalog), resource, &stored, writer.options.field_validation)?;
                writer.warnings.add(warnings);
                check_custom_kind(resource, &object)?;
                target.check_name(&object)?;
                object
            }
        };
        let mut live = live()?;
        let mut candidate = Candidate::new(target, live.as_ref(), object);
        candidate.set_namespace()?;
        candidate.default()?;
        let is_patch = matches!(change, Change::Patch(_));
        writer.warnings.add(meta::dedup_owners(&mut candidate.object, is_patch));
        let mut object = candidate.object;
        record_fields(&catalog, target, live.as_mut(), &mut object, &by)?;
        let mut candidate = Candidate::new(target, live.as_ref(), object);
        candidate.restore_readonly_fields();
        Ok(Draft { object: candidate.object, live, applied_version: String::new() })
    }

    /// Merges an applied configuration into the stored object.
    fn applied(
        &self,
        target: &Target,
        mut wanted: Object,
        mut live: Option<Object>,
        by: &FieldManager<'_>,
        writer: &Writer<'_>,
    ) -> Result<Draft, Status> {
        let resource = &*target.resource;
        if live.is_none() && !wanted.uid().is_empty() {
            let uid = wanted.uid();
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(&resource.group_resource(), target.name(), why));
        }
        let applied_version = wanted.resource_version().to_owned();
        if live.is_some() && wanted.at(&["metadata", "resourceVersion"]).is_some() {
            // `check_version` compares it.
            wanted.metadata_mut().remove("resourceVersion");
        }
        let catalog = self.codec.catalog();
        let merged = managed::apply(&catalog, resource, live.as_mut(), wanted, writer.options.force, by)?;
        let (object, _) = decode::read(resource, merged)?;
        let mut candidate = Candidate::new(target, live.as_ref(), object);
        candidate.default()?;
        if live.is_some() {
            candidate.restore_readonly_fields();
        }
        Ok(Draft { object: candidate.object, live, applied_version })
    }

    /// Encodes an object as an entry, or rejects it if it is too large.
    ///
    /// Objects from clients, webhooks, policies and controllers all pass here.
    pub(super) fn bounded_entry(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        object: Object,
        revision: Revision,
        before: Option<&Arc<Entry>>,
    ) -> Result<Entry, storage::Error> {
        self.codec.encode(resource, key, object, revision).bounded(before.map(|before| &**before))
    }
}

impl Editor for Registry {
    fn edit<'a>(&'a self, target: &'a Target, user: &'a User, edit: Edit) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let warnings = Warnings::default();
            self.change(target, &Change::With(edit), &Writer::server(user, &warnings)).await.map(drop)
        })
    }
}

/// Returns true if a change removes the last finalizer of a deleted object.
fn is_released(resource: &Resource, object: &Object, live: &Object) -> bool {
    let deleted = object.deletion_timestamp().is_some() && live.deletion_timestamp().is_some();
    let grace = object.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
    deleted && grace == 0 && object.finalizers().next().is_none() && !resource.outlives_deletion(object)
}

/// Rejects a change whose resource version or UID is not that of the stored object.
fn check_version(
    target: &Target,
    change: &Change<'_>,
    object: &Object,
    applied_version: &str,
    live: &Object,
) -> Result<(), Status> {
    let resource = &*target.resource;
    let given = match change {
        Change::Apply(_) => applied_version,
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

/// Returns kube-apiserver's message for a storage error.
pub(crate) fn storage_error(resource: &Resource, key: &ObjectKey, why: &str) -> String {
    let key = format!("/registry/{}/{key}", resource.registry_path());
    format!("StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}")
}

/// Converts an error of storage, other than a conflict, into a `Status`.
pub(super) fn to_status(error: storage::Error) -> Status {
    match error {
        storage::Error::TooLarge { why } => Status::too_large(format!("Request entity too large: {why}")),
        // As for a body that is nested too deep.
        storage::Error::TooDeep { why } => Status::bad_request(&*why),
        error => Status::internal(error),
    }
}
