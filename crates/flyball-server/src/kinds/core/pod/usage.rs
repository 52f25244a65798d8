//! Quota usage of pods, and the scopes that select them.

use crate::kinds::usage::{Amounts, amounts};
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339};
use flyball_core::{Object, Quantity};
use serde_json::Value;

/// Returns the requests and limits of a pod; none if the pod has terminated.
pub(super) fn usage(pod: &Object, now: Timestamp) -> Option<Amounts> {
    if !is_counted(pod, now) {
        return None;
    }
    let mut used = Amounts::new();
    let is_standard =
        |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    for (name, amount) in requirements(pod, "requests") {
        if is_standard(&name) {
            used.insert(name.clone(), amount);
        }
        used.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in requirements(pod, "limits").into_iter().filter(|(name, _)| is_standard(name)) {
        used.insert(format!("limits.{name}"), amount);
    }
    Some(used)
}

/// Returns true if a pod runs or may run, including some time after its deletion.
fn is_counted(pod: &Object, now: Timestamp) -> bool {
    let phase = pod.at(&["status", "phase"]).and_then(Value::as_str);
    let grace = pod.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
    let until = pod.deletion_timestamp().and_then(parse_rfc3339);
    let is_past = until.is_some_and(|until| now.duration_since(until) > SignedDuration::from_secs(grace));
    !matches!(phase, Some("Succeeded" | "Failed")) && !is_past
}

/// Sums up the `requests` or `limits` of the containers that run concurrently.
pub(crate) fn requirements(pod: &Object, field: &str) -> Amounts {
    let list = |list: &str| pod.at(&["spec", list]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let add = |sums: &mut Amounts, more: &Amounts| {
        for (name, amount) in more {
            let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
            *sum = sum.plus(amount);
        }
    };
    let (mut all, mut sidecars, mut first) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in list("containers") {
        add(&mut all, &amounts(&container["resources"][field]));
    }
    let most = |sums: &mut Amounts, other: &Amounts| {
        for (name, amount) in other {
            let sum = sums.entry(name.clone()).or_insert(*amount);
            if *amount > *sum {
                *sum = *amount;
            }
        }
    };
    for container in list("initContainers") {
        let own = amounts(&container["resources"][field]);
        let mut now = sidecars.clone();
        add(&mut now, &own);
        if container["restartPolicy"] == "Always" {
            add(&mut all, &own);
            sidecars.clone_from(&now);
        }
        most(&mut first, &now);
    }
    most(&mut all, &first);
    let own = pod.at(&["spec", "resources", field]).map(amounts).unwrap_or_default();
    all.extend(own.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")));
    all
}

/// Returns the containers of a pod without requests or limits that a quota counts, with the missing names.
pub(crate) fn missing_requirements<'q>(
    pod: &Object,
    hard: impl Iterator<Item = &'q String>,
) -> Vec<(String, Vec<String>)> {
    let needed: Vec<&String> = hard.filter(|name| field_of(name).is_some()).collect();
    let mut all = Vec::new();
    for list in ["containers", "initContainers"] {
        for container in pod.at(&["spec", list]).and_then(Value::as_array).into_iter().flatten() {
            let is_set =
                |name: &str| field_of(name).is_none_or(|(field, name)| !container["resources"][field][name].is_null());
            let missing: Vec<String> = needed.iter().filter(|name| !is_set(name)).map(|name| (*name).clone()).collect();
            if !missing.is_empty() {
                all.push((container["name"].as_str().unwrap_or_default().to_owned(), missing));
            }
        }
    }
    all
}

/// Returns the field of a container's resources for a quota name, if all containers must set it.
fn field_of(name: &str) -> Option<(&'static str, &str)> {
    let (field, name) = match name.split_once('.') {
        Some(("requests", name)) => ("requests", name),
        Some(("limits", name)) => ("limits", name),
        _ => ("requests", name),
    };
    matches!(name, "cpu" | "memory").then_some((field, name))
}

/// Returns true if a pod is in the scope of a quota.
pub(crate) fn in_scope(pod: &Object, scope: &str, operator: &str, values: &Value) -> bool {
    let has_deadline =
        pod.at(&["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|limit| limit >= 0);
    let is_best_effort = || requirements(pod, "requests").is_empty() && requirements(pod, "limits").is_empty();
    match scope {
        "Terminating" => has_deadline,
        "NotTerminating" => !has_deadline,
        "BestEffort" => is_best_effort(),
        "NotBestEffort" => !is_best_effort(),
        "PriorityClass" => {
            let class = pod.at(&["spec", "priorityClassName"]).and_then(Value::as_str).unwrap_or_default();
            let is_listed = values.as_array().into_iter().flatten().any(|value| value == class);
            match operator {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        "CrossNamespacePodAffinity" => ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
            let affinity = pod.at(&["spec", "affinity", affinity]).cloned().unwrap_or_default();
            let list = |field: &str| affinity[field].as_array().cloned().unwrap_or_default();
            let preferred = list("preferredDuringSchedulingIgnoredDuringExecution").into_iter();
            let terms = preferred.map(|term| term["podAffinityTerm"].clone());
            let terms = terms.chain(list("requiredDuringSchedulingIgnoredDuringExecution"));
            let crosses = |term: Value| {
                !term["namespaceSelector"].is_null()
                    || term["namespaces"].as_array().is_some_and(|names| !names.is_empty())
            };
            terms.into_iter().any(crosses)
        }),
        _ => false,
    }
}
