//! The checks that the level `restricted` adds, which follow best practices of hardening.
//!
//! See <https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>.

use super::baseline::{self, added_capabilities, is_profile};
use super::view::{PodView, Setters, Values, Violation, containers, items, plural, quoted, text, violation, with};

pub(super) fn allow_privilege_escalation(pod: &PodView<'_>) -> Option<Violation> {
    let names = containers(&with(pod, |container| container.security["allowPrivilegeEscalation"] != false));
    let detail = |names| format!("{names} must set securityContext.allowPrivilegeEscalation=false");
    violation("allowPrivilegeEscalation != false", names.map(detail))
}

pub(super) fn capabilities(pod: &PodView<'_>) -> Option<Violation> {
    let keeping = with(pod, |container| {
        let dropped = items(&container.security["capabilities"]["drop"]);
        !dropped.iter().any(|capability| capability == "ALL")
    });
    let keeping =
        containers(&keeping).map(|names| format!("{names} must set securityContext.capabilities.drop=[\"ALL\"]"));
    let details: Vec<String> = keeping.into_iter().chain(added_capabilities(pod, &["NET_BIND_SERVICE"])).collect();
    violation("unrestricted capabilities", (!details.is_empty()).then(|| details.join("; ")))
}

/// The types of volumes that pods may use.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The other types of volumes.
const RESTRICTED_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn volumes(pod: &PodView<'_>) -> Option<Violation> {
    let (mut names, mut types) = (Vec::new(), Values::new());
    for volume in items(&pod.spec["volumes"]) {
        let has = |kind: &str| !volume[kind].is_null();
        if !VOLUMES.iter().any(|kind| has(kind)) {
            names.push(text(&volume["name"]));
            types.insert(RESTRICTED_VOLUMES.into_iter().find(|kind| has(kind)).unwrap_or("unknown"));
        }
    }
    let detail = || {
        let (noun, uses) = (plural(names.len(), "volume", "volumes"), plural(names.len(), "uses", "use"));
        let kinds = plural(types.len(), "restricted volume type", "restricted volume types");
        format!("{noun} {} {uses} {kinds} {}", quoted(&names), quoted(&types))
    };
    violation("restricted volume types", (!names.is_empty()).then(detail))
}

pub(super) fn run_as_non_root(pod: &PodView<'_>) -> Option<Violation> {
    let setters = Setters::of(pod, |security| security["runAsNonRoot"] == false);
    let detail = setters.names().map(|setters| format!("{setters} must not set securityContext.runAsNonRoot=false"));
    let unset = || {
        let is_unset = pod.security["runAsNonRoot"] != true;
        let names = with(pod, |container| is_unset && container.security["runAsNonRoot"].is_null());
        containers(&names).map(|names| format!("pod or {names} must set securityContext.runAsNonRoot=true"))
    };
    violation("runAsNonRoot != true", detail.or_else(unset))
}

pub(super) fn run_as_user(pod: &PodView<'_>) -> Option<Violation> {
    let setters = Setters::of(pod, |security| security["runAsUser"] == 0).names();
    violation("runAsUser=0", setters.map(|setters| format!("{setters} must not set runAsUser=0")))
}

pub(super) fn seccomp_profile(pod: &PodView<'_>) -> Option<Violation> {
    let unset = || {
        let is_unset = !is_profile(&pod.security["seccompProfile"]);
        let names = with(pod, |container| is_unset && container.security["seccompProfile"].is_null());
        let detail = |names| {
            format!(
                "pod or {names} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
            )
        };
        violation("seccompProfile", containers(&names).map(detail))
    };
    baseline::seccomp_profile(pod).or_else(unset)
}
