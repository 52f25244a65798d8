//! The checks of the level `baseline`, which prevent known privilege escalations.
//!
//! See <https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline>.

use super::view::{
    Container, PodView, Setters, Values, Violation, containers, items, plural, quoted, text, violation, with,
};
use flyball_core::field::go_quote;
use serde_json::Value;
use std::collections::BTreeSet;

/// The profiles of AppArmor and seccomp that may be set.
pub(super) fn is_profile(profile: &Value) -> bool {
    matches!(text(&profile["type"]), "RuntimeDefault" | "Localhost")
}

pub(super) fn app_armor_profile(pod: &PodView<'_>) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let mut values = Values::new();
    let setters = Setters::of(pod, |security| {
        let profile = &security["appArmorProfile"];
        let is_forbidden = !profile.is_null() && !is_profile(profile);
        values.extend(is_forbidden.then(|| text(&profile["type"])));
        is_forbidden
    });
    let is_allowed = |value: &str| matches!(value, "" | "runtime/default") || value.starts_with("localhost/");
    let annotations = pod.annotations.into_iter().flatten().filter(|(key, _)| key.starts_with(PREFIX));
    let annotations = annotations.map(|(key, value)| (key, text(value))).filter(|(_, value)| !is_allowed(value));
    let annotations: BTreeSet<String> = annotations.map(|(key, value)| format!("{key}={}", go_quote(value))).collect();
    let annotation = plural(annotations.len(), "annotation", "annotations");
    let setters: Vec<String> =
        setters.names().into_iter().chain((!annotations.is_empty()).then(|| annotation.to_owned())).collect();
    if setters.is_empty() {
        return None;
    }
    let reason = plural(values.len() + annotations.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
    let values = quoted(values.into_iter().chain(annotations.iter().map(String::as_str)));
    let setters = setters.join(" and ");
    violation(reason, Some(format!("{setters} must not set AppArmor profile type to {values}")))
}

/// The capabilities that containers may add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Returns the containers that add other capabilities than these.
pub(super) fn added_capabilities(pod: &PodView<'_>, allowed: &[&str]) -> Option<String> {
    let mut values = Values::new();
    let names = with(pod, |container| {
        let added = items(&container.security["capabilities"]["add"]).iter().map(text);
        let forbidden: Vec<&str> = added.filter(|name| !allowed.contains(name)).collect();
        values.extend(&forbidden);
        !forbidden.is_empty()
    });
    let names = containers(&names)?;
    Some(format!("{names} must not include {} in securityContext.capabilities.add", quoted(values)))
}

pub(super) fn capabilities(pod: &PodView<'_>) -> Option<Violation> {
    violation("non-default capabilities", added_capabilities(pod, &CAPABILITIES))
}

pub(super) fn host_namespaces(pod: &PodView<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[*field] == true);
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    violation("host namespaces", (!shared.is_empty()).then(|| shared.join(", ")))
}

pub(super) fn host_path_volumes(pod: &PodView<'_>) -> Option<Violation> {
    let volumes = items(&pod.spec["volumes"]).iter().filter(|volume| !volume["hostPath"].is_null());
    let volumes: Vec<&str> = volumes.map(|volume| text(&volume["name"])).collect();
    let detail = || format!("{} {}", plural(volumes.len(), "volume", "volumes"), quoted(&volumes));
    violation("hostPath volumes", (!volumes.is_empty()).then(detail))
}

pub(super) fn host_ports(pod: &PodView<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = with(pod, |container| {
        let used = items(&container.value["ports"]).iter().filter_map(|port| port["hostPort"].as_i64());
        let used: Vec<String> = used.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        let uses = !used.is_empty();
        ports.extend(used);
        uses
    });
    let detail = |containers| {
        let uses = plural(names.len(), "uses", "use");
        let noun = plural(ports.len(), "hostPort", "hostPorts");
        format!("{containers} {uses} {noun} {}", Vec::from_iter(ports).join(", "))
    };
    violation("hostPort", containers(&names).map(detail))
}

/// Returns the hosts that the probes and lifecycle handlers of a container address.
fn addressed_hosts<'a>(container: &Container<'a>) -> impl Iterator<Item = &'a str> {
    let (value, lifecycle) = (container.value, &container.value["lifecycle"]);
    let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &value[probe]);
    let handlers = probes.into_iter().chain(["postStart", "preStop"].map(|hook| &lifecycle[hook]));
    let hosts = handlers.flat_map(|handler| ["httpGet", "tcpSocket"].map(|action| text(&handler[action]["host"])));
    hosts.filter(|host| !host.is_empty())
}

pub(super) fn host_probes(pod: &PodView<'_>) -> Option<Violation> {
    let mut hosts = Values::new();
    let names = with(pod, |container| {
        let addressed: Vec<&str> = addressed_hosts(container).collect();
        hosts.extend(&addressed);
        !addressed.is_empty()
    });
    let names = Vec::from_iter(Values::from_iter(names));
    let detail = |containers| {
        let uses = plural(names.len(), "uses", "use");
        let noun = plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
        format!("{containers} {uses} {noun} {}", quoted(&hosts))
    };
    violation("probe or lifecycle host", containers(&names).map(detail))
}

pub(super) fn privileged(pod: &PodView<'_>) -> Option<Violation> {
    let names = containers(&with(pod, |container| container.security["privileged"] == true));
    violation("privileged", names.map(|names| format!("{names} must not set securityContext.privileged=true")))
}

pub(super) fn proc_mount(pod: &PodView<'_>) -> Option<Violation> {
    let mut values = Values::new();
    let names = with(pod, |container| {
        let mount = container.security["procMount"].as_str().filter(|mount| *mount != "Default");
        values.extend(mount);
        mount.is_some()
    });
    let detail = |names| format!("{names} must not set securityContext.procMount to {}", quoted(values));
    violation("procMount", containers(&names).map(detail))
}

/// The types of SELinux that may be set since version 1.31; before, the last one was forbidden.
pub(super) const SE_LINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

pub(super) fn se_linux_options(pod: &PodView<'_>, types: &[&str]) -> Option<Violation> {
    let (mut values, mut sets_user, mut sets_role) = (Values::new(), false, false);
    let setters = Setters::of(pod, |security| {
        let field = |field: &str| text(&security["seLinuxOptions"][field]);
        let (kind, has_user, has_role) = (field("type"), !field("user").is_empty(), !field("role").is_empty());
        let is_forbidden = !types.contains(&kind);
        values.extend(is_forbidden.then_some(kind));
        (sets_user, sets_role) = (sets_user | has_user, sets_role | has_role);
        is_forbidden || has_user || has_role
    });
    let detail = |setters| {
        let kinds = || format!("{} {}", plural(values.len(), "type", "types"), quoted(&values));
        let kinds = (!values.is_empty()).then(kinds);
        let user = sets_user.then(|| "user may not be set".to_owned());
        let role = sets_role.then(|| "role may not be set".to_owned());
        let found: Vec<String> = kinds.into_iter().chain(user).chain(role).collect();
        format!("{setters} set forbidden securityContext.seLinuxOptions: {}", found.join("; "))
    };
    violation("seLinuxOptions", setters.names().map(detail))
}

/// Checks the annotations that selected the seccomp profile before version 1.19.
pub(super) fn seccomp_annotations(pod: &PodView<'_>) -> Option<Violation> {
    let is_allowed =
        |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let of_containers = pod
        .containers
        .iter()
        .map(|container| format!("container.seccomp.security.alpha.kubernetes.io/{}", container.name));
    let keys = of_containers.chain(["seccomp.security.alpha.kubernetes.io/pod".to_owned()]);
    let set = keys.filter_map(|key| pod.annotation(&key).map(|value| (key, value)));
    let forbidden = set.filter(|(_, value)| !is_allowed(value));
    let forbidden: BTreeSet<String> = forbidden.map(|(key, value)| format!("{key}={}", go_quote(value))).collect();
    let noun = plural(forbidden.len(), "annotation", "annotations");
    let is_violated = !forbidden.is_empty();
    let forbidden = Vec::from_iter(forbidden).join(", ");
    violation("seccompProfile", is_violated.then(|| format!("forbidden {noun} {forbidden}")))
}

pub(super) fn seccomp_profile(pod: &PodView<'_>) -> Option<Violation> {
    let mut values = Values::new();
    let setters = Setters::of(pod, |security| {
        let profile = &security["seccompProfile"];
        let is_forbidden = !profile.is_null() && !is_profile(profile);
        values.extend(is_forbidden.then(|| text(&profile["type"])));
        is_forbidden
    });
    let detail = |setters| format!("{setters} must not set securityContext.seccompProfile.type to {}", quoted(values));
    violation("seccompProfile", setters.names().map(detail))
}

/// The sysctls that may be set: the first five in all versions, further ones since 1.27, 1.29 and 1.32.
pub(super) const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

pub(super) fn sysctls(pod: &PodView<'_>, allowed: &[&str]) -> Option<Violation> {
    let names = items(&pod.security["sysctls"]).iter().map(|sysctl| text(&sysctl["name"]));
    let names: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
    violation("forbidden sysctls", (!names.is_empty()).then(|| names.join(", ")))
}

pub(super) fn windows_host_process(pod: &PodView<'_>) -> Option<Violation> {
    let setters = Setters::of(pod, |security| security["windowsOptions"]["hostProcess"] == true);
    let detail = |setters| format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    violation("hostProcess", setters.names().map(detail))
}
