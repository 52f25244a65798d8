//! The table of checks, and the evaluation of a pod.
//!
//! A check has a revision for each version of Kubernetes that changed it. The revision of the newest version that is
//! not newer than that of the policy applies.

use super::baseline::{self, SE_LINUX_TYPES, SYSCTLS};
use super::level::{Level, LevelVersion};
use super::restricted;
use super::view::{PodView, Violation, has_user_namespace, is_windows};

/// A check, in the order of messages: by level, then by name.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) level: Level,
    revisions: &'static [Revision],
    /// The check of the level below that this one makes redundant.
    replaces: Option<&'static str>,
}

/// A check since a version.
struct Revision {
    /// The minor version of Kubernetes 1.
    since: u64,
    /// Returns true for pods that need not be checked.
    is_exempt: fn(&PodView<'_>) -> bool,
    check: fn(&PodView<'_>) -> Option<Violation>,
}

impl Check {
    const fn baseline(name: &'static str, revisions: &'static [Revision]) -> Self {
        Self { name, level: Level::Baseline, revisions, replaces: None }
    }

    const fn restricted(name: &'static str, revisions: &'static [Revision]) -> Self {
        Self { name, level: Level::Restricted, revisions, replaces: None }
    }

    const fn replaces(self, name: &'static str) -> Self {
        Self { replaces: Some(name), ..self }
    }

    /// Returns the revision in a version; `None` before the first one.
    fn revision(&self, minor: u64) -> Option<&Revision> {
        self.revisions.iter().rfind(|revision| revision.since <= minor)
    }
}

/// Creates the revision of a check since a version.
const fn since(minor: u64, check: fn(&PodView<'_>) -> Option<Violation>) -> Revision {
    Revision { since: minor, is_exempt: |_| false, check }
}

impl Revision {
    const fn except(self, is_exempt: fn(&PodView<'_>) -> bool) -> Self {
        Self { is_exempt, ..self }
    }
}

pub(super) static CHECKS: &[Check] = &[
    Check::baseline("appArmorProfile", &[since(0, baseline::app_armor_profile)]),
    Check::baseline("capabilities_baseline", &[since(0, baseline::capabilities)]),
    Check::baseline("hostNamespaces", &[since(0, baseline::host_namespaces)]),
    Check::baseline("hostPathVolumes", &[since(0, baseline::host_path_volumes)]),
    Check::baseline("hostPorts", &[since(0, baseline::host_ports)]),
    Check::baseline("hostProbesAndHostLifecycle", &[since(34, baseline::host_probes)]),
    Check::baseline("privileged", &[since(0, baseline::privileged)]),
    Check::baseline(
        "procMount",
        &[since(0, baseline::proc_mount), since(35, baseline::proc_mount).except(has_user_namespace)],
    ),
    Check::baseline(
        "seLinuxOptions",
        &[
            since(0, |pod| baseline::se_linux_options(pod, &SE_LINUX_TYPES[..4])),
            since(31, |pod| baseline::se_linux_options(pod, &SE_LINUX_TYPES)),
        ],
    ),
    Check::baseline(
        "seccompProfile_baseline",
        &[since(0, baseline::seccomp_annotations), since(19, baseline::seccomp_profile)],
    ),
    Check::baseline(
        "sysctls",
        &[
            since(0, |pod| baseline::sysctls(pod, &SYSCTLS[..5])),
            since(27, |pod| baseline::sysctls(pod, &SYSCTLS[..6])),
            since(29, |pod| baseline::sysctls(pod, &SYSCTLS[..10])),
            since(32, |pod| baseline::sysctls(pod, &SYSCTLS)),
        ],
    ),
    Check::baseline("windowsHostProcess", &[since(0, baseline::windows_host_process)]),
    Check::restricted(
        "allowPrivilegeEscalation",
        &[
            since(8, restricted::allow_privilege_escalation),
            since(25, restricted::allow_privilege_escalation).except(is_windows),
        ],
    ),
    Check::restricted(
        "capabilities_restricted",
        &[since(22, restricted::capabilities), since(25, restricted::capabilities).except(is_windows)],
    )
    .replaces("capabilities_baseline"),
    Check::restricted("procMount_restricted", &[since(35, baseline::proc_mount)]).replaces("procMount"),
    Check::restricted("restrictedVolumes", &[since(0, restricted::volumes)]).replaces("hostPathVolumes"),
    Check::restricted(
        "runAsNonRoot",
        &[since(0, restricted::run_as_non_root), since(35, restricted::run_as_non_root).except(has_user_namespace)],
    ),
    Check::restricted(
        "runAsUser",
        &[since(23, restricted::run_as_user), since(35, restricted::run_as_user).except(has_user_namespace)],
    ),
    Check::restricted(
        "seccompProfile_restricted",
        &[since(19, restricted::seccomp_profile), since(25, restricted::seccomp_profile).except(is_windows)],
    )
    .replaces("seccompProfile_baseline"),
];

/// Returns the violations of a policy by a pod, in the order of messages.
pub(super) fn evaluate(policy: LevelVersion, pod: &PodView<'_>) -> Vec<Violation> {
    let minor = policy.version.minor();
    let current = || CHECKS.iter().filter(|check| check.level <= policy.level);
    let current = || current().filter_map(|check| Some((check, check.revision(minor)?)));
    let replaced: Vec<&str> = current().filter_map(|(check, _)| check.replaces).collect();
    let applied = current().filter(|(check, revision)| !replaced.contains(&check.name) && !(revision.is_exempt)(pod));
    applied.filter_map(|(_, revision)| (revision.check)(pod)).collect()
}

/// Returns the reasons of violations.
pub(super) fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
}

/// Returns the reasons of violations with their details.
pub(super) fn details(violations: &[Violation]) -> String {
    let texts = violations.iter().map(|violation| format!("{} ({})", violation.reason, violation.detail));
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
