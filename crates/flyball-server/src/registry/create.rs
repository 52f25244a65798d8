//! Creation of objects.

use super::Registry;
use super::candidate::{Candidate, record_fields};
use super::change::{Outcome, WrittenObject, to_status};
use super::managed::{Conversions, FieldManager};
use super::meta;
use crate::admission::{Attributes, Operation, Writer};
use crate::auth::{Action, ActionTarget};
use crate::catalog::{Resource, Target};
use crate::kinds::Part;
use crate::storage::{self, Entry};
use flyball_core::{GroupResource, Object, ObjectKey, Status};
use serde_json::Value;

impl Registry {
    /// Creates an object.
    pub(crate) async fn create(&self, target: &Target, object: Object, writer: &Writer<'_>) -> Result<Outcome, Status> {
        let mut candidate = Candidate::new(target, None, object);
        candidate.set_namespace()?;
        candidate.default()?;
        writer.warnings.add(meta::dedup_owners(&mut candidate.object, false));
        candidate.restore_readonly_fields();
        let now = self.clock.now_rfc3339();
        let by =
            FieldManager { name: &writer.manager, part: Part::Whole, now: &now, conversions: &Conversions::default() };
        record_fields(&self.codec.catalog(), target, None, &mut candidate.object, &by)?;
        if let (Some(name), true) = (&target.name, candidate.object.name().is_empty()) {
            candidate.object.metadata_mut().insert("name".into(), name.as_str().into());
        }
        self.insert(target, candidate, writer).await
    }

    /// Runs admission and validation of a new object that has managed fields, and stores it.
    pub(super) async fn insert(
        &self,
        target: &Target,
        mut candidate: Candidate<'_>,
        writer: &Writer<'_>,
    ) -> Result<Outcome, Status> {
        let resource = &*target.resource;
        meta::generate_name(&mut candidate.object, &self.rng);
        let name = candidate.object.name().to_owned();
        let attributes = Attributes::new(target, Operation::Create, writer).with_name(&name);
        self.admit(&attributes, &mut candidate.object).await?;
        // The user was authorized for this namespace only.
        candidate.set_namespace()?;
        candidate.set_system_fields(&self.clock, &self.rng);
        candidate.validate(writer)?;
        candidate.warn(writer);
        if target.name.is_some() {
            self.authorize_creation(target, writer)?;
        }
        self.admission.validate(&attributes, Some(&candidate.object)).await?;
        candidate.drop_empty_lists();
        let version = candidate.object.metadata_mut().remove("resourceVersion");
        if !writer.options.dry_run && version.as_ref().and_then(Value::as_str).is_some_and(is_version) {
            return Err(Status::new(500, None, "resourceVersion should not be set on objects to be created"));
        }
        let key = candidate.object.key();
        let prefix = candidate.object.metadata().and_then(|metadata| metadata.get("generateName"));
        let generated = prefix.is_some_and(|prefix| prefix != "");
        if let Some(stored) = self.store.get(&resource.table, &key) {
            return Err(exists(resource, &key, &stored, generated));
        }
        candidate.normalize_empty();
        if writer.options.dry_run {
            self.bounded_entry(resource, &key, candidate.object.clone(), 0, None).map_err(to_status)?;
            return Ok(Outcome { object: WrittenObject::Unstored(Box::new(candidate.object)), created: true });
        }
        let (stored_as, object) = self.codec.as_stored(&target.resource, candidate.object).await?;
        let make = |revision| self.bounded_entry(&stored_as, &key, object, revision, None);
        match self.store.put(&resource.table, &key, None, make).await {
            Ok(entry) => {
                self.note_written(resource);
                self.record_write(target, &key, entry.revision, writer);
                let entry = self.codec.convert(resource, entry).await?;
                Ok(Outcome { object: WrittenObject::Stored(entry), created: true })
            }
            Err(
                error @ (storage::Error::NotKept { .. }
                | storage::Error::Full { .. }
                | storage::Error::TooLarge { .. }
                | storage::Error::TooDeep { .. }),
            ) => Err(to_status(error)),
            Err(_) => {
                let stored = self.store.get(&resource.table, &key);
                let error = stored.map(|stored| exists(resource, &key, &stored, generated));
                Err(error.unwrap_or_else(|| Status::already_exists(&resource.group_resource(), key.name())))
            }
        }
    }

    /// Rejects users who may update an object but not create it, when a PUT or an apply creates it.
    fn authorize_creation(&self, target: &Target, writer: &Writer<'_>) -> Result<(), Status> {
        let GroupResource { group, resource } = &target.resource.group_resource();
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let on = ActionTarget::Resource { group, resource, subresource: "", namespace, name: target.name() };
        self.authorizer.authorize(&Action { user: writer.user, verb: "create", on })
    }
}

/// Returns true if a resource version is set: empty and 0 mean unset.
fn is_version(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|version| version != 0)
}

/// Returns the error for an object that already exists.
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
