//! Rules shared by admission policies.

use super::{conditions, default_matching, rule};
use crate::kinds::expression::{self, Variables};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::printer::{Row, UNSET, View, text};
use crate::kinds::rules::label;
use flyball_core::names::{dns_1035_label, dns_subdomain, path_segment};
use flyball_core::{GroupVersion, Object};
use flyball_schema::cel::{self, Type};
use serde_json::Value;
use std::collections::HashSet;

/// Maximum number of audit annotations of a policy.
pub(super) const MAX_ANNOTATIONS: usize = 20;

/// Maximum size of an expression, in bytes.
pub(super) const MAX_ANNOTATION_EXPRESSION: usize = 5 << 10;

pub(super) fn default(policy: &mut Object) {
    let spec = policy.inner_or_new("spec");
    spec.fill("failurePolicy", "Fail");
    spec.inner("matchConstraints").into_iter().for_each(default_matching);
}

/// Validates the common first fields of validating and mutating policies.
pub(super) fn head(spec: &Field<'_>) -> Errors {
    let mut errors: Errors = spec.at("failurePolicy").must_be_one_of(&["Fail", "Ignore"]).into_iter().collect();
    let (kind, constraints) = (spec.at("paramKind"), spec.at("matchConstraints"));
    if kind.is_set() {
        errors.extend(param_kind(&kind));
    }
    if constraints.is_set() {
        errors.extend(resources(&constraints));
        let rules = constraints.at("resourceRules");
        if rules.is_empty() {
            errors.push(rules.required(""));
        }
    } else {
        errors.push(constraints.required(""));
    }
    errors.extend(conditions(&spec.at("matchConditions"), kind.is_set()));
    errors
}

/// Compiles the variables of a policy, which may use previous ones; returns the variables of other expressions.
pub(super) fn variables(spec: &Field<'_>, params: bool, errors: &mut Errors) -> Variables<'static> {
    let mut known = expression::variables();
    known.push(("namespaceObject", cel::namespace()));
    known.extend(params.then_some(("params", Type::Dyn)));
    let mut own: Vec<(String, Type<'static>)> = Vec::new();
    for variable in spec.at("variables").items() {
        let (name, expression) = (variable.at("name"), variable.at("expression"));
        let text = name.text();
        let identifier = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if text.trim().is_empty() {
            errors.push(name.required("name is not specified"));
        } else if !identifier || cel::is_reserved(text) {
            errors.push(name.invalid("must be a valid CEL identifier"));
        }
        let mut made = Type::Dyn;
        if expression.text().trim().is_empty() {
            errors.push(expression.required("expression is not specified"));
        } else {
            let mut known = known.clone();
            known.push(("variables", Type::Fields(own.clone().into())));
            match expression::result_type(&expression, &known) {
                Ok(found) => made = found,
                Err(error) => errors.push(error),
            }
        }
        own.push((text.to_owned(), made));
    }
    if !own.is_empty() {
        known.push(("variables", Type::Fields(own.into())));
    }
    known
}

fn param_kind(kind: &Field<'_>) -> Errors {
    let (version, name) = (kind.at("apiVersion"), kind.at("kind"));
    let mut errors = Errors::new();
    match GroupVersion::parse(version.text()) {
        _ if version.is_empty() => errors.push(version.required("")),
        None => errors.push(version.invalid(format!("unexpected GroupVersion string: {}", version.text()))),
        Some(parsed) => {
            let invalid = |given: &str, wrong: Vec<String>| {
                (!wrong.is_empty()).then(|| version.invalid_as(given, wrong.join(",")))
            };
            if !parsed.group.is_empty() {
                errors.extend(invalid(&parsed.group, dns_subdomain(&parsed.group)));
            }
            errors.extend(invalid(&parsed.version, dns_1035_label(&parsed.version)));
        }
    }
    let wrong = dns_1035_label(&name.text().to_lowercase());
    if name.is_empty() {
        errors.push(name.required(""));
    } else if !wrong.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.push(name.invalid(why));
    }
    errors
}

pub(super) fn resources(matched: &Field<'_>) -> Errors {
    let mut errors: Errors = matched.at("matchPolicy").must_be_one_of(&["Equivalent", "Exact"]).into_iter().collect();
    errors.extend(label::selector(&matched.at("namespaceSelector")));
    errors.extend(label::selector(&matched.at("objectSelector")));
    for list in ["resourceRules", "excludeResourceRules"] {
        for each in matched.at(list).items() {
            let names = each.at("resourceNames");
            let mut seen: HashSet<&Value> = HashSet::new();
            for name in names.items() {
                errors.extend(name.obeys(path_segment));
                if !seen.insert(name.value()) {
                    errors.push(name.duplicate());
                }
            }
            errors.extend(rule(&each));
        }
    }
    errors
}

pub(super) fn row(view: &View<'_>, rules: &str) -> Row {
    let kind = view.at("spec.paramKind");
    let kind =
        if kind.is_null() { UNSET.into() } else { format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")) };
    Row::from([view.name(), view.list(rules).len().into(), kind.into(), view.age()])
}
