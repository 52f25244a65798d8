//! Codec: conversion between stored entries and objects of served versions.
//!
//! Takes an [`Entry`] or an [`Object`] and the version of a resource, returns the other one in that version. It
//! converts, by the CRD's webhook if there is one, and applies defaults that were added since the write. It does not
//! depend on the request. No lock is held while a webhook converts. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-conversion>.

use crate::catalog::{Catalog, CurrentCatalog, Resource, decode};
use crate::custom::schema_number;
use crate::storage::{Entry, EntryError, Revision};
use crate::webhook::{ConversionMemory, Webhooks};
use bytes::Bytes;
use flyball_core::{Object, ObjectKey, Status};
use serde_json::Value;
use std::sync::Arc;

/// Converts entries and objects between versions.
pub(crate) struct Codec {
    catalog: Arc<CurrentCatalog>,
    webhooks: Arc<Webhooks>,
}

/// The numbers of values and of nulls in an object. Defaults add values and replace nulls, so the numbers are equal
/// only if no default was applied; a copy of the object for the comparison could take many times the memory of its
/// text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Values {
    all: usize,
    nulls: usize,
}

impl Values {
    fn of(value: &Value) -> Self {
        let mut values = Self::default();
        values.count(value);
        values
    }

    fn count(&mut self, value: &Value) {
        self.all += 1;
        match value {
            Value::Null => self.nulls += 1,
            Value::Array(items) => items.iter().for_each(|item| self.count(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.count(field)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Converts an object to another version of its resource, and prunes fields that are unknown there.
fn convert_object(from: &Resource, to: &Resource, object: Object) -> Object {
    pruned(to, convert_whole(from, to, object))
}

/// Converts an object to another version of its resource, with all fields.
pub(crate) fn convert_whole(from: &Resource, to: &Resource, mut object: Object) -> Object {
    from.write_stored(&mut object);
    to.read_stored(&mut object);
    object.set_kind(&to.kind);
    object
}

/// Removes fields of a converted object that are unknown to its version; defaults are not applied.
fn pruned(resource: &Resource, object: Object) -> Object {
    if resource.custom().is_none() {
        return object;
    }
    decode::read_as(resource, object.clone()).map_or(object, |(read, _)| read)
}

/// Storage does not depend on HTTP: its decode errors are converted to a `Status` here.
impl From<EntryError> for Status {
    fn from(error: EntryError) -> Self {
        Self::internal(error)
    }
}

impl Codec {
    pub(crate) fn new(catalog: Arc<CurrentCatalog>, webhooks: Arc<Webhooks>) -> Self {
        Self { catalog, webhooks }
    }

    /// Returns the current catalog.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.get()
    }

    /// Decodes a stored object as a version of its resource.
    pub(crate) fn decode(&self, resource: &Resource, entry: &Entry) -> Result<Object, EntryError> {
        let mut object = entry.object()?;
        if resource.custom().is_none() || entry.schema == resource.schema_number {
            resource.read_stored(&mut object);
            object.set_kind(&resource.kind);
            return Ok(object);
        }
        // By the schema of its stored version, with the defaults of that version only.
        let stored = self.catalog().written_version(resource, entry.schema);
        let stored = stored.as_deref().unwrap_or(resource);
        object.set_kind(&stored.kind);
        if !schema_number::same_schema(entry.schema, stored.schema_number)
            && let Ok((read, _)) = decode::read_as(stored, object.clone())
        {
            object = read;
        }
        stored.default(&mut object);
        Ok(if stored.kind == resource.kind { object } else { convert_object(stored, resource, object) })
    }

    /// Encodes an object as an entry.
    pub(crate) fn encode(&self, resource: &Resource, key: &ObjectKey, mut object: Object, revision: Revision) -> Entry {
        if resource.custom().is_none() {
            resource.write_stored(&mut object);
            let facts = resource.facts(&object);
            return Entry::new(key.clone(), object, revision, facts, 0);
        }
        let stored = self.catalog().storage_version(resource);
        let stored = stored.as_deref().unwrap_or(resource);
        if stored.kind != resource.kind {
            object = convert_object(resource, stored, object);
        }
        Entry::with(key.clone(), object, revision, |mut object| {
            // Objects that were written through another version may lack defaults of this one: reads apply them.
            let before = Values::of(object.as_value());
            stored.default(&mut object);
            let number = stored.schema_number;
            let is_complete = Values::of(object.as_value()) == before;
            (stored.facts(&object), if is_complete { number } else { schema_number::incomplete(number) })
        })
    }

    /// Encodes a stored object as JSON of a version of its resource.
    pub(crate) fn json(&self, resource: &Resource, entry: &Entry) -> Bytes {
        let as_stored = || -> Bytes {
            let mut json = Vec::with_capacity(resource.head.len() + entry.body.len());
            json.extend_from_slice(&resource.head);
            json.extend_from_slice(&entry.body[1..]);
            json.into()
        };
        if entry.schema == resource.schema_number {
            return as_stored();
        }
        let object = self.decode(resource, entry).ok();
        object.and_then(|object| serde_json::to_vec(object.as_value()).ok()).map_or_else(as_stored, Bytes::from)
    }

    /// Returns the memory for converted objects of a request.
    pub(crate) fn conversion_memory(&self) -> ConversionMemory {
        self.webhooks.conversion_memory()
    }

    /// Converts an object to another version of its resource, and prunes fields that are unknown there.
    pub(crate) async fn as_version(&self, from: &Resource, to: &Resource, object: Object) -> Result<Object, Status> {
        if from.kind == to.kind {
            return Ok(object);
        }
        let whole = self.as_whole_version(from, to, object).await.map_err(|why| Status::new(500, None, why))?;
        Ok(pruned(to, whole))
    }

    /// Converts an object to another version of its resource, with all fields.
    pub(crate) async fn as_whole_version(
        &self,
        from: &Resource,
        to: &Resource,
        object: Object,
    ) -> Result<Object, String> {
        match from.custom().and_then(|custom| custom.conversion.as_ref()) {
            Some(conversion) => conversion.convert(&self.webhooks, &from.kind, &to.kind, &object).await,
            None => Ok(convert_whole(from, to, object)),
        }
    }

    /// Converts an object to its storage version; also returns that version.
    pub(crate) async fn as_stored(
        &self,
        resource: &Arc<Resource>,
        mut object: Object,
    ) -> Result<(Arc<Resource>, Object), Status> {
        if !resource.converts() {
            return Ok((resource.clone(), object));
        }
        match self.catalog().storage_version(resource) {
            Some(stored) => {
                object.metadata_mut().remove("resourceVersion");
                let object = self.as_version(resource, &stored, object).await?;
                Ok((stored, object))
            }
            None => Ok((resource.clone(), object)),
        }
    }

    /// Returns entries in a version of their resource, so that no webhook call remains.
    ///
    /// Without a conversion webhook, entries are returned unchanged. Cached conversions are reused. Converted entries
    /// are charged until the memory is dropped.
    pub(crate) async fn convert_all(
        &self,
        resource: &Resource,
        mut entries: Vec<Arc<Entry>>,
    ) -> Result<(Vec<Arc<Entry>>, Option<ConversionMemory>), Status> {
        if !resource.converts() {
            return Ok((entries, None));
        }
        let mut memory = self.conversion_memory();
        for entry in entries.iter_mut().filter(|entry| entry.schema != resource.schema_number) {
            let converted = self.convert_cached(resource, entry.clone()).await?;
            memory.add(entry.size(), converted.size()).await?;
            *entry = converted;
        }
        Ok((entries, Some(memory)))
    }

    /// Like [`Self::convert`], but reuses a cached conversion.
    pub(crate) async fn convert_cached(&self, resource: &Resource, entry: Arc<Entry>) -> Result<Arc<Entry>, Status> {
        match resource.custom().and_then(|custom| custom.converted.get(&entry)) {
            Some(known) => Ok(known),
            None => self.convert(resource, entry).await,
        }
    }

    /// Returns an entry in a version of its resource, so that no webhook call remains.
    pub(crate) async fn convert(&self, resource: &Resource, entry: Arc<Entry>) -> Result<Arc<Entry>, Status> {
        if !resource.converts() || entry.schema == resource.schema_number {
            return Ok(entry);
        }
        let written = self.catalog().written_version(resource, entry.schema);
        let Some(stored) = written.filter(|stored| stored.kind != resource.kind) else { return Ok(entry) };
        let mut object = self.decode(&stored, &entry)?;
        // Storage sets the resource version, as the last step.
        object.metadata_mut().remove("resourceVersion");
        let object = self.as_version(&stored, resource, object).await?;
        let facts = resource.facts(&object);
        let converted = Arc::new(Entry::new(entry.key.clone(), object, entry.revision, facts, resource.schema_number));
        resource.custom().into_iter().for_each(|custom| custom.converted.put(&converted));
        Ok(converted)
    }
}
