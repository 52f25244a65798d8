//! Events, which two groups serve in different words and store as one.

use flyball_core::Object;
use serde_json::{Value, json};

/// What core events can be selected by.
pub(super) const CORE_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
    "source",
];

/// The same in the words of the newer group, which does not know the last one.
pub(super) const NEW_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

/// Returns the value of a field of an event as it is stored.
pub(super) fn field(event: &Object, field: &str) -> String {
    let text = |path: &[&str]| event.at(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    match field.split_once('.') {
        Some(("involvedObject" | "regarding", inner)) => text(&["involvedObject", inner]),
        _ if field == "source" => Some(text(&["source", "component"]))
            .filter(|component| !component.is_empty())
            .unwrap_or_else(|| text(&["reportingComponent"])),
        _ if field == "reportingController" => text(&["reportingComponent"]),
        _ => text(&[field]),
    }
}

/// Each field's name in the newer group and in the core group, where they differ.
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Turns an event of the newer group into a core event.
pub(super) fn to_core(event: &mut Object) {
    for (new, core) in RENAMED {
        if let Some(value) = event.remove(new) {
            event.insert(core.into(), value);
        }
    }
    // These are always told of a core event.
    for (field, empty) in [("reportingComponent", json!("")), ("reportingInstance", json!("")), ("source", json!({}))] {
        event.entry(field).or_insert(empty);
    }
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        event.entry(field).or_insert(Value::Null);
    }
    event.entry("involvedObject").or_insert_with(|| json!({}));
}

/// Turns a core event into one of the newer group.
pub(super) fn from_core(event: &mut Object) {
    for (new, core) in RENAMED {
        if let Some(value) = event.remove(core) {
            event.insert(new.into(), value);
        }
    }
    for field in ["reportingController", "reportingInstance"] {
        if event.get(field).is_some_and(|value| value == "") {
            event.remove(field);
        }
    }
}
