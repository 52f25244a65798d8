//! Access to devices for their administration, also while others use them: only in namespaces whose label allows it.
//!
//! See <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#admin-access>.

use super::{Attributes, Operation};
use crate::kinds::Part;
use crate::server::Inner;
use flyball_core::field::FieldError;
use flyball_core::{GroupResource, Object, ObjectKey, Status};
use serde_json::Value;

const GROUP: &str = "resource.k8s.io";
const LABEL: &str = "resource.kubernetes.io/admin-access";

pub(super) fn check(
    inner: &Inner,
    attributes: &Attributes<'_>,
    object: &Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    let claims = attributes.is(GROUP, "resourceclaims");
    let create = attributes.operation == Operation::Create;
    let asked = if claims && create {
        request(object, &["spec", "devices", "requests"])
    } else if attributes.is(GROUP, "resourceclaimtemplates") && create {
        request(object, &["spec", "spec", "devices", "requests"])
    } else if claims && attributes.part == Part::Status && old.and_then(result).is_none() {
        result(object)
    } else {
        None
    };
    let Some(path) = asked else { return Ok(()) };
    let key = ObjectKey::new(None, attributes.namespace.unwrap_or_default());
    let namespace = inner.store.get(&GroupResource::new("", "namespaces"), &key).and_then(|entry| entry.object().ok());
    if namespace.is_some_and(|namespace| namespace.at(&["metadata", "labels", LABEL]) == Some(&"true".into())) {
        return Ok(());
    }
    let why = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    Err(Status::invalid(&attributes.resource.kind, attributes.name, &[FieldError::forbidden(path, why)]))
}

fn first(list: Option<&Value>, wants: impl Fn(&Value) -> bool) -> Option<usize> {
    list.and_then(Value::as_array)?.iter().position(wants)
}

/// Finds the first request that asks for such access; errors name it in templates as in claims.
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
