//! Writing: how an object comes into being and how it changes.
//!
//! Every write runs the same way: read what is stored, make a candidate, record who owns what, admit, validate, store
//! if nothing changed meanwhile, else begin anew.

use super::decode::{self, Decoded};
use super::patch::Patch;
use super::resource::{Behaviour, Resource};
use super::{managed, meta};
use crate::admission::{Attributes, Operation};
use crate::auth::User;
use crate::kinds::Part;
use crate::request::options::WriteOptions;
use crate::server::Inner;
use crate::storage::{self, Entry, Revision};
use flyball_core::field::FieldError;
use flyball_core::{Object, ObjectKey, Status};
use serde_json::Value;
use std::sync::Arc;

/// How often a write begins anew before it gives up.
const MAX_ATTEMPTS: usize = 10;

/// What a write goes to.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<String>,
    /// Name in the path; none for a create.
    pub(crate) name: Option<String>,
    pub(crate) part: Part,
}

impl Target {
    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.as_deref(), self.name.as_deref().unwrap_or_default())
    }
}

/// Who writes, and how.
pub(crate) struct Writer<'w> {
    pub(crate) user: &'w User,
    /// Name under which fields are owned.
    pub(crate) manager: String,
    pub(crate) options: WriteOptions,
}

/// What a client wants an object to be.
pub(crate) enum Change {
    /// This.
    Replace(Object),
    /// What it is, patched.
    Patch(Patch),
    /// What it is, with this merged in.
    Apply(Object),
    /// What a function makes of it; for writes of the server's own.
    #[expect(clippy::type_complexity, reason = "spelled out once")]
    With(Box<dyn Fn(&mut Object) -> Result<(), Status> + Send + Sync>),
}

/// What came of a write.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) object: Written,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

/// An object that was written, or would have been.
#[derive(Debug)]
pub(crate) enum Written {
    Stored(Arc<Entry>),
    /// A dry run's, or one that ceased to be with this write.
    Shown(Box<Object>),
}

/// A candidate, and what to warn of.
struct Candidate {
    object: Object,
    warnings: Vec<String>,
}

impl Inner {
    /// Makes a new object.
    pub(crate) async fn create(&self, target: &Target, object: Object, warnings: Vec<String>, writer: &Writer<'_>) -> Result<Outcome, Status> {
        let mut outcome = self.create_decoded(target, object, writer).await?;
        outcome.warnings.splice(0..0, warnings);
        Ok(outcome)
    }

    async fn create_decoded(&self, target: &Target, mut object: Object, writer: &Writer<'_>) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        if !object.resource_version().is_empty() {
            return Err(Status::new(500, None, "resourceVersion should not be set on objects to be created"));
        }
        meta::place(&mut object, target.namespace.as_deref())?;
        resource.default(&mut object);
        self.reset(resource, &mut object, None, Part::Whole);
        let now = self.clock.now_rfc3339();
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            object.metadata_mut().remove(field);
        }
        let by = managed::By { name: &writer.manager, part: Part::Whole, now: &now };
        managed::update(&self.catalog(), resource, None, &mut object, &by);
        self.insert(target, object, writer, false).await
    }

    /// Brings a decoded object that is to be new through admission and validation, and stores it.
    async fn insert(&self, target: &Target, mut object: Object, writer: &Writer<'_>, named: bool) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        let generated = object.name().is_empty() && object.metadata().is_some_and(|m| m.get("generateName").is_some_and(|v| v != ""));
        meta::fill(&mut object, &self.clock, &self.rng);
        if resource.counts_generations() {
            object.metadata_mut().insert("generation".into(), 1.into());
        }
        let mut warnings = Vec::new();
        let mut attributes = Attributes::new(target, Operation::Create, writer);
        let name = object.name().to_owned();
        attributes.name = &name;
        self.admission.admit(self, &attributes, &mut object, None, &mut warnings).await?;
        resource.prepare(&mut object, None, Part::Whole, &self.clock);
        let mut errors = meta::validate(resource, &object);
        errors.extend(resource.validate(&object, None, Part::Whole));
        if !errors.is_empty() {
            return Err(Status::invalid(&resource.kind, object.name(), &errors));
        }
        if !named {
            let errors: Vec<FieldError> =
                flyball_core::names::path_segment(object.name()).into_iter().map(|e| FieldError::invalid("metadata.name", object.name(), e)).collect();
            if !errors.is_empty() {
                return Err(Status::invalid(&resource.kind, object.name(), &errors));
            }
        }
        warnings.extend(resource.warnings(&object, None));
        self.admission.validate(self, &attributes, Some(&object), None, &mut warnings).await?;
        let key = object.key();
        let exists = |stored: &Entry| {
            let group = resource.group_resource();
            let mut status = Status::already_exists(&group, key.name());
            if generated {
                status.message = format!("{group} {:?} already exists, the server was not able to generate a unique name for the object", key.name());
                if let Some(details) = &mut status.details {
                    details.retry_after_seconds = 1;
                }
            } else if stored.object().deletion_timestamp().is_some() {
                status.message = format!("object is being deleted: {}", status.message);
            }
            status
        };
        if let Some(stored) = self.store.get(&resource.table, &key) {
            return Err(exists(&stored));
        }
        if writer.options.dry_run {
            return Ok(Outcome { object: Written::Shown(Box::new(object)), created: true, warnings });
        }
        match self.store.put(&resource.table, &key, None, |revision| self.entry(resource, &key, object, revision)) {
            Ok(entry) => {
                self.written(resource, &entry);
                Ok(Outcome { object: Written::Stored(entry), created: true, warnings })
            }
            Err(_) => Err(self.store.get(&resource.table, &key).map_or_else(|| Status::already_exists(&resource.group_resource(), key.name()), |stored| exists(&stored))),
        }
    }

    /// Stores an object that comes with the server, past admission and validation.
    pub(crate) fn seed(&self, group: &str, version: &str, plural: &str, mut object: Object) {
        let catalog = self.catalog();
        let resource = catalog.get(group, version, plural).expect("only built-in kinds are seeded");
        object.set_kind(&resource.kind);
        let (mut object, _) = decode::read(&resource, object).expect("what comes with the server can be read");
        meta::fill(&mut object, &self.clock, &self.rng);
        resource.default(&mut object);
        if resource.counts_generations() {
            object.metadata_mut().insert("generation".into(), 1.into());
        }
        resource.prepare(&mut object, None, Part::Whole, &self.clock);
        let now = self.clock.now_rfc3339();
        let by = managed::By { name: "kube-apiserver", part: Part::Whole, now: &now };
        managed::update(&catalog, &resource, None, &mut object, &by);
        let key = object.key();
        let put = self.store.put(&resource.table, &key, None, |revision| self.entry(&resource, &key, object, revision));
        put.expect("nothing else writes before the server is made");
    }

    /// Makes the entry that holds an object.
    pub(crate) fn entry(&self, resource: &Resource, key: &ObjectKey, mut object: Object, revision: Revision) -> Entry {
        let number = match &resource.behaviour {
            Behaviour::BuiltIn(kind) => {
                kind.stored.iter().for_each(|stored| (stored.write)(&mut object));
                0
            }
            Behaviour::Custom(custom) if *custom.storage_version == *resource.kind.version => resource.schema_number,
            Behaviour::Custom(custom) => {
                let catalog = self.catalog();
                match catalog.get(&resource.kind.group, &custom.storage_version, &resource.plural) {
                    Some(stored) => {
                        object = super::read::convert(resource, &stored, object);
                        stored.schema_number
                    }
                    None => resource.schema_number,
                }
            }
        };
        let facts = resource.facts(&object);
        Entry::new(key.clone(), object, revision, facts, number)
    }

    /// Puts back what a write through a part has no say in.
    fn reset(&self, resource: &Resource, object: &mut Object, live: Option<&Object>, part: Part) {
        if !resource.has_part(Part::Status) {
            return;
        }
        let Some(live) = live else {
            let zero = resource.schema.node().field("status").map(flyball_schema::decode::zero);
            match (zero, &resource.behaviour) {
                (Some(zero), Behaviour::BuiltIn(_)) if !zero.is_null() => object.insert("status".into(), zero),
                _ => object.remove("status"),
            };
            return;
        };
        match part {
            Part::Status => {
                let status = object.get("status").cloned();
                let metadata = object.get("metadata").cloned();
                let managed = object.metadata().and_then(|metadata| metadata.get("managedFields")).cloned();
                let version = object.metadata().and_then(|metadata| metadata.get("resourceVersion")).cloned();
                *object = live.clone();
                let custom = resource.custom().is_some();
                if let Some(metadata) = metadata.filter(|_| !custom) {
                    object.insert("metadata".into(), metadata);
                }
                for (field, value) in [("managedFields", managed), ("resourceVersion", version)] {
                    match value {
                        Some(value) => object.metadata_mut().insert(field.into(), value),
                        None => object.metadata_mut().remove(field),
                    };
                }
                match status {
                    Some(status) => object.insert("status".into(), status),
                    None => object.remove("status"),
                };
            }
            Part::Scale => {}
            _ => {
                match live.get("status") {
                    Some(status) => object.insert("status".into(), status.clone()),
                    None => object.remove("status"),
                };
            }
        }
    }

    /// Changes an object, or makes it where that is allowed.
    pub(crate) async fn change(&self, target: &Target, change: &Change, writer: &Writer<'_>) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        let key = target.key();
        for _ in 0..MAX_ATTEMPTS {
            let Some(entry) = self.store.get(&resource.table, &key) else { return self.change_nothing(target, change, writer).await };
            let live = self.object(resource, &entry);
            let Candidate { mut object, mut warnings } = self.candidate(target, change, Some(&live), writer)?;
            self.check_version(target, change, &object, &live)?;
            object.metadata_mut().insert("resourceVersion".into(), live.resource_version().into());
            let mut attributes = Attributes::new(target, Operation::Update, writer);
            attributes.name = key.name();
            self.admission.admit(self, &attributes, &mut object, Some(&live), &mut warnings).await?;
            self.finish(target, &mut object, &live, &mut warnings)?;
            self.admission.validate(self, &attributes, Some(&object), Some(&live), &mut warnings).await?;
            if same(&object, &live) {
                return Ok(Outcome { object: Written::Stored(entry), created: false, warnings });
            }
            let gone = object.deletion_timestamp().is_some() && live.deletion_timestamp().is_some() && object.finalizers().next().is_none();
            let graceless = object.metadata().and_then(|m| m.get("deletionGracePeriodSeconds")).and_then(Value::as_i64).unwrap_or(0) == 0;
            if writer.options.dry_run || gone && graceless && writer.options.dry_run {
                return Ok(Outcome { object: Written::Shown(Box::new(object)), created: false, warnings });
            }
            let stored = if gone && graceless && !crate::kinds::outlives_finalizers(resource, &object) {
                // The answer shows the object as it was last, which was never stored.
                let shown = object.clone();
                let removed = self.store.remove(&resource.table, &key, &entry, |revision| self.entry(resource, &key, object, revision));
                removed.map(|last| {
                    self.removed(resource, &last);
                    Written::Shown(Box::new(shown))
                })
            } else {
                let put = self.store.put(&resource.table, &key, Some(&entry), |revision| self.entry(resource, &key, object, revision));
                put.map(|entry| {
                    self.written(resource, &entry);
                    Written::Stored(entry)
                })
            };
            match stored {
                Ok(object) => return Ok(Outcome { object, created: false, warnings }),
                Err(storage::Error::Changed) => {}
                Err(error) => return Err(Status::internal(error)),
            }
        }
        Err(Status::stale(&resource.group_resource(), key.name()))
    }

    /// A change of what is not there: some make it.
    async fn change_nothing(&self, target: &Target, change: &Change, writer: &Writer<'_>) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        let missing = || Status::not_found(&resource.group_resource(), target.name.as_deref().unwrap_or_default());
        let whole = target.part == Part::Whole;
        match change {
            Change::Replace(object) if whole && resource.create_on_update() => {
                let mut object = object.clone();
                object.metadata_mut().remove("resourceVersion");
                self.create_decoded(target, object, writer).await
            }
            Change::Apply(wanted) if whole => {
                if !wanted.uid().is_empty() {
                    let why = format!("uid mismatch: the provided object specified uid {}, and no existing object was found", wanted.uid());
                    return Err(Status::conflict(&resource.group_resource(), target.name.as_deref().unwrap_or_default(), why));
                }
                if wanted.name().is_empty() {
                    return Err(Status::bad_request("name must be provided"));
                }
                let Candidate { mut object, warnings } = self.candidate(target, change, None, writer)?;
                object.metadata_mut().remove("resourceVersion");
                meta::place(&mut object, target.namespace.as_deref())?;
                let mut outcome = self.insert(target, object, writer, true).await?;
                outcome.warnings.splice(0..0, warnings);
                Ok(outcome)
            }
            _ => Err(missing()),
        }
    }

    /// Makes what a client wants out of what is there, with the owners of its fields.
    fn candidate(&self, target: &Target, change: &Change, live: Option<&Object>, writer: &Writer<'_>) -> Result<Candidate, Status> {
        let resource = &*target.resource;
        let now = self.clock.now_rfc3339();
        let by = managed::By { name: &writer.manager, part: target.part, now: &now };
        let catalog = self.catalog();
        let mut candidate = match (change, live) {
            (Change::Apply(wanted), _) => {
                let mut wanted = wanted.clone();
                if target.part != Part::Whole || live.is_some() {
                    // Which object it is, the path says.
                    wanted.metadata_mut().remove("resourceVersion");
                }
                let merged = managed::apply(&catalog, resource, live, &wanted, writer.options.force, &by)?;
                let (mut object, _) = decode::read(resource, merged)?;
                resource.default(&mut object);
                self.reset(resource, &mut object, live, target.part);
                return Ok(Candidate { object, warnings: Vec::new() });
            }
            (Change::Replace(object), _) => Candidate { object: object.clone(), warnings: Vec::new() },
            (Change::With(with), Some(live)) => {
                let mut object = live.clone();
                with(&mut object)?;
                Candidate { object, warnings: Vec::new() }
            }
            (Change::Patch(patch), Some(live)) => {
                let Decoded { object, warnings } = patch.apply(resource, live, writer.options.field_validation)?;
                Candidate { object, warnings }
            }
            (Change::Patch(_) | Change::With(_), None) => unreachable!("only what is there is patched"),
        };
        resource.default(&mut candidate.object);
        meta::place(&mut candidate.object, target.namespace.as_deref())?;
        self.reset(resource, &mut candidate.object, live, target.part);
        managed::update(&catalog, resource, live, &mut candidate.object, &by);
        Ok(candidate)
    }

    /// Refuses a change that was made on another version of the object than the one that is there.
    fn check_version(&self, target: &Target, change: &Change, object: &Object, live: &Object) -> Result<(), Status> {
        let resource = &*target.resource;
        let given = match change {
            Change::Apply(wanted) => wanted.resource_version(),
            _ => object.resource_version(),
        };
        let name = target.name.as_deref().unwrap_or_default();
        if let (Change::Replace(_), uid) = (change, object.uid())
            && !uid.is_empty()
            && uid != live.uid()
        {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", live.uid());
            return Err(Status::conflict(&resource.group_resource(), name, storage_error(resource, &live.key(), &why)));
        }
        if matches!(change, Change::Apply(_)) && given.is_empty() {
            return Ok(());
        }
        let number: Option<u64> = if given.is_empty() { Some(0) } else { given.parse().ok() };
        let Some(number) = number else {
            let quoted = flyball_core::field::go_quote(given);
            let why = format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: invalid syntax");
            return Err(Status::new(500, None, why));
        };
        if number == 0 {
            if resource.versioned_updates() && target.part != Part::Scale {
                let kind = flyball_core::GroupVersionKind { kind: resource.plural.clone(), ..resource.kind.clone() };
                let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
                return Err(Status::invalid(&kind, name, &[error]));
            }
            return Ok(());
        }
        if number.to_string() != live.resource_version() {
            return Err(Status::stale(&resource.group_resource(), name));
        }
        Ok(())
    }

    /// Carries over what a change may leave out, and validates the result.
    fn finish(&self, target: &Target, object: &mut Object, live: &Object, warnings: &mut Vec<String>) -> Result<(), Status> {
        let resource = &*target.resource;
        if resource.counts_generations() {
            meta::carry_generation(object, live);
        }
        resource.prepare(object, Some(live), target.part, &self.clock);
        meta::carry(object, live);
        if resource.counts_generations() && wants_other(resource, object, live) {
            object.metadata_mut().insert("generation".into(), (live.generation() + 1).into());
        }
        let mut errors = Vec::new();
        // The real server looks at metadata twice, and tells what it finds each time.
        for _ in 0..2 {
            errors.extend(meta::validate_update(object, live));
        }
        errors.extend(resource.validate(object, Some(live), target.part));
        if !errors.is_empty() {
            return Err(Status::invalid(&resource.kind, object.name(), &errors));
        }
        warnings.extend(resource.warnings(object, Some(live)));
        // A write that only moved timestamps of managedFields is none.
        if let (Some(new), Some(old)) = (managed_without_times(object), managed_without_times(live))
            && new == old
        {
            let old = live.metadata().and_then(|metadata| metadata.get("managedFields")).cloned().unwrap_or_default();
            let mut unmoved = object.clone();
            unmoved.metadata_mut().insert("managedFields".into(), old);
            if same(&unmoved, live) {
                *object = unmoved;
            }
        }
        Ok(())
    }
}

/// Tells whether two states of an object are the same to a reader.
fn same(a: &Object, b: &Object) -> bool {
    a == b
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

/// Returns managedFields with the times taken out.
fn managed_without_times(object: &Object) -> Option<Vec<Value>> {
    let entries = object.metadata()?.get("managedFields")?.as_array()?;
    let mut entries = entries.clone();
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
    entries.sort_by_key(Value::to_string);
    Some(entries)
}

/// Words a refusal of storage's as the real server does.
fn storage_error(resource: &Resource, key: &ObjectKey, why: &str) -> String {
    let group = if resource.kind.group.is_empty() { String::new() } else { format!("{}/", resource.kind.group) };
    format!("StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: {why}", resource.plural)
}
