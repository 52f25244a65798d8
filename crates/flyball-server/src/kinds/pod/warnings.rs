//! What is unwise in the spec of a pod.

use super::super::field::Field;
use super::super::rules::{address, affinity, resource};
use std::collections::{BTreeMap, BTreeSet};

/// Warns of what is unwise in a spec of a pod, or of a template.
pub(crate) fn spec(spec: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let selector = spec.at("nodeSelector");
    for (key, entry) in selector.entries() {
        warnings.extend(affinity::old_label(key).map(|why| format!("{}: {why}", entry.path())));
    }
    warnings.extend(affinity_warnings(&spec.at("affinity").at("nodeAffinity")));
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
    for volume in spec.at("volumes").items() {
        warnings.extend(volume_warning(&volume));
    }
    let mut aliases: BTreeSet<&str> = BTreeSet::new();
    for alias in spec.at("hostAliases").items() {
        let ip = alias.value()["ip"].as_str().unwrap_or_default();
        if aliases.contains(ip) {
            warnings.push(format!("{}: duplicate ip {ip:?}", alias.at("ip").path()));
        }
        warnings.extend(address::warn(&alias.at("ip")));
        aliases.insert(ip);
    }
    let mut secrets: BTreeSet<&str> = BTreeSet::new();
    for secret in spec.at("imagePullSecrets").items() {
        let name = secret.value()["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            warnings.push(format!("{}: invalid empty name {name:?}", secret.at("name").path()));
        } else if secrets.contains(name) {
            warnings.push(format!("{}: duplicate name {name:?}", secret.at("name").path()));
        }
        secrets.insert(name);
    }
    for list in ["initContainers", "containers"] {
        for container in spec.at(list).items() {
            warnings.extend(container_warnings(&container));
        }
    }
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
    let resources = container.at("resources");
    for name in ["memory", "ephemeral-storage"] {
        for kind in ["limits", "requests"] {
            let amounts = resources.at(kind);
            warnings.extend(resource::warn_of_fraction(&amounts.key(name)));
        }
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for variable in container.at("env").items() {
        let name = variable.value()["name"].as_str().unwrap_or_default();
        // What takes up the earlier value is meant so.
        let refers = variable.at("value").text().contains(&format!("$({name})"));
        if names.contains(name) && !refers {
            warnings.push(format!(
                "{}: hides previous definition of {name:?}, which may be dropped when using apply",
                variable.path()
            ));
        }
        names.insert(name);
    }
    let mut ports: BTreeMap<(i64, &str), usize> = BTreeMap::new();
    for (i, port) in container.at("ports").items().enumerate() {
        let key = (port.at("containerPort").int(), port.value()["protocol"].as_str().unwrap_or_default());
        let first = *ports.entry(key).or_insert(i);
        if first < i {
            let list = container.at("ports");
            warnings.push(format!("{}: duplicate port definition with {}", port.path(), list.index(first).path()));
        }
    }
    warnings
}
