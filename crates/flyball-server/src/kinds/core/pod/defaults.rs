//! Defaults of pods, in addition to those of templates.

use crate::kinds::fill::Fields;
use crate::kinds::pod_spec;
use flyball_core::{Object, Quantity};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

type JsonMap = Map<String, Value>;

/// Sets the defaults of a pod.
pub(super) fn default(pod: &mut Object) {
    pod_spec::default_spec(pod.inner_or_new("spec"));
    if let Some(spec) = pod.inner("spec") {
        for list in ["containers", "initContainers"] {
            spec.each(list).for_each(requests_from_limits);
        }
        pod_requests(spec);
        spec.fill("enableServiceLinks", true);
        if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
            for list in ["containers", "initContainers"] {
                spec.each(list).for_each(|container| container.each("ports").for_each(host_port));
            }
        }
    }
    if let Some(status) = pod.inner("status") {
        addresses(status);
    }
}

/// Copies `podIP` to `podIPs`, or the reverse, if one is absent.
pub(super) fn addresses(status: &mut JsonMap) {
    for (one, all) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        let single = status.text(one).to_owned();
        let first =
            status.get(all).and_then(|all| all.pointer("/0/ip")).and_then(Value::as_str).unwrap_or_default().to_owned();
        if !single.is_empty() && single != first && one == "podIP" {
            status.set(all, json!([{"ip": single}]));
        } else if single.is_empty() && !first.is_empty() && one == "podIP" {
            status.set(one, first);
        }
    }
}

pub(super) fn host_port(port: &mut JsonMap) {
    if let Some(number) = port.get("containerPort").cloned() {
        port.fill("hostPort", number);
    }
}

/// Sets missing requests to the limits.
pub(super) fn requests_from_limits(container: &mut JsonMap) {
    let Some(resources) = container.inner("resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = resources.inner_or_new("requests");
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// Computes the pod-level requests, if the pod sets pod-level resources.
pub(super) fn pod_requests(spec: &mut JsonMap) {
    let sums = |field: &str, spec: &JsonMap| {
        let mut sums: BTreeMap<String, Quantity> = BTreeMap::new();
        let containers = spec.get("containers").and_then(Value::as_array).into_iter().flatten();
        for container in containers {
            for (name, amount) in
                container.pointer(&format!("/resources/{field}")).and_then(Value::as_object).into_iter().flatten()
            {
                if let Some(amount) = amount.as_str().and_then(|text| text.parse::<Quantity>().ok()) {
                    let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
                    *sum = sum.plus(&amount);
                }
            }
        }
        sums
    };
    let (limits, requests) = (sums("limits", spec), sums("requests", spec));
    let Some(resources) = spec.inner("resources") else { return };
    let own_requests = resources.get("requests").cloned().unwrap_or_default();
    let huge = |name: &str| name.starts_with("hugepages-");
    let known = |name: &str| matches!(name, "cpu" | "memory") || huge(name);
    if resources.has("limits") || resources.has("requests") {
        for (name, sum) in limits.iter().filter(|(name, _)| huge(name) && own_requests.get(name.as_str()).is_none()) {
            resources.inner_or_new("limits").entry(name.as_str()).or_insert_with(|| sum.to_string().into());
        }
    }
    let Some(limits) = resources.get("limits").and_then(Value::as_object).filter(|limits| !limits.is_empty()).cloned()
    else {
        return;
    };
    let own_requests = resources.inner_or_new("requests");
    for (name, sum) in requests.iter().filter(|(name, _)| known(name) && !huge(name)) {
        own_requests.entry(name.as_str()).or_insert_with(|| sum.to_string().into());
    }
    for (name, limit) in limits.into_iter().filter(|(name, _)| known(name)) {
        own_requests.entry(name).or_insert(limit);
    }
    if own_requests.is_empty() {
        resources.remove("requests");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_default_to_limits() {
        let mut object = Object::try_from(json!({"spec": {"containers": [
            {"name": "a", "image": "b:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}}}
        ]}})).unwrap();
        default(&mut object);
        assert_eq!(
            object.as_value().pointer("/spec/containers/0/resources/requests"),
            Some(&json!({"cpu": "100m", "memory": "1Gi"}))
        );
    }
}
