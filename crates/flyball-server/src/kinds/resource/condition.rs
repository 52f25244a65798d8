//! Conditions (`metav1.Condition`).

use super::Errors;
use crate::kinds::field::Field;
use crate::kinds::rules::label;
use flyball_core::field::FieldError;
use flyball_core::names::pattern_error;
use std::collections::BTreeSet;

const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;

pub(super) fn check(conditions: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut types = BTreeSet::new();
    for condition in conditions.items() {
        let ty = condition.at("type");
        if !types.insert(ty.text().to_owned()) {
            errors.push(ty.duplicate());
        }
        errors.extend(one(&condition));
    }
    errors
}

fn one(condition: &Field<'_>) -> Errors {
    let (generation, since) = (condition.at("observedGeneration"), condition.at("lastTransitionTime"));
    let message = condition.at("message");
    let mut errors = label::key(&condition.at("type"));
    errors.extend(condition.at("status").must_be_in(&["False", "True", "Unknown"]));
    if generation.int() < 0 {
        errors.push(generation.invalid("must be greater than or equal to zero"));
    }
    if since.is_empty() {
        errors.push(since.required(""));
    }
    errors.extend(reason(&condition.at("reason")));
    if message.text().len() > MAX_MESSAGE {
        errors.push(message.too_long(MAX_MESSAGE as u64));
    }
    errors
}

fn reason(reason: &Field<'_>) -> Option<FieldError> {
    let text = reason.text();
    let edge = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && text.bytes().next_back().is_some_and(edge)
        && text.bytes().all(|byte| edge(byte) || matches!(byte, b',' | b':'));
    match text {
        "" => Some(reason.required("")),
        _ if text.len() > MAX_REASON => Some(reason.too_long(MAX_REASON as u64)),
        _ if well => None,
        _ => {
            let what = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
            let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
            Some(reason.invalid(pattern_error(what, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &examples)))
        }
    }
}
