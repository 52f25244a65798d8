//! Nodes.

use flyball_core::Object;
use serde_json::Value;

/// Tells in words whether a node takes no more pods.
pub(super) fn unschedulable(node: &Object, _: &str) -> String {
    node.at(&["spec", "unschedulable"]).and_then(Value::as_bool).unwrap_or_default().to_string()
}
