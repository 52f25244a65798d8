//! Bindings of validating admission policies.

use super::{GROUP, binding};
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{EXTENSIONS, Kind};
use crate::kinds::subresource::Part;
use flyball_core::Object;
use serde_json::Value;
use std::collections::HashSet;

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
        .exempt_from_webhooks()
        .exempt_from_policies()
        .validate(validate)
        .printed(binding::COLUMNS, binding::row)
        .default(binding::default)
        .category(EXTENSIONS)
        .cluster()
        .generation()
        .versioned_updates();

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = binding::check(&spec);
    let actions = spec.at("validationActions");
    let mut seen: HashSet<&Value> = HashSet::new();
    for action in actions.items() {
        errors.extend(action.must_be_in(&["Audit", "Deny", "Warn"]));
        if !seen.insert(action.value()) {
            errors.push(action.duplicate());
        }
    }
    let has = |expected: &str| actions.texts().any(|action| action == expected);
    if has("Deny") && has("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(actions.invalid(why));
    }
    if actions.is_empty() {
        errors.push(actions.required("at least one validation action is required"));
    }
    errors
}
