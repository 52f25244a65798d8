//! Kinds of `rbac.authorization.k8s.io`, and the common parts of roles and bindings.

kinds! {
    mod cluster_role_binding;
    mod cluster_role;
    mod role_binding;
    mod role;
}

pub(crate) use cluster_role::KIND as CLUSTER_ROLE;
pub(crate) use cluster_role_binding::KIND as CLUSTER_ROLE_BINDING;
pub(crate) use role::KIND as ROLE;
pub(crate) use role_binding::KIND as ROLE_BINDING;

use crate::kinds::display::internal;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::printer::{Row, View, text};
use flyball_core::Object;
use flyball_core::names::{dns_subdomain, path_segment};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

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

fn default_binding(binding: &mut Object) {
    if let Some(role) = binding.inner("roleRef")
        && role.text("apiGroup").is_empty()
    {
        role.set("apiGroup", GROUP);
    }
    for subject in binding.each("subjects") {
        if matches!(subject.text("kind"), "User" | "Group") && subject.text("apiGroup").is_empty() {
            subject.set("apiGroup", GROUP);
        }
    }
}

fn check_binding(object: &Object, old: Option<&Object>, kinds: &[&str]) -> Errors {
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

fn binding_row(view: &View<'_>) -> Row {
    let role = format!("{}/{}", view.text("roleRef.kind"), view.text("roleRef.name"));
    let of = |kind: &str| {
        let subjects = view.list("subjects").iter().filter(|subject| text(subject, "kind") == kind);
        let name = |subject: &Value| match text(subject, "namespace") {
            namespace if kind == "ServiceAccount" => {
                format!("{namespace}/{}", text(subject, "name"))
            }
            _ => text(subject, "name").to_owned(),
        };
        Value::from(subjects.map(name).collect::<Vec<_>>().join(", "))
    };
    Row::from([view.name(), role.into(), view.age(), of("User"), of("Group"), of("ServiceAccount")])
}
