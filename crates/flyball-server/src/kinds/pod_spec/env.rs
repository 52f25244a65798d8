//! Environment variables of containers, and their sources in fields of the pod.

use super::super::field::Field;
use super::super::rules::{path, text};
use flyball_core::field::FieldError;
use flyball_core::names::{self, dns_label, dns_subdomain};

type Errors = Vec<FieldError>;

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn env(variable: &Field<'_>) -> Errors {
    let mut errors = variable
        .at("name")
        .must_be_set()
        .map_or_else(|| variable.at("name").obeys(text::env_name), |error| vec![error]);
    let from = variable.at("valueFrom");
    if !from.is_set() {
        return errors;
    }
    let mut count = 0;
    for source in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let field = from.at(source);
        if !field.is_set() {
            continue;
        }
        count += 1;
        match source {
            "fieldRef" => errors.extend(object_field(&field, ENV_FIELDS)),
            "resourceFieldRef" => errors.extend(resource_field(&field, false)),
            "fileKeyRef" => {
                errors.extend(field.at("key").must_obey(text::env_name));
                errors.extend(field.at("volumeName").must_obey(dns_label));
                errors.extend(field.at("path").must_be_set());
                errors.extend(path::unreserved(&field.at("path")));
            }
            _ => errors.extend(key_of(&field)),
        }
    }
    if count == 0 {
        let why =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(from.invalid_as("", why));
    } else if !variable.at("value").is_empty() {
        errors.push(from.invalid_as("", "may not be specified when `value` is not empty"));
    } else if count > 1 {
        errors.push(from.invalid_as("", "may not have more than one field specified at a time"));
    }
    errors
}

/// Validates a reference to a key of a config map or secret.
fn key_of(selector: &Field<'_>) -> Errors {
    let mut errors = selector.at("name").obeys(dns_subdomain);
    errors.extend(selector.at("key").must_obey(names::config_key));
    errors
}

pub(super) fn env_from(sources: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for source in sources.items() {
        errors.extend(source.at("prefix").may_obey(text::env_name));
        let given = ["configMapRef", "secretRef"]
            .map(|name| source.at(name))
            .into_iter()
            .filter(Field::is_set)
            .collect::<Vec<_>>();
        for reference in &given {
            errors.extend(reference.at("name").must_obey(dns_subdomain));
        }
        match given.len() {
            0 => errors.push(sources.invalid_as("", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(sources.invalid_as("", "may not have more than one field specified at a time")),
        }
    }
    errors
}

/// Fields of pods that `fieldPath` may refer to.
const FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];

/// Validates a reference to a field of the pod; `allowed` depends on the destination of the value.
pub(super) fn object_field(selector: &Field<'_>, allowed: &[&str]) -> Errors {
    let (version, at) = (selector.at("apiVersion"), selector.at("fieldPath"));
    if let Some(missing) = version.must_be_set().or_else(|| at.must_be_set()) {
        return vec![missing];
    }
    let text = at.text();
    let subscript = text.strip_suffix("']").and_then(|text| text.split_once("['"));
    let base = subscript.map_or(text, |(base, _)| base);
    if version.text() != "v1" {
        return vec![at.invalid(format!("error converting fieldPath: unsupported pod version: {}", version.text()))];
    }
    let unsupported = if !FIELDS.contains(&base) {
        Some(format!("field label not supported: {base}"))
    } else if subscript.is_some() && !matches!(base, "metadata.annotations" | "metadata.labels") {
        Some(format!("field label does not support subscript: {text}"))
    } else {
        None
    };
    if let Some(why) = unsupported {
        return vec![at.invalid(format!("error converting fieldPath: {why}"))];
    }
    match subscript {
        Some((_, key)) => {
            let key = if base == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
            names::qualified_name(&key).into_iter().map(|wrong| selector.invalid_as(key.as_str(), wrong)).collect()
        }
        None if allowed.contains(&base) => Errors::new(),
        None => {
            let mut allowed = allowed.to_vec();
            allowed.sort_unstable();
            vec![FieldError::not_supported(at.path(), base, allowed)]
        }
    }
}

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Validates a selector of the resources of a container.
pub(super) fn resource_field(selector: &Field<'_>, of_volume: bool) -> Errors {
    let (container, name) = (selector.at("containerName"), selector.at("resource"));
    let mut errors = Errors::new();
    if of_volume && container.is_empty() {
        errors.push(container.required(""));
    } else if name.is_empty() {
        errors.push(name.required(""));
    } else if !RESOURCES.contains(&name.text())
        && !["limits.hugepages-", "requests.hugepages-"].iter().any(|prefix| name.text().starts_with(prefix))
    {
        errors.push(name.not_supported(RESOURCES));
    }
    let divisor = selector.at("divisor");
    let allowed: &[&str] = match name.text() {
        "limits.cpu" | "requests.cpu" => &["1", "1m"],
        "" => &[],
        _ => &["1", "1E", "1Ei", "1G", "1Gi", "1Ki", "1M", "1Mi", "1P", "1Pi", "1T", "1Ti", "1k"],
    };
    let unset = matches!(divisor.text(), "" | "0");
    if !unset && !allowed.is_empty() && !allowed.contains(&divisor.text()) {
        let kind = match name.text() {
            "limits.cpu" | "requests.cpu" => "only divisor's values 1m and 1 are supported with the cpu resource",
            "limits.memory" | "requests.memory" => {
                "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource"
            }
            _ => {
                "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource"
            }
        };
        errors.push(divisor.invalid_as(name.text(), kind));
    }
    errors
}
