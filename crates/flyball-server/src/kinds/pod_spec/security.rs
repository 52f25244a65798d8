//! Security contexts of pods and containers.

use super::super::display::internal;
use super::super::field::Field;
use super::super::rules::path;
use flyball_core::field::FieldError;
use flyball_core::names::dns_subdomain;
use std::collections::BTreeSet;

type Errors = Vec<FieldError>;

/// Validates the ID of a user or a group.
fn id(field: &Field<'_>) -> Option<FieldError> {
    let good = field.int_if_set().is_none_or(|id| (0..=i64::from(i32::MAX)).contains(&id));
    (!good).then(|| field.invalid("must be between 0 and 2147483647, inclusive"))
}

/// Validates the security context of a container.
pub(super) fn container(context: &Field<'_>, host_users: bool) -> Errors {
    if !context.is_set() {
        return Errors::new();
    }
    let mut errors: Errors = ["runAsUser", "runAsGroup"].iter().filter_map(|name| id(&context.at(name))).collect();
    let proc_mount = context.at("procMount");
    errors.extend(proc_mount.may_be_one_of(&["Default", "Unmasked"]));
    if host_users && proc_mount.text() == "Unmasked" {
        errors.push(proc_mount.invalid("`hostUsers` must be false to use `Unmasked`"));
    }
    errors.extend(profile(&context.at("seccompProfile"), "seccomp"));
    if context.at("allowPrivilegeEscalation").value() == false {
        let shown = || internal("SecurityContext", context.value());
        if context.at("privileged").flag() {
            errors.push(
                context.invalid_as(shown(), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"),
            );
        }
        for _ in context.at("capabilities.add").texts().filter(|capability| *capability == "CAP_SYS_ADMIN") {
            errors.push(context.invalid_as(
                shown(),
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            ));
        }
    }
    errors.extend(profile(&context.at("appArmorProfile"), "AppArmor"));
    errors
}

/// Validates a seccomp or AppArmor profile: only `Localhost` has the name of a profile.
fn profile(profile: &Field<'_>, what: &str) -> Errors {
    if !profile.is_set() {
        return Errors::new();
    }
    let seccomp = what == "seccomp";
    let ty = profile.at("type");
    let mut errors = Errors::new();
    const TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
    if ty.is_empty() {
        errors.push(ty.required(if seccomp {
            "type is required when seccompProfile is set"
        } else {
            "type is required when appArmorProfile is set"
        }));
    } else {
        errors.extend(ty.must_be_in(TYPES));
    }
    let name = profile.at("localhostProfile");
    match (ty.text(), name.is_set()) {
        ("Localhost", false) => errors.push(name.required(format!("must be set when {what} type is Localhost"))),
        ("Localhost", true) if seccomp => errors.extend(path::descending(&name)),
        ("Localhost", true) => {
            let text = name.text();
            if text.trim().len() != text.len() {
                errors.push(name.invalid("must not be padded with whitespace"));
            } else if text.is_empty() {
                errors.push(name.required("must be set when AppArmor type is Localhost"));
            }
            if text.len() > 4095 {
                errors.push(name.too_long(4095));
            }
        }
        (_, true) if seccomp => {
            errors.push(name.invalid_as(
                internal("SeccompProfile", profile.value()),
                "can only be set when seccomp type is Localhost",
            ));
        }
        (_, true) => errors.push(name.invalid("can only be set when AppArmor type is Localhost")),
        (_, false) => {}
    }
    errors
}

/// Validates the security context of a pod.
pub(super) fn pod(spec: &Field<'_>) -> Errors {
    let context = spec.at("securityContext");
    let mut errors: Errors =
        ["fsGroup", "runAsUser", "runAsGroup"].iter().filter_map(|name| id(&context.at(name))).collect();
    errors.extend(context.at("supplementalGroups").items().filter_map(|group| id(&group)));
    if spec.at("shareProcessNamespace").flag() && spec.at("hostPID").flag() {
        let shown = context.at("shareProcessNamespace");
        errors.push(shown.invalid_as(true, "ShareProcessNamespace and HostPID cannot both be enabled"));
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let sysctls = context.at("sysctls");
    for sysctl in sysctls.items() {
        let name = sysctl.at("name");
        let text = sysctl.value()["name"].as_str().unwrap_or_default();
        if text.is_empty() {
            errors.push(name.required(""));
        } else if !is_sysctl(text) {
            errors.push(name.invalid(format!("must have at most 253 characters and match regex {SYSCTL}")));
        } else if names.contains(text) {
            errors.push(name.duplicate());
        }
        names.insert(text);
    }
    errors.extend(context.at("fsGroupChangePolicy").may_be_one_of(&["Always", "OnRootMismatch"]));
    errors.extend(profile(&context.at("seccompProfile"), "seccomp"));
    errors.extend(profile(&context.at("appArmorProfile"), "AppArmor"));
    errors.extend(context.at("supplementalGroupsPolicy").may_be_one_of(&["Merge", "Strict"]));
    errors.extend(context.at("seLinuxChangePolicy").may_be_one_of(&["Recursive"]));
    errors
}

const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn is_sysctl(name: &str) -> bool {
    name.len() <= 253 && name.split(['.', '/']).all(|part| dns_subdomain(&part.replace('_', "-")).is_empty())
}
