//! Warnings about the spec of a pod.

use super::super::field::Field;
use super::super::rules::{address, affinity, resource};
use crate::response::{MAX_WARNING, MAX_WARNINGS};
use std::collections::{BTreeMap, BTreeSet};

/// Returns warnings about a pod or a pod template, given its metadata and spec.
pub(crate) fn of(metadata: &Field<'_>, spec: &Field<'_>, is_template: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let selector = spec.at("nodeSelector");
    for (key, entry) in selector.entries() {
        warnings.extend(affinity::old_label(key).map(|why| format!("{}: {why}", entry.path())));
    }
    warnings.extend(affinity_warnings(&spec.at("affinity").at("nodeAffinity")));
    for constraint in spec.at("topologySpreadConstraints").items() {
        let key = constraint.at("topologyKey");
        warnings.extend(affinity::old_label(key.text()).map(|why| format!("{}: {} is {why}", key.path(), key.text())));
        warnings.extend(selects_nothing(&constraint));
    }
    let annotations = metadata.at("annotations");
    for (name, why) in OLD_ANNOTATIONS {
        warnings.extend(warn_of_annotation(&annotations, name, why));
    }
    for volume in spec.at("volumes").items() {
        warnings.extend(volume_warning(&volume));
    }
    let mut aliases: BTreeSet<&str> = BTreeSet::new();
    for alias in spec.at("hostAliases").items() {
        let ip = alias.value()["ip"].as_str().unwrap_or_default();
        if !aliases.insert(ip) {
            warnings.push(format!("{}: duplicate ip {ip:?}", alias.at("ip").path()));
        }
        warnings.extend(address::warn(&alias.at("ip")));
    }
    warnings.extend(secret_warnings(&spec.at("imagePullSecrets")));
    let overhead = spec.at("overhead");
    warnings.extend(BYTES.iter().filter_map(|name| resource::warn_of_fraction(&overhead.key(name))));
    let security = spec.at("securityContext");
    if !security.at("seccompProfile").is_set() {
        warnings.extend(warn_of_annotation(&annotations, "seccomp.security.alpha.kubernetes.io/pod", OLD_SECCOMP));
    }
    let confined = !is_template || security.at("appArmorProfile").is_set();
    for list in CONTAINERS {
        for container in spec.at(list).items() {
            warnings.extend(annotated_warnings(&annotations, &container, confined));
            warnings.extend(container_warnings(&container));
        }
    }
    warnings.extend(port_warnings(spec));
    let grace = spec.at("terminationGracePeriodSeconds");
    if grace.int() < 0 {
        warnings.push(format!("{}: must be >= 0; negative values are invalid and will be treated as 1", grace.path()));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.at("affinity");
        let terms = affinity.at(kind);
        let required = terms.at("requiredDuringSchedulingIgnoredDuringExecution");
        warnings.extend(required.items().filter_map(|term| selects_nothing(&term)));
        let preferred = terms.at("preferredDuringSchedulingIgnoredDuringExecution");
        warnings.extend(preferred.items().filter_map(|term| selects_nothing(&term.at("podAffinityTerm"))));
    }
    warnings
}

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const BYTES: [&str; 2] = ["memory", "ephemeral-storage"];

const OLD_SECCOMP: &str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
const OLD_APP_ARMOR: &str = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    ("security.alpha.kubernetes.io/unsafe-sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
];

fn warn_of_annotation(annotations: &Field<'_>, name: &str, why: &str) -> Option<String> {
    let annotation = annotations.key(name);
    annotation.value().is_string().then(|| format!("{}: {why}", annotation.path()))
}

/// Warns about annotations that are replaced by container fields.
fn annotated_warnings(annotations: &Field<'_>, container: &Field<'_>, confined: bool) -> Vec<String> {
    let security = container.at("securityContext");
    let name = container.value()["name"].as_str().unwrap_or_default();
    let mut warnings = Vec::new();
    if !security.at("seccompProfile").is_set() {
        let key = format!("container.seccomp.security.alpha.kubernetes.io/{name}");
        warnings.extend(warn_of_annotation(annotations, &key, OLD_SECCOMP));
    }
    if !confined && !security.at("appArmorProfile").is_set() {
        let key = format!("container.apparmor.security.beta.kubernetes.io/{name}");
        warnings.extend(warn_of_annotation(annotations, &key, OLD_APP_ARMOR));
    }
    warnings
}

/// Warns about a term without a selector, which matches no pods.
fn selects_nothing(term: &Field<'_>) -> Option<String> {
    let selector = term.at("labelSelector");
    selector.value().is_null().then(|| format!("{}: a null labelSelector results in matching no pod", selector.path()))
}

fn secret_warnings(secrets: &Field<'_>) -> Vec<String> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let (mut twice, mut nameless) = (Vec::new(), Vec::new());
    for secret in secrets.items() {
        let name = secret.value()["name"].as_str().unwrap_or_default();
        if !names.insert(name) {
            twice.push(format!("{}: duplicate name {name:?}", secret.at("name").path()));
        }
        if name.is_empty() {
            nameless.push(format!("{}: invalid empty name {name:?}", secret.at("name").path()));
        }
    }
    twice.extend(nameless);
    twice
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
    for name in BYTES {
        for kind in ["limits", "requests"] {
            let amounts = resources.at(kind);
            warnings.extend(resource::warn_of_fraction(&amounts.key(name)));
        }
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for variable in container.at("env").items() {
        let name = variable.value()["name"].as_str().unwrap_or_default();
        // A value that refers to the previous one is intended.
        let refers = variable.at("value").text().contains(&format!("$({name})"));
        if names.contains(name) && !refers {
            warnings.push(format!(
                "{}: hides previous definition of {name:?}, which may be dropped when using apply",
                variable.path()
            ));
        }
        names.insert(name);
    }
    warnings
}

/// Warns about duplicate ports in a pod, and about host IPs without a host port.
fn port_warnings(spec: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut known: BTreeMap<(i64, String), Ports> = BTreeMap::new();
    // The search ends when the warnings exceed the limit of a response: the number of pairs is quadratic.
    let mut room = MAX_WARNINGS;
    for list in CONTAINERS {
        for container in spec.at(list).items() {
            for port in container.at("ports").items() {
                let text = |name| port.value()[name].as_str().unwrap_or_default().to_owned();
                let number = port.at("containerPort").int();
                let (protocol, path) = (text("protocol"), port.path().to_string());
                let (ip, host) = (text("hostIP"), port.at("hostPort").int());
                if !ip.is_empty() && host == 0 {
                    let name = text("name");
                    warnings.push(format!("{path}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{ip}}}"));
                }
                let ports = known.entry((number, protocol)).or_default();
                let clashing = if room == 0 { Vec::new() } else { ports.clashing(host, &ip) };
                for other in clashing {
                    if room == 0 {
                        break;
                    }
                    let (other_host, other_ip, other_path) = &ports.all[other];
                    let how = if (host, &ip) == (*other_host, other_ip) {
                        "duplicate"
                    } else if host == 0 || *other_host == 0 {
                        "overlapping"
                    } else {
                        "dangerously ambiguous"
                    };
                    let warning = format!("{path}: {how} port definition with {other_path}");
                    room = room.saturating_sub(warning.len().min(MAX_WARNING));
                    warnings.push(warning);
                }
                ports.add(host, ip, path);
            }
        }
    }
    warnings
}

/// Ports with the same number and protocol, by their host port.
#[derive(Default)]
struct Ports {
    /// The host port, its address, and its path.
    all: Vec<(i64, String, String)>,
    by_port: BTreeMap<i64, Vec<usize>>,
    by_address: BTreeMap<(i64, String), Vec<usize>>,
}

impl Ports {
    /// Returns the previous ports that conflict with a port, in order.
    fn clashing(&self, host: i64, ip: &str) -> Vec<usize> {
        if host == 0 {
            return (0..self.all.len()).collect();
        }
        let of_port = |host: i64| self.by_port.get(&host).into_iter().flatten();
        let of_address = |ip: &str| self.by_address.get(&(host, ip.to_owned())).into_iter().flatten();
        let mut found: Vec<usize> = of_port(0).copied().collect();
        if ip.is_empty() {
            found.extend(of_port(host));
        } else {
            found.extend(of_address("").chain(of_address(ip)));
        }
        found.sort_unstable();
        found
    }

    fn add(&mut self, host: i64, ip: String, path: String) {
        let index = self.all.len();
        self.by_port.entry(host).or_default().push(index);
        self.by_address.entry((host, ip.clone())).or_default().push(index);
        self.all.push((host, ip, path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::Object;
    use serde_json::{Value, json};

    fn warnings(object: Value, is_template: bool) -> Vec<String> {
        let object = Object::try_from(object).unwrap();
        let root = Field::root(&object);
        of(&root.at("metadata"), &root.at("spec"), is_template)
    }

    fn of_ports(ports: Value) -> Vec<String> {
        warnings(json!({"spec": {"containers": [{"name": "c", "ports": ports}]}}), false)
    }

    #[test]
    fn conflicting_ports_are_reported_by_kind() {
        let port =
            |host: i64, ip: &str| json!({"containerPort": 80, "protocol": "TCP", "hostPort": host, "hostIP": ip});
        let at = |i: usize| format!("spec.containers[0].ports[{i}]");
        for (first, second, how) in [
            (port(0, ""), port(0, ""), Some("duplicate")),
            (port(8, "10.0.0.1"), port(8, "10.0.0.1"), Some("duplicate")),
            (port(8, ""), port(0, ""), Some("overlapping")),
            (port(0, ""), port(8, "10.0.0.1"), Some("overlapping")),
            (port(8, ""), port(8, "10.0.0.1"), Some("dangerously ambiguous")),
            (port(8, "10.0.0.1"), port(8, ""), Some("dangerously ambiguous")),
            (port(8, "10.0.0.1"), port(8, "10.0.0.2"), None),
            (port(8, ""), port(9, ""), None),
        ] {
            let expected: Vec<String> =
                how.iter().map(|how| format!("{}: {how} port definition with {}", at(1), at(0))).collect();
            assert_eq!(of_ports(json!([first, second])), expected, "{first} {second}");
        }
        let lonely = "{Name:n HostPort:0 ContainerPort:80 Protocol:UDP HostIP:10.0.0.1}";
        assert_eq!(
            of_ports(json!([{"name": "n", "containerPort": 80, "protocol": "UDP", "hostIP": "10.0.0.1"}])),
            [format!("{}: hostIP set without hostPort: {lonely}", at(0))]
        );
    }

    #[test]
    fn port_warnings_are_bounded() {
        let ports: Vec<Value> = (0..2_000).map(|_| json!({"containerPort": 80, "protocol": "TCP"})).collect();
        let warnings = of_ports(ports.into());
        let length: usize = warnings.iter().map(String::len).sum();
        assert!((MAX_WARNINGS..MAX_WARNINGS + MAX_WARNING).contains(&length), "{length}");
        assert_eq!(
            warnings[2],
            "spec.containers[0].ports[2]: duplicate port definition with spec.containers[0].ports[1]"
        );
    }

    #[test]
    fn old_annotations_warn_if_their_fields_are_unset() {
        let pod = |security: Value| {
            let annotations = json!({
                "container.apparmor.security.beta.kubernetes.io/c": "x",
                "container.seccomp.security.alpha.kubernetes.io/c": "x",
                "scheduler.alpha.kubernetes.io/critical-pod": "",
            });
            let containers = json!([{"name": "c", "securityContext": security}]);
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}})
        };
        let at = |name: &str, why: &str| format!("metadata.annotations[{name}]: {why}");
        let critical = at(
            "scheduler.alpha.kubernetes.io/critical-pod",
            r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
        );
        let seccomp = at(
            "container.seccomp.security.alpha.kubernetes.io/c",
            r#"non-functional in v1.27+; use the "seccompProfile" field instead"#,
        );
        let armor = at(
            "container.apparmor.security.beta.kubernetes.io/c",
            r#"deprecated since v1.30; use the "appArmorProfile" field instead"#,
        );
        assert_eq!(warnings(pod(Value::Null), false), [critical.clone(), seccomp.clone()]);
        assert_eq!(warnings(pod(Value::Null), true), [critical.clone(), seccomp, armor]);
        let profile = json!({"type": "RuntimeDefault"});
        assert_eq!(warnings(pod(json!({"seccompProfile": profile, "appArmorProfile": profile})), true), [critical]);
    }
}
