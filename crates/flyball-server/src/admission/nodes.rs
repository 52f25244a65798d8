//! What every new node gets: a taint that keeps pods away until it is known to be ready.

use super::Attributes;
use flyball_core::Object;
use serde_json::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) fn admit(attributes: &Attributes<'_>, node: &mut Object) {
    if !attributes.is("", "nodes") {
        return;
    }
    let spec = node.entry("spec").or_insert_with(|| json!({}));
    let taints = spec.as_object_mut().map(|spec| spec.entry("taints").or_insert_with(|| json!([])));
    if let Some(taints) = taints.and_then(Value::as_array_mut)
        && !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule")
    {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
