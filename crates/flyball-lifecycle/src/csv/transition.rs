//! The phases of a ClusterServiceVersion as a function of observed facts.
//!
//! Phases, reasons and messages are those of OLM. Differences, which docs/olm.md lists: a failure whose cause remains
//! does not return to `Pending`, and an upgrade whose new ClusterServiceVersion is deleted is reverted.

use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, RequirementStatus, UpgradeStrategy};
use crate::install::Health;
use flyball_core::time::{SignedDuration, Timestamp};
use kube::ResourceExt;
use std::time::Duration;

/// Time that the components of an operator may take to become ready.
const INSTALL_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// Time until an installation that failed with an error is tried again.
const RETRY_DELAY: SignedDuration = SignedDuration::from_secs(30);
/// Time until an installation that lacked permissions is tried again: no change shows that they were granted.
const PERMISSION_DELAY: SignedDuration = SignedDuration::from_mins(1);

/// Reasons of failures that depend on the OperatorGroup alone.
const GROUP_REASONS: [&str; 4] =
    ["NoTargetNamespaces", "NoOperatorGroup", "TooManyOperatorGroups", "UnsupportedOperatorGroup"];
/// Reasons of ClusterServiceVersions that are not copied to target namespaces.
const UNCOPIABLE_REASONS: [&str; 8] = [
    "InvalidInstallModes",
    "NoTargetNamespaces",
    "UnsupportedOperatorGroup",
    "NoOperatorGroup",
    "TooManyOperatorGroups",
    "InterOperatorGroupOwnerConflict",
    "CannotModifyStaticOperatorGroupProvidedAPIs",
    "Copied",
];

/// Returns true if a ClusterServiceVersion with this reason is copied to target namespaces.
pub(super) fn is_copiable(reason: &str) -> bool {
    !UNCOPIABLE_REASONS.contains(&reason)
}

/// Observations that determine the next phase.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) now: Timestamp,
    pub(super) upgrade_strategy: UpgradeStrategy,
    /// The ClusterServiceVersion that this one replaces, if it exists.
    pub(super) replaced: Option<&'a ClusterServiceVersion>,
    /// The one that replaces this one.
    pub(super) replacement: Option<&'a ClusterServiceVersion>,
    /// The last one of the chain of replacements.
    pub(super) newest: Option<&'a ClusterServiceVersion>,
    /// The reason why the operator that is replaced cannot be upgraded.
    pub(super) hold: Option<String>,
    /// Requirements, and whether all are met.
    pub(super) requirements: (bool, Vec<RequirementStatus>),
    /// A conflict with another ClusterServiceVersion about a CRD or an APIService.
    pub(super) owner_conflict: Option<String>,
    /// An error of the install strategy.
    pub(super) invalid_strategy: Option<String>,
    /// A webhook that must not be installed.
    pub(super) invalid_webhook: Option<String>,
    /// True if a serving certificate is missing or has to be replaced.
    pub(super) certificate_due: bool,
    pub(super) health: Health,
    pub(super) api_services_available: bool,
    pub(super) webhooks_installed: bool,
}

/// The next step of a ClusterServiceVersion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for a change, or for some time.
    Wait(Option<Duration>),
    /// Change the phase.
    Enter(Phase, &'static str, String),
    /// Apply the objects of the operator.
    Install,
    /// Apply the Deployments again without a change of the phase, with growing delays.
    InstallAgain,
    /// Delete the ClusterServiceVersion.
    Delete,
}

impl Step {
    fn enter(phase: Phase, reason: &'static str, message: impl Into<String>) -> Self {
        Self::Enter(phase, reason, message.into())
    }
}

/// Returns the next step. Its group, install modes and provided APIs have been checked.
pub(super) fn next(csv: &ClusterServiceVersion, facts: &Facts<'_>) -> Step {
    let step = match csv.status.phase {
        Phase::None | Phase::Unknown => {
            Step::enter(Phase::Pending, "RequirementsUnknown", "requirements not yet checked")
        }
        Phase::Pending => pending(csv, facts),
        Phase::InstallReady => Step::Install,
        Phase::Installing => installing(csv, facts),
        Phase::Succeeded => succeeded(facts),
        Phase::Failed => failed(csv, facts),
        Phase::Replacing => replacing(facts),
        Phase::Deleting => Step::Delete,
    };
    match step {
        Step::Enter(phase, reason, message) if is_current(csv, phase, reason, &message) => {
            Step::Wait(remaining(csv, facts))
        }
        step => step,
    }
}

fn is_current(csv: &ClusterServiceVersion, phase: Phase, reason: &str, message: &str) -> bool {
    let status = &csv.status;
    status.phase == phase && status.reason == reason && status.message == message
}

fn pending(csv: &ClusterServiceVersion, facts: &Facts<'_>) -> Step {
    if let Some(why) = &facts.hold {
        let message = format!("operator is not upgradeable: {why}");
        return Step::enter(Phase::Pending, "OperatorConditionNotUpgradeable", message);
    }
    if !facts.requirements.0 {
        // The other version may have taken them, as a rollback takes a version of a CRD.
        let has_run = csv.status.conditions.iter().any(|entry| entry.phase == Phase::Succeeded);
        return match facts.replacement.filter(|_| has_run) {
            Some(replacement) => being_replaced(replacement),
            None => Step::enter(Phase::Pending, "RequirementsNotMet", "one or more requirements couldn't be found"),
        };
    }
    if let Some(failure) = invalid(facts) {
        return failure;
    }
    // The replaced one enters its phase when it observes this one.
    if facts.replaced.is_some_and(|replaced| replaced.status.phase != Phase::Replacing) {
        return Step::Wait(None);
    }
    Step::enter(Phase::InstallReady, "AllRequirementsMet", "all requirements found, attempting install")
}

fn being_replaced(replacement: &ClusterServiceVersion) -> Step {
    let message = format!("being replaced by csv: {}", replacement.name_any());
    Step::enter(Phase::Replacing, "BeingReplaced", message)
}

/// Returns the failure of a ClusterServiceVersion that must not be installed.
fn invalid(facts: &Facts<'_>) -> Option<Step> {
    if let Some(why) = &facts.invalid_webhook {
        return Some(Step::enter(Phase::Failed, "InvalidWebhookDescription", why.clone()));
    }
    if let Some(why) = &facts.invalid_strategy {
        return Some(Step::enter(Phase::Failed, "InvalidInstallStrategy", format!("install strategy invalid: {why}")));
    }
    facts.owner_conflict.clone().map(|why| Step::enter(Phase::Failed, "OwnerConflict", why))
}

fn installing(csv: &ClusterServiceVersion, facts: &Facts<'_>) -> Step {
    let step = installed(facts, Phase::Installing, "InstallWaiting");
    let is_waiting = matches!(&step, Step::Enter(Phase::Installing, ..));
    let is_again = matches!(&step, Step::Enter(Phase::InstallReady, ..)) && was_installed_again(csv);
    if (is_waiting || is_again) && remaining(csv, facts).is_some_and(|time| time.is_zero()) {
        return Step::enter(Phase::Failed, "InstallCheckFailed", "install timeout");
    }
    if is_again { Step::InstallAgain } else { step }
}

/// Returns true if a difference was already found during the installation and persists, because another client changes
/// the Deployments. Without this check, the phases would alternate without delay.
fn was_installed_again(csv: &ClusterServiceVersion) -> bool {
    let last = csv.status.conditions.iter().rfind(|entry| entry.phase == Phase::InstallReady);
    last.is_some_and(|entry| entry.reason == "InstallWaiting")
}

fn succeeded(facts: &Facts<'_>) -> Step {
    if let Some(replacement) = facts.replacement {
        return being_replaced(replacement);
    }
    if facts.certificate_due {
        return Step::enter(Phase::Pending, "NeedsCertRotation", "CSV owns resources that require a cert refresh");
    }
    if !facts.requirements.0 {
        return Step::enter(Phase::Failed, "RequirementsNotMet", "requirements no longer met");
    }
    installed(facts, Phase::Failed, "ComponentUnhealthy")
}

fn failed(csv: &ClusterServiceVersion, facts: &Facts<'_>) -> Step {
    if let Some(replacement) = facts.replacement.filter(|_| facts.upgrade_strategy == UpgradeStrategy::FailForward) {
        let name = replacement.name_any();
        let message = format!("Fail Forward is enabled, allowing Failed csv to be replaced by csv: {name}");
        return Step::enter(Phase::Replacing, "BeingReplaced", message);
    }
    let retry = |message: &str| Step::enter(Phase::Pending, "RequirementsUnknown", message);
    match csv.status.reason.as_str() {
        reason if GROUP_REASONS.contains(&reason) => return retry("InstallModes now support target namespaces"),
        "InterOperatorGroupOwnerConflict" => {
            return retry("OperatorGroup no longer intersecting with conflicting owner");
        }
        "CannotModifyStaticOperatorGroupProvidedAPIs" => {
            return retry("static OperatorGroup and intersecting groups now support providedAPIs");
        }
        "InstallComponentFailed" | "InstallComponentFailedNoRetry"
            if remaining(csv, facts).is_some_and(|time| !time.is_zero()) =>
        {
            return Step::Wait(remaining(csv, facts));
        }
        "InstallComponentFailedNoRetry" => {
            return Step::enter(Phase::Pending, "DetectedClusterChange", "Cluster resources changed state");
        }
        _ => {}
    }
    if !facts.requirements.0 {
        return Step::enter(Phase::Pending, "RequirementsNotMet", "requirements not met");
    }
    if let Some(failure) = invalid(facts) {
        return failure;
    }
    if facts.certificate_due {
        return Step::enter(Phase::Pending, "NeedsCertRotation", "owned APIServices need cert refresh");
    }
    installed(facts, Phase::Pending, "NeedsReinstall")
}

fn replacing(facts: &Facts<'_>) -> Step {
    // The oldest one of a chain is deleted first, so that the chain stays complete.
    if facts.replaced.is_some() {
        return Step::Wait(None);
    }
    let next = match facts.upgrade_strategy {
        UpgradeStrategy::Default => facts.replacement,
        UpgradeStrategy::FailForward => facts.newest,
    };
    match next {
        Some(next) if next.status.phase == Phase::Succeeded => Step::enter(
            Phase::Deleting,
            "Replaced",
            "has been replaced by a newer ClusterServiceVersion that has successfully installed.",
        ),
        Some(_) => Step::Wait(None),
        None => Step::enter(Phase::Pending, "NeedsReinstall", "the ClusterServiceVersion that replaced it is gone"),
    }
}

/// Returns the step after a check of the components; `phase` and `reason` are those while one is not ready.
fn installed(facts: &Facts<'_>, phase: Phase, reason: &'static str) -> Step {
    match &facts.health {
        Health::Failed(why) => Step::enter(Phase::Failed, "InstallCheckFailed", format!("install failed: {why}")),
        _ if !facts.api_services_available => Step::enter(phase, reason, "apiServices not installed"),
        _ if !facts.webhooks_installed => Step::enter(phase, reason, "webhooks not installed"),
        Health::Outdated(why) => Step::enter(Phase::InstallReady, reason, format!("installing: {why}")),
        Health::Waiting(why) => Step::enter(phase, reason, format!("installing: {why}")),
        Health::Healthy => {
            Step::enter(Phase::Succeeded, "InstallSucceeded", "install strategy completed with no errors")
        }
    }
}

/// Returns the time that the current phase may last; `None` if it has no limit.
fn remaining(csv: &ClusterServiceVersion, facts: &Facts<'_>) -> Option<Duration> {
    let limit = match (csv.status.phase, csv.status.reason.as_str()) {
        (Phase::Installing, _) => INSTALL_TIMEOUT,
        (Phase::Failed, "InstallComponentFailed") => RETRY_DELAY,
        (Phase::Failed, "InstallComponentFailedNoRetry") => PERMISSION_DELAY,
        _ => return None,
    };
    let since = csv.status.last_transition_time.as_ref().map_or(facts.now, |time| time.0);
    let end = flyball_core::time::saturating_add(since, limit);
    Some(end.duration_since(facts.now).try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ClusterServiceVersionCondition;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn facts<'a>(upgrade_strategy: UpgradeStrategy) -> Facts<'a> {
        Facts {
            now: at(0),
            upgrade_strategy,
            replaced: None,
            replacement: None,
            newest: None,
            hold: None,
            requirements: (true, Vec::new()),
            owner_conflict: None,
            invalid_strategy: None,
            invalid_webhook: None,
            certificate_due: false,
            health: Health::Healthy,
            api_services_available: true,
            webhooks_installed: true,
        }
    }

    fn csv(phase: Phase, reason: &str) -> ClusterServiceVersion {
        let mut csv = ClusterServiceVersion::new(Some("demo"), "memo.v1");
        (csv.status.phase, csv.status.reason) = (phase, reason.into());
        csv.status.last_transition_time = Some(Time(at(0)));
        csv
    }

    fn check(phase: Phase, reason: &str, change: impl FnOnce(&mut Facts<'_>), expected: &str) {
        let mut facts = facts(UpgradeStrategy::Default);
        change(&mut facts);
        let text = match next(&csv(phase, reason), &facts) {
            Step::Enter(phase, reason, message) => format!("{phase:?} {reason}: {message}"),
            step => format!("{step:?}"),
        };
        assert_eq!(text, expected, "{phase:?} {reason}");
    }

    #[test]
    fn installation_passes_through_all_phases() {
        check(Phase::None, "", |_| (), "Pending RequirementsUnknown: requirements not yet checked");
        check(
            Phase::Pending,
            "",
            |_| (),
            "InstallReady AllRequirementsMet: all requirements found, attempting install",
        );
        check(Phase::InstallReady, "", |_| (), "Install");
        check(Phase::Installing, "", |_| (), "Succeeded InstallSucceeded: install strategy completed with no errors");
        let waiting = |facts: &mut Facts<'_>| facts.health = Health::Waiting("x".into());
        check(Phase::Installing, "", waiting, "Installing InstallWaiting: installing: x");
        let late = |facts: &mut Facts<'_>| (facts.health, facts.now) = (Health::Waiting("x".into()), at(300));
        check(Phase::Installing, "", late, "Failed InstallCheckFailed: install timeout");
        check(Phase::Failed, "InstallCheckFailed", late, "Pending NeedsReinstall: installing: x");
    }

    #[test]
    fn requirements_and_conflicts_hold_an_installation_back() {
        let unmet = |facts: &mut Facts<'_>| facts.requirements.0 = false;
        check(Phase::Pending, "", unmet, "Pending RequirementsNotMet: one or more requirements couldn't be found");
        check(Phase::Succeeded, "", unmet, "Failed RequirementsNotMet: requirements no longer met");
        check(Phase::Failed, "", unmet, "Pending RequirementsNotMet: requirements not met");
        let conflict = |facts: &mut Facts<'_>| facts.owner_conflict = Some("conflicting CRD owner in namespace".into());
        check(Phase::Pending, "", conflict, "Failed OwnerConflict: conflicting CRD owner in namespace");
        let hold = |facts: &mut Facts<'_>| facts.hold = Some("why".into());
        check(Phase::Pending, "", hold, "Pending OperatorConditionNotUpgradeable: operator is not upgradeable: why");
    }

    #[test]
    fn installation_that_someone_else_changes_keeps_its_phase() {
        let outdated =
            |second| Facts { health: Health::Outdated("x".into()), now: at(second), ..facts(UpgradeStrategy::Default) };
        let mut installing = csv(Phase::Installing, "InstallSucceeded");
        let entered = |phase, reason: &str| ClusterServiceVersionCondition {
            phase,
            reason: reason.into(),
            ..ClusterServiceVersionCondition::default()
        };
        installing.status.conditions =
            vec![entered(Phase::InstallReady, "AllRequirementsMet"), entered(Phase::Installing, "InstallSucceeded")];
        let again = Step::enter(Phase::InstallReady, "InstallWaiting", "installing: x");
        assert_eq!(next(&installing, &outdated(0)), again);
        installing.status.conditions.push(entered(Phase::InstallReady, "InstallWaiting"));
        installing.status.conditions.push(entered(Phase::Installing, "InstallSucceeded"));
        assert_eq!(next(&installing, &outdated(0)), Step::InstallAgain);
        let timeout = Step::enter(Phase::Failed, "InstallCheckFailed", "install timeout");
        assert_eq!(next(&installing, &outdated(300)), timeout);
        assert_eq!(
            next(&installing, &facts(UpgradeStrategy::Default)),
            Step::enter(Phase::Succeeded, "InstallSucceeded", "install strategy completed with no errors")
        );
    }

    #[test]
    fn unhealthy_components_are_installed_again() {
        let waiting = |facts: &mut Facts<'_>| facts.health = Health::Waiting("x".into());
        check(Phase::Succeeded, "", waiting, "Failed ComponentUnhealthy: installing: x");
        check(Phase::Failed, "ComponentUnhealthy", waiting, "Pending NeedsReinstall: installing: x");
        let outdated = |facts: &mut Facts<'_>| facts.health = Health::Outdated("x".into());
        check(Phase::Succeeded, "", outdated, "InstallReady ComponentUnhealthy: installing: x");
        let due = |facts: &mut Facts<'_>| facts.certificate_due = true;
        check(Phase::Succeeded, "", due, "Pending NeedsCertRotation: CSV owns resources that require a cert refresh");
        check(Phase::Failed, "InstallComponentFailed", waiting, "Wait(Some(30s))");
        check(Phase::Failed, "InstallComponentFailedNoRetry", waiting, "Wait(Some(60s))");
        let later = |facts: &mut Facts<'_>| facts.now = at(60);
        let changed = "Pending DetectedClusterChange: Cluster resources changed state";
        check(Phase::Failed, "InstallComponentFailedNoRetry", later, changed);
    }

    #[test]
    fn upgrade_replaces_the_oldest_first() {
        let new = csv(Phase::Succeeded, "");
        let old = csv(Phase::Replacing, "");
        let step =
            next(&csv(Phase::Replacing, ""), &Facts { replacement: Some(&new), ..facts(UpgradeStrategy::Default) });
        assert!(matches!(step, Step::Enter(Phase::Deleting, "Replaced", _)));
        let both = Facts { replacement: Some(&new), replaced: Some(&old), ..facts(UpgradeStrategy::Default) };
        assert_eq!(next(&csv(Phase::Replacing, ""), &both), Step::Wait(None));
        check(
            Phase::Replacing,
            "",
            |_| (),
            "Pending NeedsReinstall: the ClusterServiceVersion that replaced it is gone",
        );
        let step =
            next(&csv(Phase::Succeeded, ""), &Facts { replacement: Some(&new), ..facts(UpgradeStrategy::Default) });
        assert_eq!(step, Step::enter(Phase::Replacing, "BeingReplaced", "being replaced by csv: memo.v1"));
        let unready = csv(Phase::Succeeded, "");
        assert_eq!(
            next(&csv(Phase::Pending, ""), &Facts { replaced: Some(&unready), ..facts(UpgradeStrategy::Default) }),
            Step::Wait(None)
        );
        check(Phase::Deleting, "", |_| (), "Delete");
    }

    #[test]
    fn failed_operator_is_replaced_only_with_fail_forward() {
        let new = csv(Phase::Pending, "");
        let step = |strategy: UpgradeStrategy| {
            let health = Health::Waiting("x".into());
            next(&csv(Phase::Failed, ""), &Facts { replacement: Some(&new), health, ..facts(strategy) })
        };
        assert!(matches!(step(UpgradeStrategy::Default), Step::Enter(Phase::Pending, ..)));
        assert!(matches!(step(UpgradeStrategy::FailForward), Step::Enter(Phase::Replacing, ..)));
    }

    #[test]
    fn causes_that_remain_do_not_return_to_pending() {
        let webhook = |facts: &mut Facts<'_>| facts.invalid_webhook = Some("no".into());
        check(Phase::Failed, "", webhook, "Failed InvalidWebhookDescription: no");
        let mut failed = csv(Phase::Failed, "InvalidWebhookDescription");
        failed.status.message = "no".into();
        let facts = Facts { invalid_webhook: Some("no".into()), ..facts(UpgradeStrategy::Default) };
        assert_eq!(next(&failed, &facts), Step::Wait(None));
    }
}
