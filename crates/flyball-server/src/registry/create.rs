//! How an object comes into being.

use super::managed::Conversions;
use super::resource::{Behaviour, Resource};
use super::write::{Outcome, Target, Writer, Written, refusal};
use super::{managed, meta};
use crate::admission::{Attributes, Operation};
use crate::auth::{Action, On};
use crate::kinds::Part;
use crate::server::Inner;
use crate::storage::{self, Entry};
use flyball_core::field::FieldError;
use flyball_core::{GroupResource, Object, ObjectKey, Status, names};
use serde_json::Value;

impl Inner {
    /// Makes a new object.
    pub(crate) async fn create(
        &self,
        target: &Target,
        mut object: Object,
        writer: &Writer<'_>,
    ) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        meta::place(&mut object, target.namespace.as_deref())?;
        resource.default_within(&mut object, None)?;
        meta::clear(&mut object);
        writer.warnings.add(meta::dedup_owners(&mut object, false));
        let now = self.clock.now_rfc3339();
        let by =
            managed::By { name: &writer.manager, part: Part::Whole, now: &now, conversions: &Conversions::default() };
        managed::update(&self.catalog(), resource, None, &mut object, &by);
        if let (Some(name), true) = (&target.name, object.name().is_empty()) {
            object.metadata_mut().insert("name".into(), name.as_str().into());
        }
        self.insert(target, object, writer).await
    }

    /// Brings an object that is to be new, with owners of its fields, through admission and validation, and stores it.
    pub(super) async fn insert(
        &self,
        target: &Target,
        mut object: Object,
        writer: &Writer<'_>,
    ) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        meta::generate_name(&mut object, &self.rng);
        let name = object.name().to_owned();
        let mut attributes = Attributes::new(target, Operation::Create, writer);
        let _turn = self.turn(resource).await;
        attributes.name = &name;
        self.admission.admit(self, &attributes, &mut object, None).await?;
        clear_status(resource, &mut object);
        meta::fill(&mut object, &self.clock, &self.rng);
        if resource.counts_generations() {
            object.metadata_mut().insert("generation".into(), 1.into());
        }
        resource.prepare(&mut object, None, Part::Whole, &self.clock);
        validate(resource, &object)?;
        writer.warnings.add(resource.warnings(&object, None));
        writer.warnings.add(meta::finalizer_warnings(resource, &object, None));
        if target.name.is_some() {
            self.authorize_creation(target, writer)?;
        }
        self.admission.validate(self, &attributes, &object, None).await?;
        resource.forget(&mut object);
        let given = object.metadata_mut().remove("resourceVersion");
        if !writer.options.dry_run && given.as_ref().and_then(Value::as_str).is_some_and(is_version) {
            return Err(Status::new(500, None, "resourceVersion should not be set on objects to be created"));
        }
        let key = object.key();
        let generated =
            object.metadata().is_some_and(|metadata| metadata.get("generateName").is_some_and(|prefix| prefix != ""));
        if let Some(stored) = self.store.get(&resource.table, &key) {
            return Err(exists(resource, &key, &stored, generated));
        }
        if writer.options.dry_run {
            self.bounded_entry(resource, &key, object.clone(), 0, None).map_err(refusal)?;
            return Ok(Outcome { object: Written::Shown(Box::new(object)), created: true });
        }
        resource.settle(&mut object);
        let (stored_as, object) = self.to_stored(&target.resource, object).await?;
        let make = |revision| self.bounded_entry(&stored_as, &key, object, revision, None);
        match self.store.put(&resource.table, &key, None, make).await {
            Ok(entry) => {
                self.written(resource, &entry);
                let entry = self.shown_one(resource, entry).await?;
                Ok(Outcome { object: Written::Stored(entry), created: true })
            }
            Err(
                error @ (storage::Error::NotKept { .. }
                | storage::Error::TooLarge { .. }
                | storage::Error::TooDeep { .. }),
            ) => Err(refusal(error)),
            Err(_) => {
                let stored = self.store.get(&resource.table, &key);
                let refusal = stored.map(|stored| exists(resource, &key, &stored, generated));
                Err(refusal.unwrap_or_else(|| Status::already_exists(&resource.group_resource(), key.name())))
            }
        }
    }

    /// Refuses those who may change an object but not make it: what a PUT or an apply does where there is none.
    fn authorize_creation(&self, target: &Target, writer: &Writer<'_>) -> Result<(), Status> {
        let GroupResource { group, resource } = &target.resource.group_resource();
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let on = On::Resource { group, resource, subresource: "", namespace, name: target.name() };
        self.authorize(&Action { user: writer.user, verb: "create", on })
    }
}

/// Tells the version of an object from what means nothing.
fn is_version(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|version| version != 0)
}

/// A new object has no status but the one that it begins with.
pub(super) fn clear_status(resource: &Resource, object: &mut Object) {
    // Nodes tell of themselves as they come.
    if !resource.has_part(Part::Status) || resource.custom().is_none() && &*resource.kind.kind == "Node" {
        return;
    }
    let zero = resource.empty.get("status").filter(|_| matches!(resource.behaviour, Behaviour::BuiltIn(_)));
    match zero.filter(|zero| !zero.is_null()) {
        Some(zero) => object.insert("status".into(), zero.clone()),
        None => object.remove("status"),
    };
    // A schema may say what status a new object has.
    if resource.custom().is_some() {
        resource.default(object);
    }
}

fn validate(resource: &Resource, object: &Object) -> Result<(), Status> {
    let mut errors = meta::validate(resource, object, resource.name_rule());
    errors.extend(resource.validate(object, None, Part::Whole).errors);
    if errors.is_empty() {
        // The name becomes a step of a path, whatever the kind allows besides.
        let wrong = names::path_segment(object.name()).into_iter();
        errors.extend(wrong.map(|why| FieldError::invalid("metadata.name", object.name(), why)));
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(&resource.refused_kind(), object.name(), &errors)) }
}

/// Refuses to make what is there.
fn exists(resource: &Resource, key: &ObjectKey, stored: &Entry, generated: bool) -> Status {
    let group = resource.group_resource();
    let mut status = Status::already_exists(&group, key.name());
    if generated {
        status.message += ", the server was not able to generate a unique name for the object";
        status.details.iter_mut().for_each(|details| details.retry_after_seconds = 1);
    } else if stored.is_deleting() {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}
