//! Reasons why a ClusterServiceVersion is not ready.

use super::Snapshot;
use super::cause::{Cause, Severity, with_reason};
use crate::api::{
    ClusterServiceVersion, ClusterServiceVersionPhase as Phase, InstallModeType, OperatorCondition, RequirementState,
    RequirementStatus,
};
use kube::ResourceExt;

/// Explains a ClusterServiceVersion; `None` if there is none of this name.
pub fn diagnose_csv(snapshot: &Snapshot, name: &str) -> Option<Vec<Cause>> {
    let csv = snapshot.csvs.iter().find(|csv| csv.name_any() == name)?;
    Some(causes(csv, snapshot))
}

/// Returns the effect of the state of a ClusterServiceVersion; `None` if it has succeeded.
pub fn severity(csv: &ClusterServiceVersion) -> Option<Severity> {
    match (csv.status.phase, csv.status.reason.as_str()) {
        (Phase::Succeeded, _) => None,
        (Phase::Replacing | Phase::Deleting, _) => Some(Severity::Notice),
        (Phase::Failed, _) | (Phase::Pending, "RequirementsNotMet") => Some(Severity::Blocking),
        (Phase::None | Phase::Pending | Phase::InstallReady | Phase::Installing | Phase::Unknown, _) => {
            Some(Severity::Waiting)
        }
    }
}

/// Returns the reasons why a ClusterServiceVersion is not ready; none if it is.
pub(super) fn causes(csv: &ClusterServiceVersion, snapshot: &Snapshot) -> Vec<Cause> {
    let (name, namespace) = (csv.name_any(), csv.namespace().unwrap_or_default());
    let object = format!("ClusterServiceVersion {namespace}/{name}");
    let status = &csv.status;
    let message = format!("{:?}, {}", status.phase, with_reason(&status.reason, &status.message));
    if let Some(original) = csv.copied_from() {
        let text = format!("it is a copy of the one in namespace {original}");
        return vec![
            Cause::new(Severity::Notice, object, text).remedy(format!("flyball olm why {name} -n {original}")),
        ];
    }
    let Some(severity) = severity(csv) else { return Vec::new() };
    let cause = Cause::new(severity, object.clone(), message).field("status");
    match (status.phase, status.reason.as_str()) {
        (Phase::None, _) => {
            let text = "the manager has not processed it yet";
            vec![Cause::new(severity, object, text).remedy("flyball olm status")]
        }
        (Phase::Pending, "OperatorConditionNotUpgradeable") => vec![hold(csv, snapshot, cause)],
        (Phase::Pending, "RequirementsNotMet") => {
            let unmet = status.requirement_status.iter().filter_map(|requirement| unmet(csv, requirement));
            let causes: Vec<Cause> = unmet.collect();
            if causes.is_empty() { vec![cause] } else { causes }
        }
        (Phase::Failed, reason) => vec![cause.remedy(remedy(reason, csv, snapshot))],
        (Phase::Installing, _) => {
            vec![cause.remedy(format!("see its pods: kubectl get deployments,pods -n {namespace}"))]
        }
        _ => vec![cause],
    }
}

/// Returns the OperatorCondition by which the replaced version holds its upgrade back.
fn hold(csv: &ClusterServiceVersion, snapshot: &Snapshot, otherwise: Cause) -> Cause {
    let is_it = |condition: &&OperatorCondition| condition.name_any() == csv.spec.replaces;
    let Some(found) = snapshot.conditions.iter().find(is_it) else { return otherwise };
    let says_no = |list: &[flyball::Condition]| {
        list.iter().find(|condition| condition.kind == "Upgradeable" && condition.status != "True").cloned()
    };
    let (overridden, reported) = (says_no(&found.spec.overrides), says_no(&found.spec.conditions));
    let field = if overridden.is_some() { "spec.overrides" } else { "spec.conditions" };
    let why = overridden.or(reported).map(|condition| with_reason(&condition.reason, &condition.message));
    let object = format!("OperatorCondition {}/{}", csv.namespace().unwrap_or_default(), found.name_any());
    let why = why.filter(|why| !why.is_empty()).map(|why| format!(": {why}")).unwrap_or_default();
    let message = format!("{} is not upgradeable to {}{why}", csv.spec.replaces, csv.name_any());
    Cause::new(Severity::Waiting, object, message)
        .field(field)
        .remedy("wait for the operator, or add an override of type Upgradeable with status \"True\" to spec.overrides")
}

/// Returns the requirement as a cause if it is not met.
fn unmet(csv: &ClusterServiceVersion, requirement: &RequirementStatus) -> Option<Cause> {
    let RequirementStatus { kind, name, status, message, .. } = requirement;
    if matches!(status, RequirementState::Present | RequirementState::DeploymentFound | RequirementState::Satisfied) {
        return None;
    }
    let is_owned = csv.spec.crds.owned.iter().any(|owned| owned.name == *name);
    let missing: Vec<&str> = requirement
        .dependents
        .iter()
        .filter(|part| part.status == RequirementState::NotSatisfied)
        .map(|part| part.message.as_str())
        .collect();
    let mut message = if message.is_empty() { format!("{status:?}") } else { message.clone() };
    if !missing.is_empty() {
        message = format!("{message}; missing: {}", missing.join(", "));
    }
    let remedy = match kind.as_str() {
        "CustomResourceDefinition" if is_owned => {
            "the bundle owns it: the InstallPlan creates it; delete the plan if the CRD was deleted later".to_owned()
        }
        "CustomResourceDefinition" => format!("install an operator that provides {name}"),
        "ClusterServiceVersion" => "use a version of Kubernetes that the operator supports".to_owned(),
        "ServiceAccount" => "see the events of the ClusterServiceVersion: permissions may be limited by \
                             spec.serviceAccountName of the OperatorGroup"
            .to_owned(),
        "APIService" => format!("check that the server behind {name} runs"),
        _ => String::new(),
    };
    Some(Cause::new(Severity::Blocking, format!("{kind} {name}"), message).remedy(remedy))
}

/// Returns the remedy for a failure.
fn remedy(reason: &str, csv: &ClusterServiceVersion, snapshot: &Snapshot) -> String {
    let namespace = csv.namespace().unwrap_or_default();
    match reason {
        "NoOperatorGroup" => format!("create an OperatorGroup in {namespace}"),
        "TooManyOperatorGroups" => format!("delete all OperatorGroups of {namespace} but one"),
        "UnsupportedOperatorGroup" => modes(csv, snapshot),
        "NoTargetNamespaces" => "let the selector of the OperatorGroup select a namespace".to_owned(),
        "InterOperatorGroupOwnerConflict" => {
            "another OperatorGroup with a common target namespace provides the same API: uninstall one of the \
             operators, or separate the target namespaces; list them: kubectl get operatorgroups -A -o yaml"
                .to_owned()
        }
        "OwnerConflict" => "uninstall the other operator that owns the CRD or APIService".to_owned(),
        "InstallCheckFailed" | "ComponentUnhealthy" => {
            format!("see its pods: kubectl get deployments,pods -n {namespace}")
        }
        _ => String::new(),
    }
}

/// Returns the change of the OperatorGroup to an install mode that an operator supports.
fn modes(csv: &ClusterServiceVersion, snapshot: &Snapshot) -> String {
    let namespace = csv.namespace().unwrap_or_default();
    let group = snapshot.groups.first().map(ResourceExt::name_any).unwrap_or_default();
    let supported = csv.spec.install_modes.iter().filter(|mode| mode.supported).map(|mode| mode.mode);
    let texts: Vec<String> = supported
        .map(|mode| match mode {
            InstallModeType::OwnNamespace => format!("{mode} (spec.targetNamespaces: [{namespace}])"),
            InstallModeType::SingleNamespace => format!("{mode} (one other namespace)"),
            InstallModeType::MultiNamespace => format!("{mode} (several namespaces)"),
            InstallModeType::AllNamespaces => format!("{mode} (no spec.targetNamespaces and no spec.selector)"),
        })
        .collect();
    match texts.is_empty() {
        true => "the operator supports no install mode: ask its author".to_owned(),
        false => format!("change OperatorGroup {namespace}/{group}: the operator supports {}", texts.join(", ")),
    }
}
