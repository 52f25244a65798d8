//! Rules of roles and of who holds them.

use super::Part;
use super::field::Field;
use super::rules::label;
use super::shown::internal;
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_subdomain, path_segment};
use serde_json::Value;

type Errors = Vec<FieldError>;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn role(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    rules(object, true)
}

pub(super) fn cluster_role(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let mut errors = rules(object, false);
    let root = Field::root(object);
    let aggregation = root.at("aggregationRule");
    if aggregation.is_set() {
        let selectors = aggregation.at("clusterRoleSelectors");
        if selectors.is_empty() {
            errors.push(selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil"));
        }
        for selector in selectors.items() {
            errors.extend(label::selector(&selector));
            if label::selects(selector.value(), &Value::Null).is_none() {
                errors.push(selector.invalid_as(Value::Null, "invalid label selector."));
            }
        }
    }
    errors
}

fn rules(object: &Object, namespaced: bool) -> Errors {
    let root = Field::root(object);
    let mut errors = Errors::new();
    for rule in root.at("rules").items() {
        if rule.at("verbs").is_empty() {
            errors.push(rule.at("verbs").required("verbs must contain at least one value"));
        }
        let urls = rule.at("nonResourceURLs");
        if !urls.is_empty() {
            if namespaced {
                errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.at(field).is_empty()) {
                errors.push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
            }
            continue;
        }
        for (field, what) in [("apiGroups", "api group"), ("resources", "resource")] {
            if rule.at(field).is_empty() {
                errors.push(rule.at(field).required(format!("resource rules must supply at least one {what}")));
            }
        }
    }
    errors
}

pub(super) fn role_binding(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    binding(object, old, &["Role", "ClusterRole"])
}

pub(super) fn cluster_role_binding(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    binding(object, old, &["ClusterRole"])
}

fn binding(object: &Object, old: Option<&Object>, kinds: &[&str]) -> Errors {
    let root = Field::root(object);
    let role = root.at("roleRef");
    let mut errors: Errors = role.at("apiGroup").must_be_in(&[GROUP]).into_iter().collect();
    errors.extend(role.at("kind").must_be_in(kinds));
    errors.extend(role.at("name").must_obey(path_segment));
    for subject in root.at("subjects").items() {
        let (kind, name, group) = (subject.at("kind"), subject.at("name"), subject.at("apiGroup"));
        errors.extend(name.must_be_set());
        match kind.text() {
            "ServiceAccount" => {
                errors.extend(name.may_obey(dns_subdomain));
                if !group.is_empty() {
                    errors.push(group.not_supported(&[""]));
                }
                if kinds.len() == 1 {
                    errors.extend(subject.at("namespace").must_be_set());
                }
            }
            "User" | "Group" => errors.extend(group.must_be_in(&[GROUP])),
            _ => errors.push(kind.not_supported(&["ServiceAccount", "User", "Group"])),
        }
    }
    if old.is_some_and(|old| old.get("roleRef") != object.get("roleRef")) {
        errors.push(role.invalid_as(internal("RoleRef", role.value()), "cannot change roleRef"));
    }
    errors
}
