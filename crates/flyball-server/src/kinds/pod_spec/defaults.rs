//! Defaults of the spec of pods.

use super::super::fill::Fields;
use serde_json::{Map, Value, json};

type JsonMap = Map<String, Value>;

/// Sets the defaults of a pod template.
pub(crate) fn template(template: &mut JsonMap) {
    spec(template.inner_or_new("spec"));
}

/// Sets the defaults of a pod spec.
pub(crate) fn spec(spec: &mut JsonMap) {
    // The deprecated field `serviceAccount` is kept in sync with `serviceAccountName`.
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

fn container(container: &mut JsonMap) {
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

fn get(probe: &mut JsonMap) {
    if let Some(get) = probe.inner("httpGet") {
        get.fill("path", "/");
        get.fill("scheme", "HTTP");
    }
}

/// Returns true if an image has no tag, or the tag `latest`.
fn is_latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        // A container without an image has no tag.
        None => !digest && !image.is_empty() && is_reference(name),
    }
}

/// Returns true if a string is a valid image name; repositories are lowercase.
fn is_reference(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => name,
    };
    path.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b))
}

fn volume(volume: &mut JsonMap) {
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

fn downward(file: &mut JsonMap) {
    file.inner("fieldRef").into_iter().for_each(|field| field.fill("apiVersion", "v1"));
    file.inner("resourceFieldRef").into_iter().for_each(|field| field.fill("divisor", "0"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_tag_are_latest() {
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
}
