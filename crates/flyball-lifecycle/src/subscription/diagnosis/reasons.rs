//! Reasons why a Subscription does not progress, from the objects of its namespace.

use super::cause::{Cause, Severity, with_reason};
use super::{Case, operator};
use crate::api::labels::{CATALOG, ROLLBACK, ROLLOUT_PREFIX, VERSIONS};
use crate::api::{ClusterServiceVersionPhase as Phase, InstallPlan, InstallPlanPhase};
use crate::contents::UNTRUSTED_CONTENT;
use crate::subscription::conditions::{
    BUNDLE_UNPACK_FAILED, BUNDLE_UNPACKING, CATALOG_SOURCES_UNHEALTHY, RESOLUTION_FAILED, ROLLOUT_HELD,
    UPGRADE_PATH_MISSING,
};
use crate::subscription::view::Tracked;
use crate::subscription::{planning, stranded};
use kube::ResourceExt;

/// Prefix of the message of a plan that is tried again, which is that of OLM.
const RETRY_PREFIX: &str = "retrying execution due to error: ";

/// Returns the problems of the OperatorGroup or the CatalogSource.
pub(super) fn of_namespace(case: &Case<'_>, tracked: &Tracked) -> Vec<Cause> {
    let (view, namespace) = (&case.view, &case.view.namespace);
    let mut causes = Vec::new();
    if let Some(problem) = planning::group_problem(view) {
        let remedy = match view.groups.first() {
            Some(group) => format!("kubectl delete operatorgroup -n {namespace} {}", group.name_any()),
            None => format!(
                "create an OperatorGroup in {namespace} with spec.targetNamespaces: [{namespace}], or without it for \
                 all namespaces"
            ),
        };
        causes.push(Cause::new(Severity::Blocking, format!("Namespace {namespace}"), problem).remedy(remedy));
    }
    if view.source_of(&tracked.object).is_none() {
        let spec = &tracked.object.spec;
        let (name, of) = (&spec.source, &spec.source_namespace);
        let is_hidden = case
            .snapshot
            .catalogs
            .iter()
            .any(|(source, _)| source.name_any() == *name && source.namespace().as_ref() == Some(of));
        let message = match is_hidden {
            true => format!(
                "namespace {namespace} does not see CatalogSource {of}/{name}: only catalogs of {namespace} and of \
                 {} are visible",
                case.controller.global_namespace
            ),
            false => format!("CatalogSource {of}/{name} does not exist"),
        };
        let sources: Vec<String> = view
            .sources
            .iter()
            .map(|source| format!("{}/{}", source.namespace().unwrap_or_default(), source.name_any()))
            .collect();
        let remedy = match sources.is_empty() {
            true => "create a CatalogSource".to_owned(),
            false => format!("use one of {}", sources.join(", ")),
        };
        let object = format!("Subscription {namespace}/{}", tracked.name());
        causes.push(Cause::new(Severity::Blocking, object, message).field("spec.source").remedy(remedy));
    }
    causes
}

/// Returns the reason why a catalog cannot be used.
pub(super) fn of_catalog(case: &Case<'_>, tracked: &Tracked, problem: &str) -> Cause {
    let spec = &tracked.object.spec;
    if problem.starts_with("annotation") {
        let object = format!("Subscription {}/{}", case.view.namespace, tracked.name());
        let remedy = format!("correct it, such as {VERSIONS}: '>=1.0.0 <2.0.0', or remove it");
        return Cause::new(Severity::Blocking, object, problem).field("metadata.annotations").remedy(remedy);
    }
    let (name, namespace) = (&spec.source, &spec.source_namespace);
    let source = case.view.source_of(&tracked.object);
    let is_untrusted = source.is_some_and(|source| source.status.reason == UNTRUSTED_CONTENT);
    let is_map = source.is_some_and(|source| matches!(source.spec.source_type.as_str(), "configmap" | "internal"));
    let remedy = match (is_untrusted, is_map) {
        (true, true) => {
            let map = source.map(|source| source.spec.config_map.as_str()).unwrap_or_default();
            format!(
                "a user who may grant permissions checks the content, and runs: kubectl label configmap {map} -n \
                 {namespace} {CATALOG}=true"
            )
        }
        (true, false) => format!(
            "a user who may grant permissions checks the server, and runs: kubectl label catalogsource {name} -n \
             {namespace} {CATALOG}=true"
        ),
        (false, true) => {
            "check spec.configMap and the content of the ConfigMap; the manager tries again by itself".into()
        }
        (false, false) => "check that its address or image can be reached; the manager tries again by itself".into(),
    };
    Cause::new(Severity::Blocking, format!("CatalogSource {namespace}/{name}"), problem).field("spec").remedy(remedy)
}

/// Returns the notice that the catalog cannot be read with the permissions of the user, so that the selection of a
/// version is not explained.
pub(super) fn of_hidden_catalog(tracked: &Tracked, problem: &str) -> Cause {
    let (name, namespace) = (&tracked.object.spec.source, &tracked.object.spec.source_namespace);
    Cause::new(Severity::Notice, format!("CatalogSource {namespace}/{name}"), problem).remedy(format!(
        "pass its content: --catalog {name}=REF; or ask for permission to get catalogsources in namespace {namespace}"
    ))
}

/// Returns the problems that the manager has reported in the conditions of a Subscription, and that do not follow from
/// other objects: those of bundles, and, without the content of its catalog, those of resolution.
pub(super) fn of_conditions(case: &Case<'_>, tracked: &Tracked, is_hidden: bool) -> Vec<Cause> {
    let object = format!("Subscription {}/{}", case.view.namespace, tracked.name());
    let mut kinds = vec![(BUNDLE_UNPACK_FAILED, Severity::Blocking), (BUNDLE_UNPACKING, Severity::Waiting)];
    if is_hidden {
        kinds.extend(
            [RESOLUTION_FAILED, CATALOG_SOURCES_UNHEALTHY, UPGRADE_PATH_MISSING].map(|kind| (kind, Severity::Blocking)),
        );
    }
    let holds = |kind: &str| {
        let mut conditions = tracked.status.conditions.iter();
        conditions.find(|condition| condition.kind == kind && condition.status == "True")
    };
    let cause = |(kind, severity): (&str, Severity)| {
        let condition = holds(kind)?;
        let message = with_reason(&condition.reason, &condition.message);
        let cause = Cause::new(severity, object.clone(), message).field(&format!("status.conditions[{kind}]"));
        Some(if kind == BUNDLE_UNPACK_FAILED { cause.remedy(unpack_remedy(case, tracked)) } else { cause })
    };
    kinds.into_iter().filter_map(cause).collect()
}

fn unpack_remedy(case: &Case<'_>, tracked: &Tracked) -> String {
    let (name, namespace) = (tracked.name(), &case.view.namespace);
    format!(
        "correct the bundle in its catalog; it is read again by itself. Or select a version with another bundle: \
         flyball olm pin {name} VERSION -n {namespace}"
    )
}

/// Returns the reason why the InstallPlan waits or failed.
pub(super) fn of_plan(case: &Case<'_>, tracked: &Tracked) -> Option<Cause> {
    let namespace = &case.view.namespace;
    let Some(plan) = case.view.plan_of(&tracked.status) else {
        let name = tracked.status.install_plan_ref.as_ref()?.name.clone()?;
        let is_installed = case.view.csvs.contains_key(&tracked.status.current_csv);
        return (!is_installed).then(|| {
            Cause::new(
                Severity::Blocking,
                format!("InstallPlan {namespace}/{name}"),
                "it was deleted before it was executed",
            )
            .remedy(format!("delete and create Subscription {} again", tracked.name()))
        });
    };
    let name = plan.name_any();
    let object = format!("InstallPlan {namespace}/{name}");
    let operators = plan.spec.cluster_service_version_names.join(", ");
    match plan.status.phase {
        InstallPlanPhase::RequiresApproval if !plan.spec.approved => Some(
            Cause::new(Severity::Waiting, object, format!("it waits for approval to install {operators}"))
                .field("spec.approved")
                .remedy(format!("flyball olm approve {} -n {namespace}", tracked.name())),
        ),
        InstallPlanPhase::Failed => Some(
            Cause::new(Severity::Blocking, object, failure(plan))
                .field("status")
                .remedy("remove the cause; the plan is tried again by itself, at the latest after a minute"),
        ),
        InstallPlanPhase::Installing if !plan.status.message.is_empty() => {
            let remedy = "remove the cause; the plan is tried again by itself";
            let message = plan.status.message.trim_start_matches(RETRY_PREFIX);
            Some(Cause::new(Severity::Blocking, object, message).field("status").remedy(remedy))
        }
        InstallPlanPhase::None | InstallPlanPhase::Planning | InstallPlanPhase::Installing => {
            Some(Cause::new(Severity::Waiting, object, format!("it is being executed: {operators}")))
        }
        InstallPlanPhase::RequiresApproval | InstallPlanPhase::Complete => None,
    }
}

fn failure(plan: &InstallPlan) -> String {
    let condition = plan.status.conditions.iter().find(|condition| !condition.message.is_empty());
    condition.map_or_else(|| plan.status.message.clone(), |condition| condition.message.clone())
}

/// Returns the reasons why the installed or new version is not ready.
pub(super) fn of_operator(case: &Case<'_>, tracked: &Tracked) -> Vec<Cause> {
    let status = &tracked.status;
    let (namespace, csvs) = (&case.view.namespace, &case.view.csvs);
    let Some(csv) = csvs.get(&status.current_csv) else {
        let was_installed = !status.installed_csv.is_empty() && status.installed_csv == status.current_csv;
        let deleted = was_installed.then(|| {
            let object = format!("ClusterServiceVersion {namespace}/{}", status.current_csv);
            Cause::new(Severity::Blocking, object, "it was deleted; a deleted version is not installed again")
                .remedy(format!("to install it again, delete and create Subscription {}", tracked.name()))
        });
        return deleted.into_iter().collect();
    };
    let mut causes = operator::causes(csv, case.snapshot);
    // The version before it shows whether the operator still runs.
    let replaced = csvs.get(&csv.spec.replaces).filter(|replaced| replaced.status.phase == Phase::Replacing);
    if let Some(replaced) = replaced {
        let object = format!("ClusterServiceVersion {namespace}/{}", replaced.name_any());
        causes.push(Cause::new(Severity::Notice, object, format!("it runs until {} has succeeded", csv.name_any())));
    }
    causes
}

/// Returns the reason why a rollout holds newer versions back, as the manager found it.
pub(super) fn of_rollout(case: &Case<'_>, tracked: &Tracked) -> Option<Cause> {
    let held = tracked.status.conditions.iter().find(|known| known.kind == ROLLOUT_HELD && known.status == "True")?;
    let object = format!("Subscription {}/{}", case.view.namespace, tracked.name());
    let (severity, remedy) = match held.reason.as_str() {
        "InvalidRollout" => (Severity::Blocking, "correct the annotation, or remove it"),
        _ => (Severity::Waiting, "it is checked again every 30 seconds; without the annotation, nothing is held back"),
    };
    let field = format!("metadata.annotations[{ROLLOUT_PREFIX}*]");
    Some(Cause::new(severity, object, held.message.clone()).field(&field).remedy(remedy))
}

/// Returns the reason why the installed version cannot become the newest one of its channel.
pub(super) fn of_upgrade_path(case: &Case<'_>, tracked: &Tracked) -> Option<Cause> {
    let content = case.controller.contents.state(case.view.source_of(&tracked.object)?).content?;
    let problem = stranded::problem(&case.view, tracked, &content)?;
    let object = format!("Subscription {}/{}", case.view.namespace, tracked.name());
    let remedy = "select a channel with an upgrade; otherwise ask the author of the package for one, or delete the \
                  Subscription and its ClusterServiceVersion, and create the Subscription again: custom resources stay";
    Some(Cause::new(Severity::Blocking, object, problem).field("spec.channel").remedy(remedy))
}

/// Returns the annotations that restrict the versions.
pub(super) fn of_pins(case: &Case<'_>, tracked: &Tracked) -> Vec<Cause> {
    let (namespace, name) = (&case.view.namespace, tracked.name());
    let notice = |annotation: &str, text: String| {
        let object = format!("Subscription {namespace}/{name}");
        let remedy = format!("to end this: flyball olm pin {name} -n {namespace} --remove");
        Cause::new(Severity::Notice, object, text).field(&format!("metadata.annotations[{annotation}]")).remedy(remedy)
    };
    let annotations = tracked.object.annotations();
    let versions =
        annotations.get(VERSIONS).map(|range| notice(VERSIONS, format!("only versions {range} are installed")));
    let rollback = annotations.get(ROLLBACK).map(|target| {
        let is_done = tracked.status.installed_csv == target.trim();
        let text = match is_done {
            true => format!("it stays at {target} after a rollback"),
            false => format!("a rollback to {target} is requested"),
        };
        notice(ROLLBACK, text)
    });
    versions.into_iter().chain(rollback).collect()
}
