//! Defaults of pods and of their templates.

use super::super::fill::Fields;
use flyball_core::{Object, Quantity};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

type Inner = Map<String, Value>;

/// Fills in a pod.
pub(crate) fn pod(pod: &mut Object) {
    spec(pod.inner_or_new("spec"));
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

/// Of `podIP` and `podIPs`, the one that is missing follows the other.
fn addresses(status: &mut Inner) {
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

fn host_port(port: &mut Inner) {
    if let Some(number) = port.get("containerPort").cloned() {
        port.fill("hostPort", number);
    }
}

/// Asks for as much as is allowed, where nothing is asked for.
fn requests_from_limits(container: &mut Inner) {
    let Some(resources) = container.inner("resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = resources.inner_or_new("requests");
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// Works out what the pod as a whole asks for, if it says something of the whole.
fn pod_requests(spec: &mut Inner) {
    let sums = |field: &str, spec: &Inner| {
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
    let asked = resources.get("requests").cloned().unwrap_or_default();
    let huge = |name: &str| name.starts_with("hugepages-");
    let known = |name: &str| matches!(name, "cpu" | "memory") || huge(name);
    if resources.has("limits") || resources.has("requests") {
        for (name, sum) in limits.iter().filter(|(name, _)| huge(name) && asked.get(name.as_str()).is_none()) {
            resources.inner_or_new("limits").entry(name.as_str()).or_insert_with(|| sum.to_string().into());
        }
    }
    let Some(limits) = resources.get("limits").and_then(Value::as_object).filter(|limits| !limits.is_empty()).cloned()
    else {
        return;
    };
    let asked = resources.inner_or_new("requests");
    for (name, sum) in requests.iter().filter(|(name, _)| known(name) && !huge(name)) {
        asked.entry(name.as_str()).or_insert_with(|| sum.to_string().into());
    }
    for (name, limit) in limits.into_iter().filter(|(name, _)| known(name)) {
        asked.entry(name).or_insert(limit);
    }
    if asked.is_empty() {
        resources.remove("requests");
    }
}

/// Fills in a template of pods.
pub(crate) fn template(template: &mut Inner) {
    spec(template.inner_or_new("spec"));
}

fn spec(spec: &mut Inner) {
    // The old name of the account is kept in step with the new one.
    if spec.text("serviceAccountName").is_empty() && !spec.text("serviceAccount").is_empty() {
        let name = spec.text("serviceAccount").to_owned();
        spec.set("serviceAccountName", name);
    }
    if !spec.text("serviceAccountName").is_empty() {
        let name = spec.text("serviceAccountName").to_owned();
        spec.set("serviceAccount", name);
    }
    spec.fill("dnsPolicy", "ClusterFirst");
    spec.fill("restartPolicy", "Always");
    spec.fill("securityContext", json!({}));
    spec.fill("terminationGracePeriodSeconds", 30);
    spec.fill("schedulerName", "default-scheduler");
    spec.each("volumes").for_each(volume);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        spec.each(list).for_each(container);
    }
}

fn container(container: &mut Inner) {
    let policy = if is_latest(container.text("image")) { "Always" } else { "IfNotPresent" };
    container.fill("imagePullPolicy", policy);
    container.fill("terminationMessagePath", "/dev/termination-log");
    container.fill("terminationMessagePolicy", "File");
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.inner(probe) {
            for (field, seconds) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                probe.fill(field, seconds);
            }
            get(probe);
        }
    }
    if let Some(lifecycle) = container.inner("lifecycle") {
        for handler in ["postStart", "preStop"] {
            lifecycle.inner(handler).into_iter().for_each(get);
        }
    }
    for variable in container.each("env") {
        if let Some(from) = variable.inner("valueFrom") {
            from.inner("fieldRef").into_iter().for_each(|field| field.fill("apiVersion", "v1"));
            from.inner("resourceFieldRef").into_iter().for_each(|field| field.fill("divisor", "0"));
        }
    }
}

fn get(probe: &mut Inner) {
    if let Some(get) = probe.inner("httpGet") {
        get.fill("path", "/");
        get.fill("scheme", "HTTP");
    }
}

/// Returns whether an image is named without a version, or by `latest`.
fn is_latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        // What names no image names no version either.
        None => !digest && !image.is_empty() && is_reference(name),
    }
}

/// Returns whether a text can name an image: repositories are written small.
fn is_reference(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => name,
    };
    path.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b))
}

fn volume(volume: &mut Inner) {
    if volume.len() <= 1 && !volume.keys().any(|field| field != "name") {
        volume.set("emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.inner(source) {
            source.fill("defaultMode", 0o644);
            source.each("items").for_each(downward);
        }
    }
    if let Some(path) = volume.inner("hostPath") {
        path.fill("type", "");
    }
    if let Some(projected) = volume.inner("projected") {
        for source in projected.each("sources") {
            source.inner("serviceAccountToken").into_iter().for_each(|token| token.fill("expirationSeconds", 3600));
            source.inner("downwardAPI").into_iter().for_each(|files| files.each("items").for_each(downward));
        }
    }
    if let Some(image) = volume.inner("image") {
        let policy = if is_latest(image.text("reference")) { "Always" } else { "IfNotPresent" };
        image.fill("pullPolicy", policy);
    }
    if let Some(ephemeral) = volume.inner("ephemeral").and_then(|ephemeral| ephemeral.inner("volumeClaimTemplate")) {
        ephemeral.inner_or_new("spec").fill("volumeMode", "Filesystem");
    }
}

fn downward(file: &mut Inner) {
    file.inner("fieldRef").into_iter().for_each(|field| field.fill("apiVersion", "v1"));
    file.inner("resourceFieldRef").into_iter().for_each(|field| field.fill("divisor", "0"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_a_version_are_always_pulled() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1", false),
            ("localhost:5000/a/nginx", true),
            ("nginx@sha256:abc", false),
            ("", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn limits_are_asked_for() {
        let mut object = Object::try_from(json!({"spec": {"containers": [
            {"name": "a", "image": "b:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}}}
        ]}})).unwrap();
        pod(&mut object);
        assert_eq!(
            object.as_value().pointer("/spec/containers/0/resources/requests"),
            Some(&json!({"cpu": "100m", "memory": "1Gi"}))
        );
    }
}
