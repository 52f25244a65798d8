//! PodResizeValidator: rejects resizes of pods that their node cannot carry out.
//!
//! See <https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>.

use super::{Attributes, Operation, Plugin, PluginResult, decided, pass};
use crate::kinds::{NODE, POD, Part, amounts, pod_usage};
use crate::storage::Store;
use flyball_core::field::go_quote;
use flyball_core::status::Cause;
use flyball_core::{Object, ObjectKey, Quantity, Status};
use serde_json::Value;
use std::sync::Arc;

/// Checks resizes of pods that run on a node.
pub(super) struct PodResizeValidator {
    store: Arc<Store>,
}

impl PodResizeValidator {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    fn check(&self, attributes: &Attributes<'_>, pod: &Object, old: &Object) -> Result<(), Status> {
        let node = pod.at(&["spec", "nodeName"]).and_then(Value::as_str).unwrap_or_default();
        if node.is_empty() || pod.generation() == old.generation() {
            return Ok(());
        }
        let stored = self.store.get(&NODE.table(), &ObjectKey::new(None, node));
        let Some(stored) = stored.and_then(|entry| entry.object().ok()) else {
            return Err(attributes.forbidden(format_args!("node {} not found", go_quote(node))));
        };
        if let Some(lacking) = lacking(pod, &stored) {
            let why = format!("Node didn't have enough allocatable resources: {lacking}");
            return Err(with_cause(attributes.forbidden(why), "NodeCapacity"));
        }
        let system = stored.label("kubernetes.io/os").unwrap_or_default();
        if system != "linux" {
            let (node, system) = (go_quote(node), go_quote(system));
            let why = format!("pod resize is only supported on linux nodes, node {node} is {system}");
            return Err(with_cause(attributes.forbidden(why), "UnsupportedPlatform"));
        }
        Ok(())
    }
}

impl Plugin for PodResizeValidator {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        let is_resize = attributes.operation == Operation::Update && attributes.part == Part::Resize;
        match (object.filter(|_| is_resize && attributes.is(&POD)), attributes.old) {
            (Some(pod), Some(old)) => decided(self.check(attributes, pod, old)),
            _ => pass(),
        }
    }
}

/// Returns the resources of which a pod requests more than its node can give to all pods.
fn lacking(pod: &Object, node: &Object) -> Option<String> {
    let requests = pod_usage::requests(pod);
    let allocatable = node.at(&["status", "allocatable"]).map(amounts).unwrap_or_default();
    let lacking = ["cpu", "memory"].into_iter().filter_map(|name| {
        let number = if name == "cpu" { Quantity::milli_value } else { Quantity::value };
        let requested = requests.get(name).map_or(0, number);
        let allocatable = allocatable.get(name).map_or(0, number);
        (requested > allocatable).then(|| format!("{name}, requested: {requested}, allocatable: {allocatable}"))
    });
    let lacking: Vec<String> = lacking.collect();
    (!lacking.is_empty()).then(|| lacking.join("; "))
}

/// Adds a cause, which clients such as autoscalers check.
fn with_cause(mut status: Status, reason: &str) -> Status {
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: reason.into(), ..Cause::default() });
    }
    status
}
