//! Validating admission policies.

use super::GROUP;
use super::policy::{self, MAX_ANNOTATION_EXPRESSION, MAX_ANNOTATIONS};
use crate::kinds::expression::{self, ResultType, Variables};
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{EXTENSIONS, Kind};
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use flyball_core::names::qualified_name;
use serde_json::Value;
use std::collections::HashSet;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
    .exempt_from_webhooks()
    .exempt_from_policies()
    .validate(validate)
    .printed(COLUMNS, row)
    .default(policy::default)
    .category(EXTENSIONS)
    .cluster()
    .generation()
    .versioned_updates()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::number(
        "Validations",
        "Validations indicates the number of validation rules defined in this configuration",
    ),
    Heading::text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
    Heading::AGE,
];

fn validate(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    if part == Part::Status {
        return Errors::new();
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let params = spec.at("paramKind").is_set();
    let mut errors = policy::head(&spec);
    let names = policy::variables(&spec, params, &mut errors);
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        const NONE: &str = "validations or auditAnnotations must contain at least one item";
        errors.extend([validations.required(NONE), annotations.required(NONE)]);
        return errors;
    }
    errors.extend(validations.items().flat_map(|each| validation(&each, &names)));
    if annotations.len() > MAX_ANNOTATIONS {
        errors.push(annotations.invalid(format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations")));
    }
    let mut seen: HashSet<&Value> = HashSet::new();
    for annotation in annotations.items() {
        let (key, value) = (annotation.at("key"), annotation.at("valueExpression"));
        let whole = format!("{}/{}", object.name(), key.text());
        if object.name().is_empty() {
            errors.push(key.invalid("requires metadata.name be non-empty"));
        } else {
            errors.extend(qualified_name(&whole).into_iter().map(|why| key.invalid_as(whole.as_str(), why)));
        }
        match value.text().trim() {
            "" => errors.push(value.required("valueExpression is not specified")),
            text if text.len() > MAX_ANNOTATION_EXPRESSION => {
                errors.push(value.required(format!("must not exceed {MAX_ANNOTATION_EXPRESSION} bytes in length")));
            }
            _ => errors.extend(expression::check(&value, &names, ResultType::TextOrNull)),
        }
        if !seen.insert(&annotation.value()["key"]) {
            errors.push(key.duplicate());
        }
    }
    errors
}

fn validation(validation: &Field<'_>, names: &Variables<'_>) -> Errors {
    let (text, message) = (validation.at("expression"), validation.at("message"));
    let (made, reason) = (validation.at("messageExpression"), validation.at("reason"));
    let mut errors = Errors::new();
    if text.text().trim().is_empty() {
        errors.push(text.required("expression is not specified"));
    } else {
        errors.extend(expression::check(&text, names, ResultType::Bool));
    }
    if !made.text().is_empty() {
        if made.text().trim().is_empty() {
            errors.push(made.invalid("must be non-empty if specified"));
        } else {
            let known = names.iter().filter(|(name, _)| *name != "authorizer").cloned().collect();
            errors.extend(expression::check(&made, &known, ResultType::Text));
        }
    }
    if !message.text().is_empty() {
        if message.text().trim().is_empty() {
            errors.push(message.invalid("must be non-empty if specified"));
        } else if message.text().trim().contains(['\n', '\r']) {
            errors.push(message.invalid("must not contain line breaks"));
        }
    }
    if reason.is_set() {
        errors.extend(reason.must_be_in(&["Forbidden", "Invalid", "RequestEntityTooLarge"]));
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    policy::row(view, "spec.validations")
}
