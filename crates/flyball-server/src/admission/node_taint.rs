//! TaintNodesByCondition: taints new nodes until they are ready.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#taintnodesbycondition>.

use super::{Attributes, Operation, Plugin, PluginResult, Reinvocation, pass};
use flyball_core::Object;
use serde_json::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints new nodes.
pub(super) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        if let Some(node) = object.filter(|_| attributes.operation == Operation::Create) {
            taint(node);
        }
        pass()
    }
}

fn taint(node: &mut Object) {
    let spec = node.entry("spec").or_insert_with(|| json!({}));
    let taints = spec.as_object_mut().map(|spec| spec.entry("taints").or_insert_with(|| json!([])));
    if let Some(taints) = taints.and_then(Value::as_array_mut)
        && !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule")
    {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
