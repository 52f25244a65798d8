//! Events of `events.k8s.io`: another representation of core events.

use super::GROUP;
use crate::kinds::core::event;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Row, View};
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::field::FieldError;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Event", "events")
    .printed(event::COLUMNS, row)
    .checks(Checks::Once)
    .validate(validate)
    .short(&["ev"])
    .create_on_update()
    .fields(FIELDS, event::field)
    .stored_as(CORE, event::to_core, event::from_core);

/// The group that objects are stored in.
const CORE: &str = "";

/// The columns for `events.k8s.io`: those of core events without the last one.
const FIELDS: &[&str] = &[
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

/// Immutable fields of events of `events.k8s.io`.
const IMMUTABLE_FIELDS: [&str; 14] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason", // compared twice, as in Kubernetes, so that the error is reported twice
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

fn validate(event: &Object, old: Option<&Object>, _: Part) -> Errors {
    let core = |event: &Object| {
        let mut event = event.clone();
        event::to_core(&mut event);
        event
    };
    let event = core(event);
    let root = Field::root(&event);
    let mut errors = event::check(&event, "reportingController");
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
    for field in IMMUTABLE_FIELDS {
        let label = if field == "reportingComponent" { "reportingController" } else { field };
        errors.extend(root.at_as(field, label).unchanged_from(&before.at(field)));
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    let mut object = view.object.clone();
    event::to_core(&mut object);
    event::row(&View { object: &object, ..*view })
}
