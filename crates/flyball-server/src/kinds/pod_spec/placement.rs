//! Placement of pods: affinity, tolerations, topology spread.

use super::super::field::Field;
use super::super::rules::{affinity, label};
use flyball_core::field::FieldError;
use flyball_core::names::{dns_label, label_value, qualified_name};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

type Errors = Vec<FieldError>;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates the affinity of a pod.
pub(super) fn affinity(field: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let nodes = field.at("nodeAffinity");
    let required = nodes.at(REQUIRED);
    if required.is_set() {
        errors.extend(affinity::node_selector(&required, true));
    }
    for preferred in nodes.at(PREFERRED).items() {
        errors.extend(weight(&preferred));
        errors.extend(affinity::node_selector_term(&preferred.at("preference"), false));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = field.at(kind);
        errors.extend(pods.at(REQUIRED).items().flat_map(|each| term(&each)));
        for preferred in pods.at(PREFERRED).items() {
            if kind == "podAffinity" || preferred.is_set() {
                let low = preferred.at("weight").int();
                if !(1..=100).contains(&low) {
                    errors.push(preferred.at("weight").invalid_as(low, "must be in the range 1-100"));
                }
            }
            errors.extend(term(&preferred.at("podAffinityTerm")));
        }
    }
    errors
}

fn weight(preferred: &Field<'_>) -> Option<FieldError> {
    let weight = preferred.at("weight");
    (!(1..=100).contains(&weight.int())).then(|| weight.invalid_as(weight.int(), "must be in the range 1-100"))
}

fn term(term: &Field<'_>) -> Errors {
    let mut errors = label::selector(&term.at("labelSelector"));
    errors.extend(label::selector(&term.at("namespaceSelector")));
    for name in term.at("namespaces").texts() {
        let shown = term.at("namespace");
        errors.extend(dns_label(name).into_iter().map(|wrong| shown.invalid_as(name, wrong)));
    }
    errors.extend(label_keys(term, &["matchLabelKeys", "mismatchLabelKeys"]));
    let key = term.at("topologyKey");
    if key.is_empty() {
        errors.push(key.required("can not be empty"));
    }
    errors.extend(label::key(&key));
    errors
}

/// Validates label keys whose values are compared with those of the pod.
fn label_keys(of: &Field<'_>, names: &[&str]) -> Errors {
    let mut errors = Errors::new();
    let selector = of.at("labelSelector");
    for name in names {
        let keys = of.at(name);
        if !keys.is_empty() && !selector.is_set() {
            errors.push(keys.forbidden("must not be specified when labelSelector is not set"));
        }
        errors.extend(keys.items().flat_map(|key| label::key(&key)));
    }
    if let [one, other] = names {
        let others: BTreeSet<&str> =
            of.value()[*other].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for key in of.at(one).items().filter(|key| others.contains(key.text())) {
            errors.push(key.invalid(format!("exists in both matchLabelKeys and {other}")));
        }
    }
    errors
}

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validates tolerations.
pub(in crate::kinds) fn tolerations(tolerations: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for toleration in tolerations.items() {
        let (key, operator, effect) = (toleration.at("key"), toleration.at("operator"), toleration.at("effect"));
        let value = toleration.at("value").text();
        errors.extend(key.may_obey(qualified_name));
        if key.is_empty() && operator.text() != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(operator.invalid_as(operator.text(), why));
        }
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            errors.push(effect.invalid_as(effect.text(), "effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        match operator.text() {
            "Equal" | "" => {
                let wrong = label_value(value);
                if !wrong.is_empty() {
                    errors.push(operator.invalid_as(value, wrong.join(";")));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => errors.push(operator.invalid_as(value, "value must be empty when `operator` is 'Exists'")),
            "Lt" | "Gt" => errors.push(operator.not_supported(&["Equal", "Exists", "Lt", "Gt"])),
            _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
        }
        if !effect.is_empty() {
            errors.extend(effect.must_be_in(EFFECTS));
        }
    }
    errors
}

/// Validates topology spread constraints.
pub(super) fn spread(constraints: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let pair = |value: &Value| (value["topologyKey"].to_string(), value["whenUnsatisfiable"].to_string());
    // Of duplicates, all but the last one are reported.
    let mut later: BTreeMap<(String, String), usize> = BTreeMap::new();
    constraints.list().iter().for_each(|constraint| *later.entry(pair(constraint)).or_default() += 1);
    for constraint in constraints.items() {
        errors.extend(constraint.at("maxSkew").positive());
        let key = constraint.at("topologyKey");
        if key.is_empty() {
            errors.push(key.required("can not be empty"));
        }
        let when = constraint.at("whenUnsatisfiable");
        errors.extend(when.must_be_in(&["DoNotSchedule", "ScheduleAnyway"]));
        let remaining = later.entry(pair(constraint.value())).or_default();
        *remaining = remaining.saturating_sub(1);
        if *remaining > 0 {
            let shown = constraint.at("{topologyKey, whenUnsatisfiable}");
            errors.push(shown.duplicate_of(format!("{{{}, {}}}", key.text(), when.text())));
        }
        let least = constraint.at("minDomains");
        if let Some(count) = least.int_if_set() {
            if count <= 0 {
                errors.push(least.invalid("must be greater than zero"));
            }
            if when.text() != "DoNotSchedule" {
                errors.push(least.invalid(format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    when.text()
                )));
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.extend(constraint.at(policy).may_be_one_of(&["Honor", "Ignore"]));
        }
        errors.extend(label_keys(&constraint, &["matchLabelKeys"]));
        errors.extend(label::selector(&constraint.at("labelSelector")));
    }
    errors
}

/// Returns a toleration without its duration.
pub(in crate::kinds) fn without_time(toleration: &Value) -> Value {
    let mut toleration = toleration.clone();
    if let Some(fields) = toleration.as_object_mut() {
        fields.remove("tolerationSeconds");
    }
    json!(toleration)
}
