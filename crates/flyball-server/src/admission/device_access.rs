//! Administrative access to devices that are in use: allowed in labeled namespaces only.
//!
//! See <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#admin-access>.

use super::{Attributes, Plugin, PluginResult, decided, pass};
use crate::kinds::{Kind, NAMESPACE, Part, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use crate::storage::Store;
use flyball_core::field::FieldError;
use flyball_core::{Object, ObjectKey, Status};
use serde_json::Value;
use std::sync::Arc;

pub(super) static KINDS: [&Kind; 2] = [&RESOURCE_CLAIM, &RESOURCE_CLAIM_TEMPLATE];

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Rejects access for administration outside of namespaces that are labeled for it.
pub(super) struct DeviceAdminAccess {
    store: Arc<Store>,
}

impl DeviceAdminAccess {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Plugin for DeviceAdminAccess {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        object.map_or_else(pass, |object| decided(check(&self.store, attributes, object, attributes.old)))
    }
}

fn check(store: &Store, attributes: &Attributes<'_>, object: &Object, old: Option<&Object>) -> Result<(), Status> {
    let claims = attributes.writes(&RESOURCE_CLAIM);
    let requested = if attributes.creates(&RESOURCE_CLAIM) {
        request(object, &["spec", "devices", "requests"])
    } else if attributes.creates(&RESOURCE_CLAIM_TEMPLATE) {
        request(object, &["spec", "spec", "devices", "requests"])
    } else if claims && attributes.part == Part::Status && old.and_then(result).is_none() {
        result(object)
    } else {
        None
    };
    let Some(path) = requested else { return Ok(()) };
    let key = ObjectKey::new(None, attributes.namespace.unwrap_or_default());
    let namespace = store.get(&NAMESPACE.table(), &key).and_then(|entry| entry.object().ok());
    if namespace.is_some_and(|namespace| namespace.at(&["metadata", "labels", LABEL]) == Some(&"true".into())) {
        return Ok(());
    }
    let why = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    Err(Status::invalid(&attributes.resource.kind, attributes.name, &[FieldError::forbidden(path, why)]))
}

fn first(list: Option<&Value>, wants: impl Fn(&Value) -> bool) -> Option<usize> {
    list.and_then(Value::as_array)?.iter().position(wants)
}

/// Finds the first request for such access; errors name it equally in templates and in claims.
fn request(object: &Object, requests: &[&str]) -> Option<String> {
    let at = first(object.at(requests), |request| request["exactly"]["adminAccess"] == true)?;
    Some(format!("spec.devices.requests[{at}].adminAccess"))
}

/// Finds the first device that is allocated with such access.
fn result(claim: &Object) -> Option<String> {
    let results = claim.at(&["status", "allocation", "devices", "results"]);
    let at = first(results, |result| result["adminAccess"] == true)?;
    Some(format!("status.allocation.devices.results[{at}].adminAccess"))
}
