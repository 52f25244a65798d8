//! Kinds of `apps`, and shared rules of their selectors.

kinds! {
    mod controller_revision;
    mod daemon_set;
    mod deployment;
    mod replica_set;
    mod stateful_set;
}

use crate::kinds::display::selector;
use crate::kinds::field::{Errors, Field, IMMUTABLE};
use crate::kinds::pod_spec;
use crate::kinds::rules::label;
use crate::kinds::workload::{self, UNMATCHED};
use flyball_core::Object;
use flyball_core::field::FieldError;
use serde_json::Value;

const GROUP: &str = "apps";

/// Returns errors unless the selector is valid and not empty.
fn check_selector(field: &Field<'_>, kind: &str) -> Errors {
    if !field.is_set() {
        return vec![field.required("")];
    }
    let mut errors = label::selector(field);
    if label::is_empty(field.value()) {
        errors.push(field.invalid_as(selector(field.value()), format!("empty selector is invalid for {kind}")));
    }
    errors
}

/// Requires the template to have the selected labels.
fn selected(spec: &Field<'_>, even_nothing: bool) -> Option<FieldError> {
    let template = spec.at("template");
    let labels = template.at("metadata.labels");
    let selector = spec.at("selector");
    let nothing = selector.is_set() && label::is_empty(selector.value());
    let good = label::selects(selector.value(), labels.value()) != Some(false) || nothing && !even_nothing;
    (!good).then(|| labels.invalid(UNMATCHED))
}

fn same_selector(object: &Field<'_>, old: Option<&Object>) -> Option<FieldError> {
    let before = old?.at(&["spec", "selector"]).cloned().unwrap_or_default();
    let field = object.at("spec.selector");
    (*field.value() != before).then(|| field.invalid_as(selector(field.value()), IMMUTABLE))
}

/// Validates the template of a set of replicas.
fn replicated(spec: &Field<'_>) -> Errors {
    let label_selector = spec.at("selector");
    if label::selects(label_selector.value(), &Value::Null).is_none() {
        return vec![label_selector.invalid_as(selector(label_selector.value()), "invalid label selector")];
    }
    let template = spec.at("template");
    let mut errors: Errors = selected(spec, false).into_iter().collect();
    errors.extend(pod_spec::check_template(&template));
    errors.extend(workload::endless(&template, "ReplicaSet"));
    errors
}
