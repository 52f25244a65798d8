//! The candidate of a write: the object to store, and the stages that prepare it.

use super::managed::{self, FieldManager};
use super::meta;
use crate::admission::Writer;
use crate::catalog::{Catalog, Resource, Target};
use crate::kinds::{Checks, Part};
use flyball_core::field::FieldError;
use flyball_core::status::Causes;
use flyball_core::{Clock, Object, Rng, Status, names};

/// The object that a write will store.
///
/// Its methods are the stages of a write. A create and an update call them in different orders:
///
/// | Stage | Create | Update |
/// |---|---|---|
/// | [`set_namespace`](Self::set_namespace): the namespace is that of the request | 1 | 1 |
/// | [`default`](Self::default): fields that the client omitted have their defaults | 2 | 2 |
/// | [`meta::dedup_owners`]: duplicate owner references are removed | 3 | 3 |
/// | [`restore_readonly_fields`](Self::restore_readonly_fields): parts outside of the write are as before, a new object has no system fields | 4 | 5 |
/// | [`record_fields`]: managed fields name the writer | 5 | 4 |
/// | the name is that of the path, or [generated](meta::generate_name) | 6 | |
/// | a resource version of the client is that of the object before | | 6 |
/// | *admission mutates the object,* then addresses are allocated (`Registry::admit`) | 7 | 7 |
/// | [`set_namespace`](Self::set_namespace) again: the user was authorized for this namespace only | 8 | |
/// | [`set_system_fields`](Self::set_system_fields): generation, UID and times | 9 | 8 |
/// | [`restore_times`](Self::restore_times): managed fields of a write that changes nothing keep their times | | 9 |
/// | [`validate`](Self::validate) | 10 | 10 |
/// | [`count_generation`](Self::count_generation) | | 11 |
/// | [`drop_empty_lists`](Self::drop_empty_lists): lists that the stored form does not have | 13 | 12 |
/// | [`warn`](Self::warn) | 11 | 13 |
/// | *admission validates the object* | 12 | 14 |
/// | a resource version or an existing object rejects the create | 14 | |
/// | [`normalize_empty`](Self::normalize_empty): the form that storage returns, also in dry runs | 15 | 15 |
/// | the codec encodes the entry | 16 | 16 |
///
/// A server-side apply computes managed fields in its merge, before it calls `default`: it skips `dedup_owners` and
/// `record_fields`. An apply that updates also skips `set_namespace`, because the merge keeps that of the object
/// before. An apply that creates calls `set_namespace` after `default`, and skips `restore_readonly_fields`.
///
/// Bootstrap objects go through the stages that apply to them (`seed`).
pub(super) struct Candidate<'w> {
    pub(super) object: Object,
    /// The object before the write; `None` for a create.
    live: Option<&'w Object>,
    target: &'w Target,
}

impl<'w> Candidate<'w> {
    pub(super) fn new(target: &'w Target, live: Option<&'w Object>, object: Object) -> Self {
        Self { object, live, target }
    }

    fn resource(&self) -> &'w Resource {
        &self.target.resource
    }

    /// Sets the namespace of the request, or rejects an object with another one.
    pub(super) fn set_namespace(&mut self) -> Result<(), Status> {
        self.target.check_namespace(&self.object)?;
        let metadata = self.object.metadata_mut();
        match &self.target.namespace {
            Some(namespace) => metadata.insert("namespace".into(), namespace.as_str().into()),
            None => metadata.remove("namespace"),
        };
        Ok(())
    }

    /// Sets defaults, and rejects an object that exceeds the memory limit with them.
    pub(super) fn default(&mut self) -> Result<(), Status> {
        self.resource().default_within(&mut self.object, self.live)
    }

    /// Restores the parts of the object that are outside of the write; a new object loses its system fields.
    pub(super) fn restore_readonly_fields(&mut self) {
        match self.live {
            Some(live) => restore(self.resource(), &mut self.object, live, self.target.part),
            None => meta::clear_system_fields(&mut self.object),
        }
    }

    /// Sets the fields that only the server sets: generation, UID, times, and those of the kind.
    pub(super) fn set_system_fields(&mut self, clock: &Clock, rng: &Rng) {
        let resource = self.resource();
        match self.live {
            Some(live) => {
                meta::restore_generation(&mut self.object, live);
                resource.prepare(&mut self.object, Some(live), self.target.part, clock);
                meta::restore_system_fields(&mut self.object, live);
            }
            None => {
                clear_status(resource, &mut self.object);
                meta::set_system_fields(&mut self.object, clock, rng);
                if resource.counts_generations() {
                    self.object.metadata_mut().insert("generation".into(), 1.into());
                }
                resource.prepare(&mut self.object, None, Part::Whole, clock);
            }
        }
    }

    /// Restores the times of managed fields if nothing else changes: then the write is a no-op.
    pub(super) fn restore_times(&mut self) {
        self.live.iter().for_each(|live| managed::restore_times(&mut self.object, live));
    }

    /// Validates the object; the error lists the first causes.
    pub(super) fn validate(&self, writer: &Writer<'_>) -> Result<(), Status> {
        let (resource, object) = (self.resource(), &self.object);
        let errors = match self.live {
            Some(live) => self.update_errors(live, writer),
            None => self.creation_errors(),
        };
        if errors.is_empty() { Ok(()) } else { Err(errors.to_status(&resource.error_kind(), object.name())) }
    }

    fn creation_errors(&self) -> Causes {
        let (resource, object) = (self.resource(), &self.object);
        let mut errors = Causes::default();
        errors.extend(meta::validate(resource, object, resource.name_rule()));
        errors.extend(resource.validate(object, None, Part::Whole).errors);
        if errors.is_empty() {
            // Names must be valid path segments, besides the rule of the kind.
            let wrong = names::path_segment(object.name()).into_iter();
            errors.extend(wrong.map(|why| FieldError::invalid("metadata.name", object.name(), why)).collect());
        }
        errors
    }

    fn update_errors(&self, live: &Object, writer: &Writer<'_>) -> Causes {
        let (resource, object, part) = (self.resource(), &self.object, self.target.part);
        let mut errors = Causes::default();
        errors.extend(meta::validate(resource, object, names::path_segment));
        errors.extend(meta::validate_update(object, live));
        // The validation of a kind checks metadata again, so clients see each error twice.
        if resource.checks() != Checks::Once {
            errors.extend(meta::validate_update(object, live));
        }
        let found = resource.validate(object, Some(live), part);
        writer.warnings.add(found.tolerated.iter().map(ToString::to_string));
        errors.extend(found.errors);
        if resource.checks() == Checks::Whole && part == Part::Whole {
            errors.extend(meta::validate(resource, object, resource.name_rule()));
            errors.extend(resource.validate_finalizers(object));
        }
        errors
    }

    /// Increments the generation if the desired state changes.
    pub(super) fn count_generation(&mut self) {
        let (Some(live), resource) = (self.live, self.resource()) else { return };
        if resource.counts_generations()
            && !matches!(self.target.part, Part::Binding | Part::Status)
            && desired_state_differs(resource, &self.object, live)
        {
            self.object.metadata_mut().insert("generation".into(), (live.generation() + 1).into());
        }
    }

    /// Drops the empty lists that the stored form of the object does not have.
    pub(super) fn drop_empty_lists(&mut self) {
        self.resource().drop_empty_lists(&mut self.object);
    }

    /// Adds the warnings of the kind.
    pub(super) fn warn(&self, writer: &Writer<'_>) {
        writer.warnings.add(self.resource().warnings(&self.object, self.live));
        writer.warnings.add(meta::finalizer_warnings(self.resource(), &self.object, self.live));
    }

    /// Normalizes empty fields as encoding to storage and decoding does.
    pub(super) fn normalize_empty(&mut self) {
        self.resource().normalize_empty(&mut self.object);
    }
}

/// Updates the managed fields of an object. `live` is the object before the write, and is changed temporarily.
pub(super) fn record_fields(
    catalog: &Catalog,
    target: &Target,
    live: Option<&mut Object>,
    object: &mut Object,
    by: &FieldManager<'_>,
) -> Result<(), Status> {
    // Binding a pod does not change the owners of its fields.
    if target.part == Part::Binding { Ok(()) } else { managed::update(catalog, &target.resource, live, object, by) }
}

/// Restores the parts of an object that are outside of a write.
fn restore(resource: &Resource, object: &mut Object, live: &Object, part: Part) {
    let restore_field = |object: &mut Object, field: &str| {
        match live.get(field) {
            Some(value) => object.insert(field.into(), value.clone()),
            None => object.remove(field),
        };
    };
    match part {
        // Writes of these parts begin with the stored object.
        Part::Approval | Part::Binding | Part::Scale => {}
        Part::Status => {
            let mut merged = live.clone();
            match object.remove("status") {
                Some(status) => merged.insert("status".into(), status),
                None => merged.remove("status"),
            };
            let mut metadata = std::mem::take(object.metadata_mut());
            if resource.custom().is_some() {
                const OWN: [&str; 2] = ["managedFields", "resourceVersion"];
                metadata.retain(|field, _| OWN.contains(&field.as_str()));
                merged.metadata_mut().retain(|field, _| !OWN.contains(&field.as_str()));
                merged.metadata_mut().extend(metadata);
            } else {
                if resource.status_keeps_labels() {
                    match live.metadata().and_then(|metadata| metadata.get("labels")) {
                        Some(labels) => metadata.insert("labels".into(), labels.clone()),
                        None => metadata.remove("labels"),
                    };
                }
                *merged.metadata_mut() = metadata;
            }
            *object = merged;
        }
        _ if resource.has_part(Part::Status) => restore_field(object, "status"),
        _ => {}
    }
}

/// Resets the status of a new object to its initial value.
pub(super) fn clear_status(resource: &Resource, object: &mut Object) {
    if !resource.has_part(Part::Status) || resource.is_created_with_status() {
        return;
    }
    match resource.empty.get("status").filter(|zero| !zero.is_null()) {
        Some(zero) => object.insert("status".into(), zero.clone()),
        None => object.remove("status"),
    };
    // A schema may have defaults for the status.
    if resource.custom().is_some() {
        resource.default(object);
    }
}

/// Returns true if the desired state differs: more than metadata and status.
fn desired_state_differs(resource: &Resource, object: &Object, live: &Object) -> bool {
    let status_apart = resource.has_part(Part::Status);
    let skipped = |name: &str| matches!(name, "apiVersion" | "kind" | "metadata") || name == "status" && status_apart;
    let differs = |a: &Object, b: &Object| a.iter().any(|(name, value)| !skipped(name) && b.get(name) != Some(value));
    if differs(object, live) || differs(live, object) {
        return true;
    }
    let annotations = |object: &Object| object.metadata().and_then(|metadata| metadata.get("annotations")).cloned();
    resource.generation_counts_annotations() && annotations(object) != annotations(live)
}
