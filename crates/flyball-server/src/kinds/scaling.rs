//! Horizontal pod autoscalers, whose first version knows one metric.

use flyball_core::Object;
use serde_json::{Map, Value, json};

/// Turns the first version into the second, as which autoscalers are stored.
pub(super) fn to_v2(scaler: &mut Object) {
    if let Some(spec) = scaler.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(percentage) = spec.remove("targetCPUUtilizationPercentage")
    {
        let target = json!({"type": "Utilization", "averageUtilization": percentage});
        spec.insert("metrics".into(), json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
    if let Some(status) = scaler.get_mut("status").and_then(Value::as_object_mut) {
        let current = status.remove("currentCPUUtilizationPercentage");
        let metric = |percentage| json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percentage}}}]);
        status.insert("currentMetrics".into(), current.map_or(Value::Null, metric));
    }
}

/// Turns the second version into the first.
pub(super) fn from_v2(scaler: &mut Object) {
    let cpu = |metrics: Option<Value>, part: &str| {
        let metrics = metrics?;
        let cpu = metrics.as_array()?.iter().find(|metric| metric.pointer("/resource/name") == Some(&"cpu".into()))?;
        cpu.pointer(&format!("/resource/{part}/averageUtilization")).cloned()
    };
    let take = |object: &mut Map<String, Value>, from: &str, part: &str, to: &str| {
        if let Some(percentage) = cpu(object.remove(from), part) {
            object.insert(to.to_owned(), percentage);
        }
    };
    if let Some(spec) = scaler.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("behavior");
        take(spec, "metrics", "target", "targetCPUUtilizationPercentage");
    }
    if let Some(status) = scaler.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("conditions");
        status.entry("currentReplicas").or_insert_with(|| 0.into());
        take(status, "currentMetrics", "current", "currentCPUUtilizationPercentage");
    }
}
