//! Events, which two groups serve in different words and store as one.

use super::Part;
use super::field::Field;
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_subdomain, qualified_name};
use serde_json::{Value, json};

/// The selectable fields of core events.
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

type Errors = Vec<FieldError>;

/// The greatest lengths of texts, by the names of the core group.
const LENGTHS: [(&str, usize); 4] = [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)];

/// Rules that old and new events obey; only the name of the controller differs.
fn common(event: &Object, controller: &str) -> Errors {
    let root = Field::root(event);
    let mut errors = Errors::new();
    let own = event.namespace().unwrap_or_default();
    let about = root.at("involvedObject");
    let about = about.at("namespace");
    if root.at("eventTime").is_empty() {
        let agrees = if about.is_empty() { matches!(own, "" | "default") } else { about.text() == own };
        if !agrees {
            errors.push(about.invalid_as(about.text(), "does not match event.namespace"));
        }
    } else {
        if about.is_empty() && !matches!(own, "default" | "kube-system") {
            errors.push(about.invalid_as("", "does not match event.namespace"));
        }
        let reporter = root.at_as("reportingComponent", controller);
        errors.extend(reporter.must_be_set());
        errors.extend(reporter.obeys(qualified_name));
        for (field, most) in LENGTHS {
            let field = root.at(field);
            if field.is_empty() && most == 128 {
                errors.push(field.required(""));
            }
            if field.text().len() > most {
                errors.push(field.invalid_as("", format!("can have at most {most} characters")));
            }
        }
    }
    errors.extend(dns_subdomain(own).into_iter().map(|wrong| FieldError::invalid("namespace", own, wrong)));
    errors
}

pub(super) fn validate_core(event: &Object, _: Option<&Object>, _: Part) -> Errors {
    common(event, "reportingComponent")
}

/// Fields that an event of the newer group keeps.
const FIXED: [&str; 9] =
    ["involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type"];
const FIXED_LATER: [&str; 5] = ["eventTime", "action", "related", "reportingComponent", "reportingInstance"];

pub(super) fn validate_new(event: &Object, old: Option<&Object>, _: Part) -> Errors {
    let core = |event: &Object| {
        let mut event = event.clone();
        to_core(&mut event);
        event
    };
    let event = core(event);
    let root = Field::root(&event);
    let mut errors = common(&event, "reportingController");
    let series = root.at("series");
    let count = |errors: &mut Errors| {
        if series.is_set() {
            if series.at("count").int() < 2 {
                errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
            }
            if series.at("lastObservedTime").is_empty() {
                errors.push(FieldError::required("series.lastObservedTime", ""));
            }
        }
    };
    let Some(old) = old.map(core) else {
        count(&mut errors);
        if root.at("eventTime").is_empty() {
            errors.push(root.at("eventTime").required(""));
        }
        let ty = root.at("type");
        if !matches!(ty.text(), "Normal" | "Warning") {
            errors.push(ty.invalid_as("", format!("has invalid value: {}", ty.text())));
        }
        let unset = |field: &str| {
            matches!(root.at(field).value(), Value::Null) || root.at(field).is_empty() || root.at(field).value() == 0
        };
        for field in ["firstTimestamp", "lastTimestamp", "count", "source"].into_iter().filter(|field| !unset(field)) {
            errors.push(root.at(field).invalid_as("", "needs to be unset"));
        }
        return errors;
    };
    let before = Field::root(&old);
    if series.value() != before.at("series").value() {
        count(&mut errors);
    }
    for field in FIXED.into_iter().chain(FIXED_LATER) {
        let label = if field == "reportingComponent" { "reportingController" } else { field };
        errors.extend(root.at_as(field, label).unchanged_from(&before.at(field)));
    }
    errors
}
