//! Events of the core group, which is also the stored form of events of `events.k8s.io`.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, Row, View, text};
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_subdomain, qualified_name};
use serde_json::{Value, json};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Event", "events")
    .printed(COLUMNS, row)
    .checks(Checks::Once)
    .validate(validate)
    .short(&["ev"])
    .create_on_update()
    .cannot_own()
    .fields(FIELDS, field);

pub(in crate::kinds) const COLUMNS: &[Heading] = &[
    Heading::text("Last Seen", "The time at which the most recent occurrence of this event was recorded."),
    Heading::text("Type", "Type of this event (Normal, Warning), new types could be added in the future"),
    Heading::text(
        "Reason",
        "This should be a short, machine understandable string that gives the reason for the transition into the \
         object's current status.",
    ),
    Heading::text("Object", "The object that this event is about."),
    Heading::text(
        "Subobject",
        "If referring to a piece of an object instead of an entire object, this string should contain a valid \
         JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object \
         reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \
         \"name\" refers to the name of the container that triggered the event) or if no container name is specified \
         \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some \
         well-defined way of referencing a part of an object.",
    )
    .wide(),
    Heading::text("Source", "The component reporting this event. Should be a short machine understandable string.")
        .wide(),
    Heading::text("Message", "A human-readable description of the status of this operation."),
    Heading::text(
        "First Seen",
        "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
    )
    .wide(),
    Heading::text("Count", "The number of times this event has occurred.").wide(),
    Heading::NAME.wide(),
];

/// The selectable fields of core events.
const FIELDS: &[&str] = &[
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

/// Returns the value of a field of a stored event.
pub(in crate::kinds) fn field(event: &Object, field: &str) -> String {
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

/// Fields with different names in `events.k8s.io` and in the core group.
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Converts an event of `events.k8s.io` to a core event.
pub(in crate::kinds) fn to_core(event: &mut Object) {
    for (new, core) in RENAMED {
        if let Some(value) = event.remove(new) {
            event.insert(core.into(), value);
        }
    }
    // Core events always have these fields.
    for (field, empty) in [("reportingComponent", json!("")), ("reportingInstance", json!("")), ("source", json!({}))] {
        event.entry(field).or_insert(empty);
    }
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        event.entry(field).or_insert(Value::Null);
    }
    event.entry("involvedObject").or_insert_with(|| json!({}));
}

/// Converts a core event to an event of `events.k8s.io`.
pub(in crate::kinds) fn from_core(event: &mut Object) {
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

/// Maximum lengths of strings, by field names of the core group.
const LENGTHS: [(&str, usize); 4] = [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)];

/// Validates events of both groups; only the field name of the controller differs.
pub(in crate::kinds) fn check(event: &Object, controller: &str) -> Errors {
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

fn validate(event: &Object, _: Option<&Object>, _: Part) -> Errors {
    check(event, "reportingComponent")
}

pub(in crate::kinds) fn row(view: &View<'_>) -> Row {
    let series = view.at("series");
    let first = [view.text("firstTimestamp"), view.text("eventTime")]
        .into_iter()
        .find(|time| !time.is_empty())
        .unwrap_or_default();
    let last = [text(series, "lastObservedTime"), view.text("lastTimestamp"), first];
    let last = last.into_iter().find(|time| !time.is_empty()).unwrap_or_default();
    let count = match series["count"].as_i64() {
        Some(count) => count,
        None => view.int("count").max(1),
    };
    let (kind, name) = (view.text("involvedObject.kind").to_lowercase(), view.text("involvedObject.name"));
    let target = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    let either = |paths: [&str; 2]| paths.map(|path| view.text(path)).into_iter().find(|text| !text.is_empty());
    let source = [either(["source.component", "reportingComponent"]), either(["source.host", "reportingInstance"])];
    let source = match source {
        [component, None] => component.unwrap_or_default().to_owned(),
        [component, Some(host)] => format!("{}, {host}", component.unwrap_or_default()),
    };
    Row::from([
        view.since(last).into(),
        view.text("type").into(),
        view.text("reason").into(),
        target.into(),
        view.text("involvedObject.fieldPath").into(),
        source.into(),
        view.text("message").trim().into(),
        view.since(first).into(),
        count.into(),
        view.name(),
    ])
}
