//! What is unwise in the spec of a pod.

use super::super::field::Field;
use super::super::rules::{address, affinity, resource};
use serde_json::Value;

/// Warns of what is unwise in a spec of a pod, or of a template.
pub(crate) fn spec(spec: &Field<'_>, is_pod: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let selector = spec.at("nodeSelector");
    for (key, entry) in selector.entries() {
        warnings.extend(affinity::old_label(key).map(|why| format!("{}: {why}", entry.path())));
    }
    for constraint in spec.at("topologySpreadConstraints").items() {
        let key = constraint.at("topologyKey");
        warnings.extend(affinity::old_label(key.text()).map(|why| format!("{}: {} is {why}", key.path(), key.text())));
        if constraint.at("labelSelector").value().is_null() {
            warnings.push(format!(
                "{}: a null labelSelector results in matching no pod",
                constraint.at("labelSelector").path()
            ));
        }
    }
    let mut aliases: Vec<&str> = Vec::new();
    for alias in spec.at("hostAliases").items() {
        let ip = alias.value()["ip"].as_str().unwrap_or_default();
        if aliases.contains(&ip) {
            warnings.push(format!("{}: duplicate ip {ip:?}", alias.at("ip").path()));
        }
        warnings.extend(address::warn(&alias.at("ip")));
        aliases.push(ip);
    }
    let mut secrets: Vec<&str> = Vec::new();
    for secret in spec.at("imagePullSecrets").items() {
        let name = secret.value()["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            warnings.push(format!("{}: invalid empty name {name:?}", secret.at("name").path()));
        } else if secrets.contains(&name) {
            warnings.push(format!("{}: duplicate name {name:?}", secret.at("name").path()));
        }
        secrets.push(name);
    }
    for volume in spec.at("volumes").items() {
        warnings.extend(volume_warning(&volume));
    }
    for list in ["initContainers", "containers"] {
        for container in spec.at(list).items() {
            warnings.extend(container_warnings(&container));
        }
    }
    if spec.at("terminationGracePeriodSeconds").int() < 0 {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            spec.at("terminationGracePeriodSeconds").path()
        ));
    }
    let _ = is_pod;
    warnings.extend(affinity_warnings(&spec.at("affinity").at("nodeAffinity")));
    warnings
}

fn affinity_warnings(nodes: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let required = nodes.at("requiredDuringSchedulingIgnoredDuringExecution");
    warnings.extend(required.at("nodeSelectorTerms").items().flat_map(|term| affinity::warn_of_term(&term, false)));
    let preferred = nodes.at("preferredDuringSchedulingIgnoredDuringExecution");
    warnings.extend(preferred.items().flat_map(|term| affinity::warn_of_term(&term.at("preference"), true)));
    warnings
}

fn volume_warning(volume: &Field<'_>) -> Vec<String> {
    const OLD: &[(&str, &str)] = &[
        ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
        ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    let mut warnings: Vec<String> = OLD
        .iter()
        .filter(|(name, _)| volume.at(name).is_set())
        .map(|(name, why)| format!("{}: {why}", volume.at(name).path()))
        .collect();
    let limit = volume.at("emptyDir").at("sizeLimit").value().clone();
    if limit.is_string() {
        let empty = volume.at("emptyDir");
        warnings.extend(resource::warn_of_fraction(&empty.at("sizeLimit")));
    }
    warnings
}

fn container_warnings(container: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut names: Vec<(&str, &Value)> = Vec::new();
    for variable in container.at("env").items() {
        let name = variable.value()["name"].as_str().unwrap_or_default();
        let value = variable.value();
        if let Some((_, earlier)) = names.iter().find(|(known, _)| *known == name) {
            // What takes up the earlier value is meant so.
            let refers = value["value"].as_str().is_some_and(|text| text.contains(&format!("$({name})")));
            if !refers {
                let path = variable.path();
                warnings.push(
                    if value.get("value") == earlier.get("value") && value.get("valueFrom") == earlier.get("valueFrom")
                    {
                        format!("{path}: hides previous definition of {name:?}, which may be dropped when using apply")
                    } else {
                        format!("{path}: hides previous definition of {name:?}, which may be dropped when using apply")
                    },
                );
            }
        } else {
            names.push((name, value));
        }
    }
    for kind in ["limits", "requests"] {
        let resources = container.at("resources");
        for (name, amount) in resources.at(kind).entries() {
            if matches!(name, "memory" | "ephemeral-storage") {
                warnings.extend(resource::warn_of_fraction(&amount));
            }
        }
    }
    let mut ports: Vec<(i64, &str)> = Vec::new();
    for port in container.at("ports").items() {
        let key = (port.at("containerPort").int(), port.value()["protocol"].as_str().unwrap_or_default());
        if ports.contains(&key) {
            let first = ports.iter().position(|port| *port == key).unwrap_or_default();
            let list = container.at("ports");
            warnings.push(format!("{}: duplicate port definition with {}", port.path(), list.index(first).path()));
        }
        ports.push(key);
    }
    warnings
}
