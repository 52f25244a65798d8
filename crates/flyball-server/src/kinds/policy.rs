//! Rules of the smaller kinds: budgets, leases, priorities, nodes.

use super::Part;
use super::field::Field;
use super::rules::{address, label, number, resource};
use super::shown::internal;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_label, label_value, qualified_name};
use flyball_core::{Clock, Object};
use serde_json::{Value, json};
use std::collections::BTreeSet;

type Errors = Vec<FieldError>;

pub(super) fn disruption_budget(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        let status = root.at("status");
        return number::counts(&status, &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]);
    }
    let spec = root.at("spec");
    let mut errors = Errors::new();
    let bounds = ["minAvailable", "maxUnavailable"].map(|bound| spec.at(bound));
    if bounds.iter().all(Field::is_set) {
        errors.push(spec.invalid_as(
            internal("PodDisruptionBudgetSpec", spec.value()),
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for bound in bounds.iter().filter(|bound| bound.is_set()) {
        errors.extend(number::count_or_percent(bound));
        errors.extend(number::at_most_all(bound));
    }
    errors.extend(label::selector(&spec.at("selector")));
    errors.extend(spec.at("unhealthyPodEvictionPolicy").may_be_one_of(&["AlwaysAllow", "IfHealthyBudget"]));
    errors
}

pub(super) fn lease(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = Errors::new();
    let seconds = spec.at("leaseDurationSeconds");
    if seconds.given_int().is_some_and(|seconds| seconds <= 0) {
        errors.push(seconds.invalid("must be greater than 0"));
    }
    errors.extend(spec.at("leaseTransitions").not_negative());
    errors
}

/// Drops the choice of holders, which leases cannot set yet.
pub(super) fn prepare_lease(lease: &mut Object, _: Option<&Object>, _: Part, _: &Clock) {
    if let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

pub(super) fn runtime_class(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let handler = root.at("handler");
    match old {
        Some(old) => {
            let before = Field::root(old);
            handler.unchanged_from(&before.at("handler")).into_iter().collect()
        }
        None => {
            let mut errors = handler.must_obey(dns_label);
            let amounts = root.at("overhead.podFixed");
            let overhead = root.at("overhead");
            let shown = overhead.at_as("podFixed", "limits");
            for (name, amount) in amounts.value().as_object().into_iter().flatten() {
                let at = shown.key(name);
                errors.extend(resource::amount_for(&Field::new(*at.path(), amount), name));
            }
            let scheduling = root.at("scheduling");
            errors.extend(label::labels(&scheduling.at("nodeSelector")));
            errors.extend(super::pod::tolerations(&scheduling.at("tolerations")));
            errors
        }
    }
}

/// Finalizers of a namespace's own are Kubernetes' or have a domain.
pub(super) fn namespace(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let mut errors = security_levels(object, old);
    if old.is_some() && part != Part::Finalize {
        return errors;
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let list = spec.at("finalizers");
    for item in list.items() {
        let at = if old.is_some() { item } else { Field::new(*list.path(), item.value()) };
        errors.extend(at.obeys(qualified_name));
        if !item.text().contains('/') && !matches!(item.text(), "kubernetes" | "orphan" | "foregroundDeletion") {
            errors.push(at.invalid("name is neither a standard finalizer name nor is it fully qualified"));
        }
    }
    errors
}

/// The labels that say how secure pods must be name levels that there are.
fn security_levels(object: &Object, old: Option<&Object>) -> Errors {
    const PREFIX: &str = "pod-security.kubernetes.io/";
    let root = Field::root(object);
    let labels = root.at("metadata.labels");
    let metadata = root.at("metadata");
    let labels_at = metadata.at("labels");
    let mut errors = Errors::new();
    for mode in ["enforce", "audit", "warn"] {
        for versioned in [false, true] {
            let key = format!("{PREFIX}{mode}{}", if versioned { "-version" } else { "" });
            let Some(given) = labels.value().get(&key).and_then(Value::as_str) else { continue };
            if old.is_some_and(|old| old.label(&key) == Some(given)) {
                continue;
            }
            let minor = given.strip_prefix("v1.").is_some_and(|minor| minor.parse::<u32>().is_ok());
            let (good, why) = if versioned {
                (given == "latest" || minor, "must be \"latest\" or \"v1.x\"")
            } else {
                let known = matches!(given, "privileged" | "baseline" | "restricted");
                (known, "must be one of privileged, baseline, restricted")
            };
            if !good {
                errors.push(labels_at.key(&key).invalid(why));
            }
        }
    }
    errors
}

/// The greatest priority that is not the system's own.
const HIGHEST: i64 = 1_000_000_000;

/// The generation is there, but does not count.
pub(super) fn prepare_priority_class(class: &mut Object, old: Option<&Object>, _: Part, _: &Clock) {
    if old.is_none() {
        class.metadata_mut().insert("generation".into(), 1.into());
    }
}

pub(super) fn priority_class(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let (value, policy) = (root.at("value"), root.at("preemptionPolicy"));
    let mut errors = Errors::new();
    if let Some(old) = old {
        let before = Field::root(old);
        if value.int() != before.at("value").int() {
            errors.push(value.forbidden("may not be changed in an update."));
        }
        errors.extend(policy.unchanged_from(&before.at("preemptionPolicy")));
        return errors;
    }
    if object.name().starts_with("system-") {
        let why = match (object.name(), value.int()) {
            ("system-node-critical", 2_000_001_000) | ("system-cluster-critical", 2_000_000_000) => None,
            ("system-node-critical", _) => {
                Some("value of system-node-critical PriorityClass must be 2000001000".to_owned())
            }
            ("system-cluster-critical", _) => {
                Some("value of system-cluster-critical PriorityClass must be 2000000000".to_owned())
            }
            (name, _) => Some(format!("{name} is not a known system priority class")),
        };
        if let Some(why) = why {
            let text =
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            errors.push(FieldError::forbidden("metadata.name", text));
        }
    } else if value.int() > HIGHEST {
        errors.push(value.forbidden(format!("maximum allowed value of a user defined priority is {HIGHEST}")));
    }
    errors.extend(policy.may_be_one_of(&["PreemptLowerPriority", "Never"]));
    errors
}

/// A change of a node is checked as something new, and then as a change.
pub(super) fn node(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let mut errors = if part == Part::Status { Errors::new() } else { node_as(object, None, part) };
    if old.is_some() {
        errors.extend(node_as(object, old, part));
    }
    errors
}

fn node_as(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    let (spec, status) = (root.at("spec"), root.at("status"));
    let mut errors = Errors::new();
    let blocks = spec.at("podCIDRs");
    if old.is_none() {
        errors.extend(taints(&spec));
    }
    for amounts in ["capacity", "allocatable"] {
        let amounts = status.at(amounts);
        for (name, amount) in amounts.value().as_object().into_iter().flatten() {
            let path = amounts.path().field(name);
            errors.extend(resource::amount_for(&Field::new(path, amount), name));
        }
    }
    let Some(old) = old else {
        errors.extend(blocks.items().flat_map(|block| address::check_block(&block)));
        let sixth = blocks.texts().filter(|block| block.contains(':')).count();
        if blocks.len() > 2 || blocks.len() == 2 && sixth != 1 {
            errors.push(blocks.invalid("may specify no more than one CIDR for each IP family"));
        }
        return errors;
    };
    let addresses = status.at("addresses");
    for (_, item) in addresses.items().enumerate().filter(|(i, item)| addresses.list()[..*i].contains(item.value())) {
        errors.push(item.duplicate_of(internal("NodeAddress", item.value())));
    }
    let before = Field::root(old);
    let earlier = before.at("spec.podCIDRs");
    if part == Part::Whole && !earlier.is_empty() {
        const FIXED: &str = "node updates may not change podCIDR except from \"\" to valid";
        if earlier.len() != blocks.len() {
            errors.push(blocks.forbidden(FIXED));
        } else {
            let changed = earlier.list().iter().zip(blocks.list()).filter(|(old, new)| old != new);
            errors.extend(changed.map(|_| blocks.forbidden(FIXED)));
        }
    }
    let provider = spec.at("providerID");
    if !before.at("spec.providerID").is_empty() && provider.value() != before.at("spec.providerID").value() {
        errors.push(provider.forbidden("node updates may not change providerID except from \"\" to valid"));
    }
    errors.extend(taints(&spec));
    errors
}

/// Taints of a node; errors tell of them as of metadata.
fn taints(spec: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let list = spec.at("taints");
    let metadata = flyball_core::field::Path::new("metadata");
    let path = metadata.field("taints");
    let taints = Field::new(path, list.value());
    let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
    for taint in taints.items() {
        let (value, effect) = (taint.at("value"), taint.at("effect"));
        errors.extend(label::key(&taint.at("key")));
        let wrong = label_value(value.text());
        if !wrong.is_empty() {
            errors.push(value.invalid_as(value.text(), wrong.join(";")));
        }
        errors.extend(effect.must_be_one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]));
        let key = (taint.at("key").text().to_owned(), effect.text().to_owned());
        if seen.contains(&key) {
            let error = taint.duplicate_of(internal("Taint", taint.value()));
            errors.push(FieldError { detail: "taints must be unique by key and effect pair".into(), ..error });
        }
        seen.insert(key);
    }
    errors
}

/// Brings `podCIDR`, the older field, and `podCIDRs` in line: both are one field of the internal object.
pub(super) fn unite_pod_cidrs(node: &mut Object) {
    let all = node.at(&["spec", "podCIDRs"]).and_then(Value::as_array).cloned().unwrap_or_default();
    let single = node.at(&["spec", "podCIDR"]).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) else { return };
    // The older field wins.
    if single.is_empty() {
        if let Some(first) = all.first() {
            spec.insert("podCIDR".into(), first.clone());
        }
    } else if all.first().is_none_or(|first| *first != single.as_str()) {
        spec.insert("podCIDRs".into(), json!([single]));
    }
}
