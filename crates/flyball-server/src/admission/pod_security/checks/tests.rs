//! Pods, policies and the expected messages. The facts are those of the tests in k8s.io/pod-security-admission 0.36.

use super::*;
use crate::admission::pod_security::level::Version;
use serde_json::{Value, json};

fn policy(text: &str) -> LevelVersion {
    let (level, version) = text.split_once(':').unwrap_or((text, "latest"));
    let level = if level == "baseline" { Level::Baseline } else { Level::Restricted };
    let version = version.strip_prefix("v1.").map_or(Version::Latest, |minor| Version::Minor(minor.parse().unwrap()));
    LevelVersion { level, version }
}

/// Returns the message for a pod.
fn message(text: &str, pod: &Value) -> String {
    details(&evaluate(policy(text), &PodView::of(pod)))
}

/// A pod with a spec, to which containers with a security context are added by name.
fn pod(spec: Value, containers: &[(&str, Value)]) -> Value {
    let containers = containers.iter().map(|(name, security)| json!({"name": name, "securityContext": security}));
    let mut pod = json!({"spec": spec});
    pod["spec"]["containers"] = containers.collect();
    pod
}

/// A pod that the level `restricted` allows, with changes.
fn hardened(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({"spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "a", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        }}],
    }});
    change(&mut pod);
    pod
}

/// Asserts the messages for pods, each with a policy.
fn assert_messages<'c>(cases: impl IntoIterator<Item = (&'c str, Value, &'c str)>) {
    for (policy, pod, expected) in cases {
        assert_eq!(message(policy, &pod), expected, "{policy}: {pod}");
    }
}

#[test]
fn checks_are_those_of_kubernetes_1_36_in_the_order_of_messages() {
    let all: Vec<(Level, &str)> = CHECKS.iter().map(|check| (check.level, check.name)).collect();
    assert!(all.is_sorted(), "{all:?}");
    let versions = |check: &Check| check.revisions.iter().map(|revision| revision.since).collect::<Vec<_>>();
    let found: Vec<(&str, Vec<u64>)> = CHECKS.iter().map(|check| (check.name, versions(check))).collect();
    let expected: [(&str, &[u64]); 19] = [
        ("appArmorProfile", &[0]),
        ("capabilities_baseline", &[0]),
        ("hostNamespaces", &[0]),
        ("hostPathVolumes", &[0]),
        ("hostPorts", &[0]),
        ("hostProbesAndHostLifecycle", &[34]),
        ("privileged", &[0]),
        ("procMount", &[0, 35]),
        ("seLinuxOptions", &[0, 31]),
        ("seccompProfile_baseline", &[0, 19]),
        ("sysctls", &[0, 27, 29, 32]),
        ("windowsHostProcess", &[0]),
        ("allowPrivilegeEscalation", &[8, 25]),
        ("capabilities_restricted", &[22, 25]),
        ("procMount_restricted", &[35]),
        ("restrictedVolumes", &[0]),
        ("runAsNonRoot", &[0, 35]),
        ("runAsUser", &[23, 35]),
        ("seccompProfile_restricted", &[19, 25]),
    ];
    assert_eq!(found, expected.map(|(name, versions)| (name, versions.to_vec())));
    assert!(CHECKS.iter().all(|check| check.revisions.is_sorted_by(|one, other| one.since < other.since)));
}

#[test]
fn plain_and_hardened_pods_have_known_messages() {
    let plain = || json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let seccomp = r#"seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#;
    let escalation =
        r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)"#;
    let capabilities =
        r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])"#;
    let root = r#"runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)"#;
    let of_version = [
        ("restricted:v1.7", vec![root]),
        ("restricted:v1.8", vec![escalation, root]),
        ("restricted:v1.18", vec![escalation, root]),
        ("restricted:v1.19", vec![escalation, root, seccomp]),
        ("restricted:v1.22", vec![escalation, capabilities, root, seccomp]),
        ("restricted:v1.99", vec![escalation, capabilities, root, seccomp]),
        ("restricted", vec![escalation, capabilities, root, seccomp]),
        ("baseline", vec![]),
    ];
    for (policy, expected) in of_version {
        assert_eq!(message(policy, &plain()), expected.join(", "), "{policy}");
        assert_eq!(message(policy, &hardened(|_| {})), "", "{policy}");
    }
    let windows = |os: &str| json!({"spec": {"os": {"name": os}, "containers": [{"name": "c"}]}});
    assert_eq!(message("restricted", &windows("windows")), root);
    assert_eq!(message("restricted", &windows("linux")), message("restricted", &plain()));
    assert_eq!(message("restricted:v1.24", &windows("windows")), message("restricted:v1.24", &plain()));
}

#[test]
fn app_armor_profiles() {
    let profile = |kind: &str| json!({"appArmorProfile": {"type": kind}});
    let with_annotations = |annotations: &[(&str, &str)], mut pod: Value| {
        for (name, value) in annotations {
            pod["metadata"]["annotations"][format!("container.apparmor.security.beta.kubernetes.io/{name}")] =
                (*value).into();
        }
        pod
    };
    let fields = || {
        let spec = json!({"securityContext": profile("Unconfined")});
        pod(spec, &[("a", profile("Localhost")), ("b", profile("Other")), ("c", profile("RuntimeDefault"))])
    };
    let allowed = [("a", "runtime/default"), ("b", "localhost/p"), ("c", "")];
    assert_messages([
        ("baseline:v1.0", with_annotations(&allowed, pod(json!({}), &[])), ""),
        (
            "baseline",
            pod(json!({"securityContext": profile("Unconfined")}), &[("a", json!({}))]),
            r#"forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")"#,
        ),
        (
            "baseline",
            with_annotations(&[("a", "unconfined")], pod(json!({}), &[])),
            r#"forbidden AppArmor profile (annotation must not set AppArmor profile type to "container.apparmor.security.beta.kubernetes.io/a="unconfined"")"#,
        ),
        (
            "restricted:v1.0",
            with_annotations(&[("z", "x"), ("a", "unconfined"), ("b", "localhost/")], fields()),
            r#"forbidden AppArmor profiles (pod and container "b" and annotations must not set AppArmor profile type to "Other", "Unconfined", "container.apparmor.security.beta.kubernetes.io/a="unconfined"", "container.apparmor.security.beta.kubernetes.io/z="x""), runAsNonRoot != true (pod or containers "a", "b", "c" must set securityContext.runAsNonRoot=true)"#,
        ),
    ]);
}

#[test]
fn capabilities() {
    let capabilities = |added: &[&str], dropped: &[&str]| json!({"capabilities": {"add": added, "drop": dropped}});
    let two = || {
        pod(json!({}), &[("a", capabilities(&["FOO", "BAR", "KILL"], &[])), ("b", capabilities(&["BAR", "BAZ"], &[]))])
    };
    let baseline = r#"non-default capabilities (containers "a", "b" must not include "BAR", "BAZ", "FOO" in securityContext.capabilities.add)"#;
    let restricted = |mut security: Value| {
        hardened(|pod| {
            pod["spec"]["containers"][0]["securityContext"]["capabilities"] = security["capabilities"].take()
        })
    };
    assert_messages([
        ("baseline:v1.0", two(), baseline),
        ("baseline", two(), baseline),
        ("restricted", restricted(capabilities(&["NET_BIND_SERVICE"], &["X", "ALL"])), ""),
        (
            "restricted",
            restricted(capabilities(&["CHOWN", "NET_BIND_SERVICE"], &["all"])),
            r#"unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]; container "a" must not include "CHOWN" in securityContext.capabilities.add)"#,
        ),
        ("restricted:v1.21", restricted(capabilities(&["CHOWN"], &[])), ""),
        (
            "restricted:v1.21",
            restricted(capabilities(&["SYS_ADMIN"], &[])),
            r#"non-default capabilities (container "a" must not include "SYS_ADMIN" in securityContext.capabilities.add)"#,
        ),
    ]);
}

#[test]
fn namespaces_ports_and_hosts_of_the_node() {
    let port = |number: i64| json!({"hostPort": number});
    let ports = json!({"spec": {
        "initContainers": [{"name": "a", "ports": [{}, port(0)]}, {"name": "b", "ports": [port(20), port(10)]}],
        "containers": [{"name": "c", "ports": [port(100), port(20)]}],
    }});
    let handler = |action: &str, host: &str| json!({action: {"host": host}});
    let hosts = json!({"spec": {"containers": [
        {"name": "z", "livenessProbe": handler("httpGet", "b.com"), "readinessProbe": handler("tcpSocket", "")},
        {"name": "a", "lifecycle": {"preStop": handler("httpGet", "a.com"), "postStart": handler("exec", "x")}},
        {"name": "b", "startupProbe": {"httpGet": {"port": 1}}},
    ]}});
    let one = json!({"spec": {"containers": [{"name": "c", "readinessProbe": handler("tcpSocket", "8.8.8.8")}]}});
    let used = r#"probe or lifecycle host (containers "a", "z" use probe or lifecycle hosts "a.com", "b.com")"#;
    let shared = json!({"hostNetwork": true, "hostPID": false, "hostIPC": true});
    assert_messages([
        ("baseline", pod(shared, &[]), "host namespaces (hostNetwork=true, hostIPC=true)"),
        ("baseline", pod(json!({"hostPID": true}), &[]), "host namespaces (hostPID=true)"),
        // Numbers are sorted as texts.
        ("baseline", ports, r#"hostPort (containers "b", "c" use hostPorts 10, 100, 20)"#),
        (
            "baseline",
            json!({"spec": {"containers": [{"name": "b", "ports": [port(20)]}]}}),
            r#"hostPort (container "b" uses hostPort 20)"#,
        ),
        ("baseline:v1.33", hosts.clone(), ""),
        ("baseline:v1.34", hosts, used),
        ("baseline", one, r#"probe or lifecycle host (container "c" uses probe or lifecycle host "8.8.8.8")"#),
    ]);
}

#[test]
fn volumes() {
    let volumes = |volumes: Value| hardened(|pod| pod["spec"]["volumes"] = volumes);
    let of_host = || volumes(json!([{"name": "a", "hostPath": {}}, {"name": "b", "emptyDir": {}}]));
    let allowed = ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim"];
    let allowed = allowed.into_iter().chain(["projected", "secret"]);
    let allowed: Value = allowed.map(|kind| json!({"name": kind, kind: {}})).collect();
    assert_messages([
        ("baseline", of_host(), r#"hostPath volumes (volume "a")"#),
        ("restricted", of_host(), r#"restricted volume types (volume "a" uses restricted volume type "hostPath")"#),
        ("restricted:v1.0", volumes(allowed), ""),
        (
            "baseline",
            volumes(json!([{"name": "a", "hostPath": {}}, {"name": "b", "hostPath": {}}])),
            r#"hostPath volumes (volumes "a", "b")"#,
        ),
        (
            "restricted",
            volumes(
                json!([{"name": "a", "nfs": {}}, {"name": "b"}, {"name": "c", "azureFile": {}}, {"name": "d", "nfs": {}}]),
            ),
            r#"restricted volume types (volumes "a", "b", "c", "d" use restricted volume types "azureFile", "nfs", "unknown")"#,
        ),
    ]);
}

#[test]
fn privileges_and_users() {
    let security = |security: Value| {
        let containers = [("a", json!({})), ("b", security.clone()), ("c", security.clone())];
        pod(json!({"securityContext": security}), &containers)
    };
    let mount = |kind: &str| hardened(|pod| pod["spec"]["containers"][0]["securityContext"]["procMount"] = kind.into());
    let own = |mut pod: Value| {
        pod["spec"]["hostUsers"] = false.into();
        pod
    };
    let mounted = r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#;
    let root = |field: &str, value: Value| hardened(|pod| pod["spec"]["securityContext"][field] = value);
    let is_root = "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)";
    assert_messages([
        (
            "baseline",
            security(json!({"privileged": true})),
            r#"privileged (containers "b", "c" must not set securityContext.privileged=true)"#,
        ),
        (
            "baseline",
            security(json!({"windowsOptions": {"hostProcess": true}})),
            r#"hostProcess (pod and containers "b", "c" must not set securityContext.windowsOptions.hostProcess=true)"#,
        ),
        ("baseline", mount("Default"), ""),
        ("baseline:v1.34", own(mount("Unmasked")), mounted),
        ("baseline:v1.35", own(mount("Unmasked")), ""),
        ("baseline", mount("Unmasked"), mounted),
        ("restricted", own(mount("Unmasked")), mounted),
        ("restricted", mount("Unmasked"), mounted),
        ("restricted", root("runAsNonRoot", json!(false)), is_root),
        ("restricted:v1.34", own(root("runAsNonRoot", json!(false))), is_root),
        ("restricted", own(root("runAsNonRoot", json!(false))), ""),
        ("restricted", root("runAsUser", json!(0)), "runAsUser=0 (pod must not set runAsUser=0)"),
        ("restricted", root("runAsUser", json!(1)), ""),
        ("restricted:v1.22", root("runAsUser", json!(0)), ""),
        ("restricted:v1.34", own(root("runAsUser", json!(0))), "runAsUser=0 (pod must not set runAsUser=0)"),
        ("restricted", own(root("runAsUser", json!(0))), ""),
        (
            "restricted:v1.7",
            security(json!({"runAsNonRoot": false})),
            r#"runAsNonRoot != true (pod and containers "b", "c" must not set securityContext.runAsNonRoot=false)"#,
        ),
    ]);
}

#[test]
fn se_linux_options() {
    let options =
        |kind: &str, user: &str, role: &str| json!({"seLinuxOptions": {"type": kind, "user": user, "role": role}});
    let spec = json!({"securityContext": options("foo", "bar", "baz")});
    let containers = [
        ("a", options("container_t", "", "")),
        ("b", options("container_engine_t", "", "")),
        ("c", options("bar", "", "")),
        ("d", options("", "u", "")),
    ];
    let expected = |names: &str, types: &str| {
        format!(
            "seLinuxOptions (pod and containers {names} set forbidden securityContext.seLinuxOptions: types {types}; \
             user may not be set; role may not be set)"
        )
    };
    let pod = pod(spec, &containers);
    assert_eq!(message("baseline", &pod), expected(r#""c", "d""#, r#""bar", "foo""#));
    let before = expected(r#""b", "c", "d""#, r#""bar", "container_engine_t", "foo""#);
    assert_eq!(message("baseline:v1.30", &pod), before);
}

#[test]
fn seccomp_profiles() {
    let profile = |kind: &str| json!({"seccompProfile": {"type": kind}});
    let annotated = |pairs: &[(&str, &str)]| {
        let annotations: serde_json::Map<String, Value> =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}})
    };
    let (of_pod, of_a, of_x) = (
        "seccomp.security.alpha.kubernetes.io/pod",
        "container.seccomp.security.alpha.kubernetes.io/a",
        "container.seccomp.security.alpha.kubernetes.io/x",
    );
    let unconfined = || {
        let containers = [("a", json!({})), ("b", profile("Unconfined")), ("c", profile("Localhost"))];
        pod(json!({"securityContext": profile("Unconfined")}), &containers)
    };
    let set =
        r#"seccompProfile (pod and container "b" must not set securityContext.seccompProfile.type to "Unconfined")"#;
    let unset = hardened(|pod| pod["spec"]["securityContext"]["seccompProfile"] = Value::Null);
    assert_messages([
        ("baseline:v1.18", unconfined(), ""),
        ("baseline:v1.19", unconfined(), set),
        ("baseline", annotated(&[(of_pod, "unconfined")]), ""),
        ("baseline:v1.18", annotated(&[(of_pod, "runtime/default"), (of_a, "docker/default"), (of_x, "bad")]), ""),
        (
            "baseline:v1.18",
            annotated(&[(of_pod, "unconfined"), (of_a, "")]),
            r#"seccompProfile (forbidden annotations container.seccomp.security.alpha.kubernetes.io/a="", seccomp.security.alpha.kubernetes.io/pod="unconfined")"#,
        ),
        (
            "restricted",
            unset,
            r#"seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
        ),
        ("restricted:v1.18", hardened(|pod| pod["spec"]["securityContext"]["seccompProfile"] = Value::Null), ""),
    ]);
}

#[test]
fn sysctls_are_allowed_since_a_version() {
    let sysctls = |names: &[&str]| {
        let sysctls: Value = names.iter().map(|name| json!({"name": name})).collect();
        pod(json!({"securityContext": {"sysctls": sysctls}}), &[])
    };
    assert_messages([
        ("baseline:v1.0", sysctls(&["b", "kernel.shm_rmid_forced", "a"]), "forbidden sysctls (b, a)"),
        ("baseline", sysctls(&SYSCTLS), ""),
    ]);
    for (allowed, since) in SYSCTLS.iter().zip([0, 0, 0, 0, 0, 27, 29, 29, 29, 29, 32, 32]) {
        for minor in [0, 26, 27, 28, 29, 31, 32, 36] {
            let found = message(&format!("baseline:v1.{minor}"), &sysctls(&[allowed]));
            let expected = if minor < since { format!("forbidden sysctls ({allowed})") } else { String::new() };
            assert_eq!(found, expected, "v1.{minor}");
        }
    }
}

#[test]
fn all_kinds_of_containers_are_checked_in_this_order() {
    let container = |name: &str| json!({"name": name, "securityContext": {"privileged": true}});
    let pod = json!({"spec": {
        "ephemeralContainers": [container("e")], "containers": [container("c")], "initContainers": [container("i")],
    }});
    let expected = r#"privileged (containers "i", "c", "e" must not set securityContext.privileged=true)"#;
    assert_eq!(message("baseline", &pod), expected);
}
