//! Taints of devices, tolerations, and binding conditions.

use super::{Errors, list};
use crate::kinds::field::Field;
use crate::kinds::rules::label;
use flyball_core::names::label_value;
use std::collections::BTreeSet;

const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const MAX_CONDITIONS: usize = 4;

pub(super) fn check(taint: &Field<'_>) -> Errors {
    let mut errors = label::key(&taint.at("key"));
    errors.extend(taint.at("value").may_obey(label_value));
    errors.extend(taint.at("effect").must_be_one_of(&EFFECTS));
    errors
}

pub(super) fn tolerations(tolerations: &Field<'_>) -> Errors {
    tolerations.items().flat_map(|toleration| self::toleration(&toleration)).collect()
}

fn toleration(toleration: &Field<'_>) -> Errors {
    let (key, operator, value) = (toleration.at("key"), toleration.at("operator"), toleration.at("value"));
    let effect = toleration.at("effect");
    let mut errors = Errors::new();
    if !key.is_empty() {
        errors.extend(label::key(&key));
    }
    match operator.text() {
        "Exists" if !value.is_empty() => errors.push(value.invalid("must be empty for operator `Exists`")),
        "Exists" => {}
        "Equal" => errors.extend(value.obeys(label_value)),
        _ => errors.extend(operator.must_be_one_of(&["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        errors.extend(effect.must_be_in(&EFFECTS));
    }
    errors
}

/// Validates conditions of success and failure: either both are set or none, and they are disjoint.
pub(super) fn binding_conditions(of: &Field<'_>) -> Errors {
    let (success, failure) = (of.at("bindingConditions"), of.at("bindingFailureConditions"));
    let mut errors = list(&success, MAX_CONDITIONS, label::key);
    errors.extend(list(&failure, MAX_CONDITIONS, label::key));
    let mut success_types = BTreeSet::new();
    for condition in success.items() {
        if !success_types.insert(condition.text().to_owned()) {
            errors.push(condition.duplicate());
        }
    }
    let mut failure_types = BTreeSet::new();
    for condition in failure.items() {
        if !failure_types.insert(condition.text().to_owned()) {
            errors.push(condition.duplicate());
        }
        if success_types.contains(condition.text()) {
            errors.push(condition.invalid("bindingFailureConditions must not overlap with bindingConditions"));
        }
    }
    if success.is_empty() && !failure.is_empty() {
        errors.push(success.invalid("bindingConditions are required to use bindingFailureConditions"));
    }
    if failure.is_empty() && !success.is_empty() {
        errors.push(failure.invalid("bindingFailureConditions are required to use bindingConditions"));
    }
    errors
}
