//! Changes of the scale of an object.

use super::change::Change;
use super::patch::Patch;
use crate::catalog::scale::{kind, of_any, set};
use crate::catalog::{Catalog, Resource};
use crate::request::options::FieldValidation;
use crate::response::Warnings;
use flyball_core::field::FieldError;
use flyball_core::{Object, Status};
use serde_json::Value;
use std::sync::Arc;

/// Replaces the scale of an object.
pub(crate) fn replace(resource: &Arc<Resource>, scale: Object) -> Change<'static> {
    let resource = resource.clone();
    Change::With(Box::new(move |object| store(&resource, object, &scale)))
}

/// Patches the scale of an object.
pub(crate) fn patch(
    resource: &Arc<Resource>,
    patch: Patch,
    validation: FieldValidation,
    warnings: Warnings,
) -> Change<'static> {
    let resource = resource.clone();
    Change::With(Box::new(move |object| {
        let before = of_any(&resource, object)?;
        let patched = patch.apply(None, &Catalog::action("Scale"), &|| Ok(before.clone()), validation)?;
        warnings.add(patched.warnings);
        if patched.object.name() != before.name() {
            let (found, own) = (patched.object.name(), before.name());
            let why = format!("the name of the object ({found}) does not match the name on the URL ({own})");
            return Err(Status::bad_request(why));
        }
        store(&resource, object, &patched.object)
    }))
}

/// Merges a scale into the desired state of an object.
pub(crate) fn apply(resource: &Resource, scale: &Object) -> Result<Object, Status> {
    let mut desired = Object::default();
    desired.set_kind(&resource.kind);
    if let Some(metadata) = scale.metadata() {
        *desired.metadata_mut() = metadata.clone();
    }
    if let Some(replicas) = scale.at(&["spec", "replicas"]) {
        check_replicas(resource, scale.name(), replicas.as_i64().unwrap_or(0))?;
        set(resource, &mut desired, replicas.clone())?;
    }
    Ok(desired)
}

/// Rejects a scale of a built-in kind below zero.
fn check_replicas(resource: &Resource, name: &str, replicas: i64) -> Result<(), Status> {
    if replicas >= 0 || resource.custom().is_some() {
        return Ok(());
    }
    let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
    Err(Status::invalid(&kind(), name, &[error]))
}

/// Writes a scale into its object.
fn store(resource: &Resource, object: &mut Object, scale: &Object) -> Result<(), Status> {
    let replicas = scale.at(&["spec", "replicas"]).and_then(Value::as_i64).unwrap_or(0);
    check_replicas(resource, scale.name(), replicas)?;
    match scale.resource_version() {
        "" => object.metadata_mut().remove("resourceVersion"),
        version => object.metadata_mut().insert("resourceVersion".into(), version.into()),
    };
    set(resource, object, replicas.into())
}
