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
    for (name, amount) in with_overhead(pod, "requests") {
        if is_standard(&name) {
            used.insert(name.clone(), amount);
        }
        used.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in with_overhead(pod, "limits").into_iter().filter(|(name, _)| is_standard(name)) {
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

/// Returns the requests of a pod with the overhead of its runtime class.
pub(crate) fn requests(pod: &Object) -> Amounts {
    with_overhead(pod, "requests")
}

/// Returns the requests or limits of a pod with the overhead of its runtime class. Resources without a limit have none
/// with it.
fn with_overhead(pod: &Object, field: &str) -> Amounts {
    let mut all = requirements(pod, field);
    for (name, amount) in pod.at(&["spec", "overhead"]).map(amounts).unwrap_or_default() {
        match all.get_mut(&name) {
            Some(sum) => *sum = sum.plus(&amount),
            None if field == "requests" => drop(all.insert(name, amount)),
            None => {}
        }
    }
    all
}

/// Returns true if a resource may be set for a whole pod.
fn is_of_whole_pod(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
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
    let raise_to = |sums: &mut Amounts, other: &Amounts| {
        for (name, amount) in other {
            let sum = sums.entry(name.clone()).or_insert(*amount);
            if *amount > *sum {
                *sum = *amount;
            }
        }
    };
    for container in list("initContainers") {
        let own = amounts(&container["resources"][field]);
        let mut concurrent = sidecars.clone();
        add(&mut concurrent, &own);
        if container["restartPolicy"] == "Always" {
            add(&mut all, &own);
            sidecars.clone_from(&concurrent);
        }
        raise_to(&mut first, &concurrent);
    }
    raise_to(&mut all, &first);
    let own = pod.at(&["spec", "resources", field]).map(amounts).unwrap_or_default();
    all.extend(own.into_iter().filter(|(name, _)| is_of_whole_pod(name)));
    all
}

/// Returns the containers of a pod that lack requests or limits which a quota counts, with the names of these. A pod
/// with resources of its own needs none in its containers.
pub(crate) fn missing_requirements<'q>(
    pod: &Object,
    hard: impl Iterator<Item = &'q String>,
) -> Vec<(String, Vec<String>)> {
    let own = |field: &str| pod.at(&["spec", "resources", field]).and_then(Value::as_object).into_iter().flatten();
    if own("requests").chain(own("limits")).any(|(name, _)| is_of_whole_pod(name)) {
        return Vec::new();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    /// Returns the usage of a pod with this spec, without zeros.
    fn check(spec: Value, expected: &[(&str, &str)]) {
        let pod = Object::try_from(json!({"spec": spec})).unwrap();
        let used = usage(&pod, Timestamp::UNIX_EPOCH).unwrap();
        let found: Vec<(String, String)> = used.into_iter().map(|(name, amount)| (name, amount.to_string())).collect();
        let expected: Vec<(String, String)> = expected.iter().map(|(n, a)| ((*n).into(), (*a).into())).collect();
        assert_eq!(found, expected, "{spec}");
    }

    fn container(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn overhead_is_added_to_requests_and_to_limits_that_are_set() {
        let limited = json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}});
        check(
            json!({"containers": [limited], "overhead": {"cpu": "250m", "memory": "1Gi"}}),
            &[
                ("cpu", "1250m"),
                ("limits.cpu", "2250m"),
                ("memory", "1Gi"),
                ("requests.cpu", "1250m"),
                ("requests.memory", "1Gi"),
            ],
        );
    }

    #[test]
    fn init_containers_count_with_the_sidecars_before_them() {
        let mut sidecar = container("2");
        sidecar["restartPolicy"] = "Always".into();
        let used = |amount: &'static str| [("cpu", amount), ("requests.cpu", amount)];
        check(json!({"containers": [container("1")], "initContainers": [container("3")]}), &used("3"));
        check(json!({"containers": [container("1")], "initContainers": [sidecar, container("3")]}), &used("5"));
        check(json!({"containers": [container("4")], "initContainers": [container("3"), sidecar]}), &used("6"));
    }

    #[test]
    fn resources_of_a_pod_replace_those_of_its_containers() {
        let requests = json!({"cpu": "8", "hugepages-2Mi": "4Mi", "example.com/gpu": "1"});
        let spec = json!({"containers": [container("1")], "resources": {"requests": requests},
            "overhead": {"cpu": "1"}});
        check(
            spec.clone(),
            &[("cpu", "9"), ("hugepages-2Mi", "4Mi"), ("requests.cpu", "9"), ("requests.hugepages-2Mi", "4Mi")],
        );
        let pod = Object::try_from(json!({"spec": spec})).unwrap();
        let hard = ["limits.memory".to_owned()];
        assert!(missing_requirements(&pod, hard.iter()).is_empty());
        let pod = Object::try_from(json!({"spec": {"containers": [container("1")]}})).unwrap();
        assert_eq!(missing_requirements(&pod, hard.iter()), [(String::new(), vec!["limits.memory".to_owned()])]);
    }
}
