//! Quota usage of objects: names and amounts in resource quotas.
//!
//! Admission computes the usage of a write with it, and a controller the total usage. The amounts of an object depend
//! on its kind. See <https://kubernetes.io/docs/concepts/policy/resource-quotas/>.

pub use crate::kinds::Amounts;

use crate::kinds::{self, Kind, PERSISTENT_VOLUME_CLAIM, POD, SERVICE, pod_usage};
use flyball_core::time::Timestamp;
use flyball_core::{GroupResource, Object, Quantity};
use serde_json::Value;

/// Returns the usage of an object at this time.
pub fn usage(resource: &GroupResource, object: &Object, now: Timestamp) -> Amounts {
    let one = Quantity::from_integer(1);
    let kind = kinds::built_in().find(|kind| is(kind, resource));
    let amounts = kind.and_then(|kind| (kind.quota_usage)(object, now));
    let plural = amounts.as_ref().map(|_| (resource.resource.to_string(), one));
    let count = (format!("count/{resource}"), one);
    amounts.unwrap_or_default().into_iter().chain(plural).chain([count]).collect()
}

fn is(kind: &Kind, resource: &GroupResource) -> bool {
    (kind.group, kind.plural) == (&*resource.group, &*resource.resource)
}

/// Returns true if the usage or the scope of an object depends on more than its metadata.
pub fn reads_content(resource: &GroupResource) -> bool {
    [&POD, &SERVICE, &PERSISTENT_VOLUME_CLAIM].into_iter().any(|kind| is(kind, resource))
}

/// Returns true if a quota with this spec counts an object.
pub fn applies_to(spec: &Value, resource: &GroupResource, object: &Object) -> bool {
    let is_pod = is(&POD, resource);
    let mut scopes = spec["scopes"].as_array().into_iter().flatten();
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let scopes = scopes
        .all(|scope| is_pod && pod_usage::in_scope(object, scope.as_str().unwrap_or_default(), "Exists", &Value::Null));
    scopes
        && selected.into_iter().all(|term| {
            let text = |field: &str| term[field].as_str().unwrap_or_default().to_owned();
            is_pod && pod_usage::in_scope(object, &text("scopeName"), &text("operator"), &term["values"])
        })
}
