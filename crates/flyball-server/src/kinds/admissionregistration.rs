//! Kinds of `admissionregistration.k8s.io`, and the common parts of policies, bindings and webhooks.

kinds! {
    mod mutating_admission_policy;
    mod mutating_admission_policy_binding;
    mod mutating_webhook_configuration;
    mod validating_admission_policy;
    mod validating_admission_policy_binding;
    mod validating_webhook_configuration;
}

mod binding;
mod policy;
mod webhooks;

pub(crate) use mutating_admission_policy::KIND as MUTATING_ADMISSION_POLICY;
pub(crate) use mutating_admission_policy_binding::KIND as MUTATING_ADMISSION_POLICY_BINDING;
pub(crate) use mutating_webhook_configuration::KIND as MUTATING_WEBHOOK_CONFIGURATION;
pub(crate) use validating_admission_policy::KIND as VALIDATING_ADMISSION_POLICY;
pub(crate) use validating_admission_policy_binding::KIND as VALIDATING_ADMISSION_POLICY_BINDING;
pub(crate) use validating_webhook_configuration::KIND as VALIDATING_WEBHOOK_CONFIGURATION;

use crate::kinds::expression::{self, ResultType};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use flyball_core::field::FieldError;
use flyball_core::names::qualified_name;
use flyball_schema::cel::Type;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const GROUP: &str = "admissionregistration.k8s.io";

/// Sets the default match: all resources in any equivalent version.
fn default_matching(object: &mut Map<String, Value>) {
    object.fill("matchPolicy", "Equivalent");
    object.fill("namespaceSelector", json!({}));
    object.fill("objectSelector", json!({}));
    for rules in ["resourceRules", "excludeResourceRules"] {
        object.each(rules).for_each(|rule| rule.fill("scope", "*"));
    }
}

fn conditions(conditions: &Field<'_>, params: bool) -> Errors {
    let mut errors = Errors::new();
    let mut known = expression::variables();
    known.extend(params.then_some(("params", Type::Dyn)));
    if conditions.len() > 64 {
        errors.push(conditions.too_many(64));
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    for condition in conditions.items() {
        let (name, text) = (condition.at("name"), condition.at("expression"));
        if text.text().trim().is_empty() {
            errors.push(text.required(""));
        } else {
            errors.extend(expression::check_trimmed(&text, &known, ResultType::Bool));
        }
        errors.extend(name.must_obey(qualified_name));
        if !name.is_empty() && names.contains(name.text()) {
            errors.push(name.duplicate());
        }
        names.insert(name.text().to_owned());
    }
    errors
}

fn rule(rule: &Field<'_>) -> Errors {
    let (operations, groups, versions) = (rule.at("operations"), rule.at("apiGroups"), rule.at("apiVersions"));
    let mut errors: Errors = operations.must_be_set().into_iter().collect();
    errors.extend(alone(&operations, "operations"));
    errors.extend(operations.items().filter_map(|operation| operation.must_be_in(OPERATIONS)));
    errors.extend(groups.must_be_set());
    errors.extend(alone(&groups, "API groups"));
    errors.extend(versions.must_be_set());
    errors.extend(alone(&versions, "API versions"));
    errors.extend(versions.items().filter(Field::is_empty).map(|version| version.required("")));
    errors.extend(resources(&rule.at("resources")));
    errors.extend(rule.at("scope").may_be_one_of(&["*", "Cluster", "Namespaced"]));
    errors
}

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// Requires a wildcard to be the only entry.
fn alone(field: &Field<'_>, what: &str) -> Option<FieldError> {
    let wild = field.len() > 1 && field.texts().any(|text| text == "*");
    wild.then(|| field.invalid(format!("if '*' is present, must not specify other {what}")))
}

fn resources(resources: &Field<'_>) -> Errors {
    let mut errors: Errors = resources.must_be_set().into_iter().collect();
    let (mut whole, mut subs): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut plain = false;
    for item in resources.items() {
        let text = item.text();
        if text.is_empty() {
            errors.push(item.required(""));
            continue;
        }
        let Some((resource, sub)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        if whole.iter().any(|known| known == resource) {
            errors.push(item.invalid(format!("if '{resource}/*' is present, must not specify {text}")));
        }
        if subs.iter().any(|known| known == sub) {
            errors.push(item.invalid(format!("if '*/{sub}' is present, must not specify {text}")));
        }
        if sub == "*" {
            whole.push(resource.to_owned());
        }
        if resource == "*" {
            subs.push(sub.to_owned());
        }
    }
    if resources.len() > 1 && resources.texts().any(|text| text == "*/*") {
        errors.push(resources.invalid("if '*/*' is present, must not specify other resources"));
    }
    if plain && resources.texts().any(|text| text == "*") {
        errors.push(resources.invalid("if '*' is present, must not specify other resources without subresources"));
    }
    errors
}
