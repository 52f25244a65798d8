//! What is particular to the deletion of some kinds.

use super::{Kind, namespace};
use crate::registry::{Behaviour, Resource};
use flyball_core::{Clock, Object};
use serde_json::Value;

fn is(resource: &Resource, group: &str, kind: &str) -> bool {
    matches!(&resource.behaviour, Behaviour::BuiltIn(known) if known.group == group && known.kind == kind)
}

/// Tells whether objects of this kind are given time to end.
pub(crate) fn ends_gracefully(resource: &Resource) -> bool {
    is(resource, "", "Pod")
}

/// Returns how many seconds an object is given to end, if it is given any.
pub(crate) fn grace(resource: &Resource, live: &Object, asked: Option<i64>) -> i64 {
    if !ends_gracefully(resource) {
        return 0;
    }
    let text = |path: &[&str]| live.at(path).and_then(Value::as_str).unwrap_or_default();
    // What does not run has nothing to end.
    if text(&["spec", "nodeName"]).is_empty() || matches!(text(&["status", "phase"]), "Failed" | "Succeeded") {
        return 0;
    }
    let own = live.at(&["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    match asked.or(own).unwrap_or(0) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}

/// Tells whether what objects of this kind own stays, if nobody says otherwise.
pub(crate) fn orphans_by_default(resource: &Resource) -> bool {
    is(resource, "batch", "Job") || is(resource, "", "ReplicationController")
}

/// Tells whether a deletion only marks the object, finalizers or not.
pub(crate) fn outlives_deletion(resource: &Resource, live: &Object) -> bool {
    is(resource, "apiextensions.k8s.io", "CustomResourceDefinition") && live.deletion_timestamp().is_none()
        || outlives_finalizers(resource, live)
}

/// Tells whether something else than finalizers of the metadata holds a deleted object.
pub(crate) fn outlives_finalizers(resource: &Resource, object: &Object) -> bool {
    is(resource, "", "Namespace") && namespace::is_held(object)
}

/// Completes the mark that a deletion leaves.
pub(crate) fn mark(kind: &Kind, object: &mut Object, live: &Object, clock: &Clock) {
    match (kind.group, kind.kind) {
        ("", "Namespace") => namespace::mark(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crate::custom::mark(object, live, clock),
        _ => {}
    }
}
