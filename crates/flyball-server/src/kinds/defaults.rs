//! Defaults of the smaller kinds.

use super::fill::Fields;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::Object;
use serde_json::{Map, Value, json};

pub(super) fn secret(secret: &mut Object) {
    // What is given as text is kept with the rest, over it.
    if let Some(Value::Object(texts)) = secret.remove("stringData") {
        let data = secret.inner_or_new("data");
        for (key, text) in texts {
            data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
        }
    }
    secret.fill("type", "Opaque");
}

pub(super) fn volume(volume: &mut Object) {
    volume.inner_or_new("status").fill("phase", "Pending");
    let spec = volume.inner_or_new("spec");
    spec.fill("persistentVolumeReclaimPolicy", "Retain");
    spec.fill("volumeMode", "Filesystem");
    spec.inner("hostPath").into_iter().for_each(|path| path.fill("type", ""));
}

pub(super) fn claim(claim: &mut Object) {
    claim.inner_or_new("status").fill("phase", "Pending");
    let spec = claim.inner_or_new("spec");
    spec.fill("volumeMode", "Filesystem");
    data_source(spec);
}

/// Of a data source and a reference to one, the one that is missing follows the other.
///
/// A source that is neither a claim nor a snapshot counts for nothing: only references may be that.
fn data_source(spec: &mut Map<String, Value>) {
    let known = |source: &Value| {
        let text = |field: &str| source[field].as_str().unwrap_or_default();
        matches!(
            (text("apiGroup"), text("kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) if source.is_object() && !known(&source) => drop(spec.remove("dataSource")),
        (Some(source), None) if source.is_object() => spec.set("dataSourceRef", source),
        (None, Some(source)) if source.is_object() && source.get("namespace").is_none() => {
            spec.set("dataSource", source)
        }
        _ => {}
    }
}

pub(super) fn storage_class(class: &mut Object) {
    class.fill("reclaimPolicy", "Delete");
    class.fill("volumeBindingMode", "Immediate");
}

pub(super) fn csi_driver(driver: &mut Object) {
    let spec = driver.inner_or_new("spec");
    spec.fill("attachRequired", true);
    spec.fill("podInfoOnMount", false);
    spec.fill("storageCapacity", false);
    spec.fill("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.fill("volumeLifecycleModes", json!(["Persistent"]));
    spec.fill("requiresRepublish", false);
    spec.fill("seLinuxMount", false);
}

pub(super) fn node(node: &mut Object) {
    let status = node.inner_or_new("status");
    if let Some(capacity) = status.get("capacity").cloned() {
        status.fill("allocatable", capacity);
    }
    // Whoever sets one of them owns both.
    super::policy::unite_pod_cidrs(node);
}

pub(super) fn limit_range(range: &mut Object) {
    for limit in range.inner_or_new("spec").each("limits").filter(|limit| limit.text("type") == "Container") {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let amounts = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, amount) in amounts {
                limit.inner_or_new(to).entry(name).or_insert(amount);
            }
        }
    }
}

pub(super) fn endpoints(endpoints: &mut Object) {
    for subset in endpoints.each("subsets") {
        subset.each("ports").for_each(|port| port.fill("protocol", "TCP"));
    }
}

pub(super) fn endpoint_slice(slice: &mut Object) {
    for port in slice.each("ports") {
        port.fill("name", "");
        port.fill("protocol", "TCP");
    }
}

pub(super) fn network_policy(policy: &mut Object) {
    let spec = policy.inner_or_new("spec");
    if spec.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let outward = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
        spec.set("policyTypes", if outward { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
    for rules in ["ingress", "egress"] {
        spec.each(rules).for_each(|rule| rule.each("ports").for_each(|port| port.fill("protocol", "TCP")));
    }
}

pub(super) fn ingress_class(class: &mut Object) {
    if let Some(parameters) = class.inner_or_new("spec").inner("parameters") {
        parameters.fill("scope", "Cluster");
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn role_binding(binding: &mut Object) {
    if let Some(role) = binding.inner("roleRef")
        && role.text("apiGroup").is_empty()
    {
        role.set("apiGroup", RBAC);
    }
    for subject in binding.each("subjects") {
        if matches!(subject.text("kind"), "User" | "Group") && subject.text("apiGroup").is_empty() {
            subject.set("apiGroup", RBAC);
        }
    }
}

pub(super) fn priority_class(class: &mut Object) {
    class.fill("preemptionPolicy", "PreemptLowerPriority");
}

pub(super) fn mutating_webhooks(configuration: &mut Object) {
    validating_webhooks(configuration);
    configuration.each("webhooks").for_each(|hook| hook.fill("reinvocationPolicy", "Never"));
}

pub(super) fn validating_webhooks(configuration: &mut Object) {
    for hook in configuration.each("webhooks") {
        hook.fill("failurePolicy", "Fail");
        hook.fill("timeoutSeconds", 10);
        matching(hook);
        hook.each("rules").for_each(|rule| rule.fill("scope", "*"));
        if let Some(service) = hook.inner("clientConfig").and_then(|client| client.inner("service")) {
            service.fill("port", 443);
        }
    }
}

/// Fills in the default match: everything, in any of its versions.
fn matching(object: &mut Map<String, Value>) {
    object.fill("matchPolicy", "Equivalent");
    object.fill("namespaceSelector", json!({}));
    object.fill("objectSelector", json!({}));
    for rules in ["resourceRules", "excludeResourceRules"] {
        object.each(rules).for_each(|rule| rule.fill("scope", "*"));
    }
}

pub(super) fn admission_policy(policy: &mut Object) {
    let spec = policy.inner_or_new("spec");
    spec.fill("failurePolicy", "Fail");
    spec.inner("matchConstraints").into_iter().for_each(matching);
}

pub(super) fn policy_binding(binding: &mut Object) {
    binding.inner_or_new("spec").inner("matchResources").into_iter().for_each(matching);
}

pub(super) fn autoscaler(scaler: &mut Object) {
    let spec = scaler.inner_or_new("spec");
    spec.fill("minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        spec.set("metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
    if let Some(behavior) = spec.inner("behavior") {
        let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let up = behavior.inner_or_new("scaleUp");
        up.fill("stabilizationWindowSeconds", 0);
        up.fill("policies", json!([pods, percent]));
        let down = behavior.inner_or_new("scaleDown");
        down.fill("policies", json!([percent]));
        for direction in ["scaleUp", "scaleDown"] {
            behavior.inner_or_new(direction).fill("selectPolicy", "Max");
        }
    }
}
