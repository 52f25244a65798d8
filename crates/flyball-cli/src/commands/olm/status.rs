//! `flyball olm status`.

use super::extensions::{self, ExtensionReport};
use super::manager::{self, ManagedCluster, ManagerKind, ManagerState};
use super::objects;
use super::original::OriginalOlm;
use super::pods;
use super::unread::Unread;
use crate::cluster::connection::{Connection, ContextArgs, block_on};
use crate::error::Result;
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, one_line, paint, print_line};
use clap::Args;
use flyball_lifecycle::api::labels::{ROLLBACK, VERSIONS};
use flyball_lifecycle::api::{
    CatalogSource, ClusterServiceVersion, ClusterServiceVersionPhase as Phase, InstallPlan, InstallPlanPhase,
    Subscription, SubscriptionCondition,
};
use flyball_lifecycle::diagnosis::{Severity, severity};
use kube::ResourceExt;
use serde::Serialize;
use std::process::ExitCode;

/// Conditions of a Subscription that are problems while they are true.
const PROBLEMS: [&str; 6] = [
    "ResolutionFailed",
    "CatalogSourcesUnhealthy",
    "InstallPlanFailed",
    "InstallPlanMissing",
    "BundleUnpackFailed",
    "UpgradePathMissing",
];

/// Limit of the versions whose pods are read.
const MAX_EXAMINED: usize = 32;

/// Print the lifecycle manager, its catalogs and operators, and their problems; exits with 1 if there are any
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball olm status
  flyball olm status -n demo
  flyball olm status -o json")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    connection: ContextArgs,
    /// Namespace of the operators; defaults to all
    #[arg(short, long)]
    namespace: Option<String>,
    /// Namespace of the manager
    #[arg(long, value_name = "NAMESPACE", default_value = super::NAMESPACE)]
    manager_namespace: String,
    /// Print nothing
    #[arg(short, long, conflicts_with = "output")]
    quiet: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// The state of everything.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    healthy: bool,
    manager: ManagerState,
    /// The parts of the original OLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<OriginalOlm>,
    catalogs: Vec<CatalogReport>,
    subscriptions: Vec<SubscriptionReport>,
    csvs: Vec<CsvReport>,
    /// InstallPlans that are not complete.
    plans: Vec<PlanReport>,
    /// ClusterCatalogs and ClusterExtensions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<ExtensionReport>,
    /// Parts that the user may not read.
    #[serde(skip_serializing_if = "Unread::is_empty")]
    unread: Unread,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CatalogReport {
    namespace: String,
    name: String,
    priority: i64,
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    problem: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubscriptionReport {
    namespace: String,
    name: String,
    package: String,
    channel: String,
    installed: String,
    state: String,
    /// The versions that it may install.
    #[serde(skip_serializing_if = "String::is_empty")]
    pin: String,
    /// The version that it was rolled back to.
    #[serde(skip_serializing_if = "String::is_empty")]
    rollback: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    problem: String,
    /// False if it only waits.
    is_problem: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CsvReport {
    namespace: String,
    name: String,
    version: String,
    phase: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    problem: String,
    /// False if it only waits, such as for its pods.
    is_problem: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanReport {
    namespace: String,
    name: String,
    phase: String,
    operators: Vec<String>,
    /// The reason why it is not complete.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// False for a plan that waits for approval.
    is_problem: bool,
}

pub(super) fn cmd_status(args: &StatusArgs) -> Result<ExitCode> {
    block_on(async {
        let place = ManagedCluster::connect(&args.connection).await?;
        let status = read(&place, args).await?;
        match args.output {
            Some(output) => output.print(&status)?,
            None if args.quiet => {}
            None => {
                lines(&status).iter().for_each(|line| print_line(line));
                status.unread.print();
            }
        }
        Ok(ExitCode::from(u8::from(!status.healthy)))
    })
}

async fn read(place: &ManagedCluster, args: &StatusArgs) -> Result<Status> {
    let mut unread = Unread::default();
    let of = &args.manager_namespace;
    let part = format!("the Deployment of the lifecycle manager in namespace {of}: its state is unknown");
    let manager = unread.or_none(&part, manager::state(place, of).await)?.unwrap_or_else(ManagerState::unknown);
    let original = OriginalOlm::find_readable(place, &mut unread).await?.filter(|original| !original.is_absent());
    let manager = alone(manager, original.as_ref());
    let (connection, namespace) = (&place.connection, args.namespace.as_deref());
    // The catalogs of the manager's namespace are those of all.
    let mut sources: Vec<CatalogSource> = match objects::list(connection, namespace).await {
        Err(error) if error.is_forbidden() && namespace.is_none() => {
            return Err(error.hint("pass a namespace that you may read: -n NAMESPACE"));
        }
        listed => listed?,
    };
    if namespace.is_some_and(|namespace| namespace != args.manager_namespace) {
        let part = format!("the CatalogSources in namespace {of}: their state is unknown");
        sources.extend(unread.or_default(&part, objects::list(connection, Some(of)).await)?);
    }
    let catalogs: Vec<CatalogReport> = sources.iter().map(catalog).collect();
    let found: Vec<Subscription> = objects::list(connection, namespace).await?;
    let mut subscriptions: Vec<SubscriptionReport> = found.iter().map(subscription).collect();
    let found: Vec<ClusterServiceVersion> = objects::list(connection, namespace).await?;
    let originals: Vec<&ClusterServiceVersion> = found.iter().filter(|csv| csv.copied_from().is_none()).collect();
    let mut csvs: Vec<CsvReport> = originals.iter().map(|of| csv(of)).collect();
    add_pod_problems(connection, &originals, &mut csvs, &mut unread).await?;
    subscriptions.iter_mut().for_each(|of| add_failure(of, &csvs));
    let found: Vec<InstallPlan> = objects::list(connection, namespace).await?;
    let unfinished = found.iter().filter(|plan| plan.status.phase != InstallPlanPhase::Complete);
    let plans: Vec<PlanReport> = unfinished.map(plan).collect();
    let extensions = extensions::read(connection, namespace, &mut unread).await?;
    let healthy = (manager.ready || manager.is_unknown())
        && !has_two_managers(&manager, original.as_ref())
        && catalogs.iter().all(|of| of.problem.is_empty())
        && !subscriptions.iter().any(|of| of.is_problem)
        && !csvs.iter().any(|of| of.is_problem)
        && !plans.iter().any(|of| of.is_problem)
        && extensions.iter().all(|of| of.problem.is_empty());
    Ok(Status { healthy, manager, original, catalogs, subscriptions, csvs, plans, extensions, unread })
}

/// Returns the state of OLM if there is no other manager.
fn alone(manager: ManagerState, original: Option<&OriginalOlm>) -> ManagerState {
    match (manager.kind, original.and_then(OriginalOlm::controller)) {
        (ManagerKind::None, Some(controller)) => controller.clone(),
        _ => manager,
    }
}

/// Returns true if OLM and a lifecycle manager act on the same objects.
fn has_two_managers(manager: &ManagerState, original: Option<&OriginalOlm>) -> bool {
    let is_ours = matches!(manager.kind, ManagerKind::Process | ManagerKind::Deployment);
    is_ours && original.is_some_and(OriginalOlm::is_active)
}

/// Returns the remedy for a missing manager, and the lines about the original OLM.
fn original_lines(status: &Status) -> Vec<String> {
    let is_missing = status.manager.kind == ManagerKind::None;
    let mut lines = Vec::new();
    match &status.original {
        Some(original) if has_two_managers(&status.manager, Some(original)) => {
            let problem = "it also runs: two managers install and remove the same operators";
            let place = one_line(&format!("original OLM ({})", original.names())).into_owned();
            lines.push(format!("{place}: {}", paint(Style::Bad, problem)));
            lines.push(format!("  remedy: stop one of them; OLM: {}", one_line(&original.stop_command())));
        }
        Some(original) if is_missing && original.is_active() => {
            let remedy = format!(
                "  remedy: OLM is there in part ({}): stop it: {}; then: flyball olm install",
                original.names(),
                original.stop_command()
            );
            lines.push(one_line(&remedy).into_owned());
        }
        _ if is_missing => lines.push("  remedy: flyball olm install".to_owned()),
        _ => {}
    }
    let remark = status.original.as_ref().filter(|_| status.manager.kind != ManagerKind::Olm);
    let remark = remark.and_then(OriginalOlm::package_remark);
    lines.extend(remark.map(|remark| format!("  note: {}", one_line(&remark))));
    lines
}

/// Adds the problems of pods to the versions that wait for them.
async fn add_pod_problems(
    connection: &Connection,
    csvs: &[&ClusterServiceVersion],
    reports: &mut [CsvReport],
    unread: &mut Unread,
) -> Result<()> {
    let waiting = csvs.iter().zip(reports).filter(|(csv, _)| pods::waits_for_pods(csv));
    for (csv, report) in waiting.take(MAX_EXAMINED) {
        let Some(cause) = pods::cause(&connection.client, csv, unread).await? else { continue };
        report.problem = format!("{}: {}", cause.object, cause.message);
        report.is_problem = true;
    }
    Ok(())
}

/// Adds the failure of the installed version to a Subscription, which may have no problem of its own.
fn add_failure(subscription: &mut SubscriptionReport, csvs: &[CsvReport]) {
    let is_its = |of: &&CsvReport| of.namespace == subscription.namespace && of.name == subscription.installed;
    let failed = csvs.iter().filter(|of| of.is_problem).find(is_its);
    if let Some(failed) = failed.filter(|_| !subscription.is_problem) {
        subscription.problem = format!("{} is {}: {}", failed.name, failed.phase, failed.problem);
        subscription.is_problem = true;
    }
}

fn catalog(source: &CatalogSource) -> CatalogReport {
    let state = source.status.connection_state.as_ref().map(|state| state.last_observed_state.clone());
    let state = state.filter(|state| !state.is_empty()).unwrap_or_else(|| "UNKNOWN".to_owned());
    let problem = match (&*state, source.status.message.is_empty()) {
        ("READY", true) => String::new(),
        (_, false) => source.status.message.clone(),
        (_, true) => "it is not connected".to_owned(),
    };
    CatalogReport {
        namespace: source.namespace().unwrap_or_default(),
        name: source.name_any(),
        priority: source.spec.priority,
        state,
        problem,
    }
}

fn subscription(subscription: &Subscription) -> SubscriptionReport {
    let is_problem =
        |condition: &&SubscriptionCondition| condition.status == "True" && PROBLEMS.contains(&condition.kind.as_str());
    let conditions = &subscription.status.conditions;
    // The order of the list is that of severity.
    let first =
        PROBLEMS.iter().find_map(|kind| conditions.iter().filter(is_problem).find(|condition| condition.kind == *kind));
    let none = subscription.status.current_csv.is_empty();
    let annotation = |name: &str| subscription.annotations().get(name).cloned().unwrap_or_default();
    let problem = first.map(|condition| format!("{}: {}", condition.kind, condition.message));
    SubscriptionReport {
        namespace: subscription.namespace().unwrap_or_default(),
        name: subscription.name_any(),
        package: subscription.spec.package.clone(),
        channel: subscription.spec.channel.clone(),
        installed: subscription.status.installed_csv.clone(),
        state: format!("{:?}", subscription.status.state),
        pin: annotation(VERSIONS),
        rollback: annotation(ROLLBACK),
        is_problem: problem.is_some(),
        problem: problem.or_else(|| none.then(|| "nothing was resolved yet".to_owned())).unwrap_or_default(),
    }
}

fn csv(csv: &ClusterServiceVersion) -> CsvReport {
    let status = &csv.status;
    let problem = match status.phase {
        Phase::Succeeded | Phase::Replacing | Phase::Deleting => String::new(),
        _ => {
            let parts = [status.reason.as_str(), status.message.as_str()];
            parts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
        }
    };
    CsvReport {
        namespace: csv.namespace().unwrap_or_default(),
        name: csv.name_any(),
        version: csv.spec.version.clone(),
        phase: format!("{:?}", status.phase),
        problem,
        is_problem: severity(csv) == Some(Severity::Blocking),
    }
}

fn plan(plan: &InstallPlan) -> PlanReport {
    PlanReport {
        namespace: plan.namespace().unwrap_or_default(),
        name: plan.name_any(),
        phase: format!("{:?}", plan.status.phase),
        operators: plan.spec.cluster_service_version_names.clone(),
        message: plan.status.message.clone(),
        // The manager tries a plan again for a minute before it is Failed.
        is_problem: match plan.status.phase {
            InstallPlanPhase::Failed => true,
            InstallPlanPhase::Installing => !plan.status.message.is_empty(),
            _ => false,
        },
    }
}

/// Formats the state for a terminal.
fn lines(status: &Status) -> Vec<String> {
    let ManagerState { kind, name, ready, problem } = &status.manager;
    let state = match status.manager.is_unknown() {
        true => paint(Style::Faint, "unknown"),
        false if *ready => paint(Style::Good, "ready"),
        false => paint(Style::Bad, &one_line(problem)),
    };
    let place = if name.is_empty() { String::new() } else { format!(" ({kind} {name})") };
    let mut lines = vec![format!("lifecycle manager{}: {state}", one_line(&place))];
    lines.extend(original_lines(status));
    lines.extend(table(&["CATALOG", "NAMESPACE", "PRIORITY", "STATE", "PROBLEM"], &status.catalogs, |of| {
        (vec![of.name.clone(), of.namespace.clone(), of.priority.to_string(), of.state.clone()], of.problem.as_str())
    }));
    lines.extend(table(
        &["SUBSCRIPTION", "NAMESPACE", "PACKAGE", "CHANNEL", "INSTALLED", "STATE", "PROBLEM"],
        &status.subscriptions,
        |of| {
            let SubscriptionReport { namespace, name, package, channel, installed, state, .. } = of;
            ([name, namespace, package, channel, installed, state].map(Clone::clone).to_vec(), of.problem.as_str())
        },
    ));
    lines.extend(table(&["CSV", "NAMESPACE", "VERSION", "PHASE", "PROBLEM"], &status.csvs, |of| {
        (vec![of.name.clone(), of.namespace.clone(), of.version.clone(), of.phase.clone()], of.problem.as_str())
    }));
    lines.extend(table(&["INSTALLPLAN", "NAMESPACE", "PHASE", "OPERATORS", "PROBLEM"], &status.plans, |of| {
        (vec![of.name.clone(), of.namespace.clone(), of.phase.clone(), of.operators.join(", ")], of.message.as_str())
    }));
    lines.extend(table(&["EXTENSION", "KIND", "SOURCE", "INSTALLED", "STATE", "PROBLEM"], &status.extensions, |of| {
        let ExtensionReport { kind, name, source, installed, state, .. } = of;
        (vec![name.clone(), (*kind).to_owned(), source.clone(), installed.clone(), state.clone()], of.problem.as_str())
    }));
    lines.extend(remarks(status).iter().map(|remark| one_line(remark).into_owned()));
    lines
}

/// Returns remarks about pins and rollbacks, and the commands for what needs attention.
fn remarks(status: &Status) -> Vec<String> {
    let mut remarks = Vec::new();
    for report in &status.subscriptions {
        let SubscriptionReport { namespace, name, pin, .. } = report;
        if !pin.is_empty() {
            remarks.push(format!("Subscription {namespace}/{name} installs only versions {pin}"));
        }
        remarks.extend(rollback_remark(report));
    }
    let waiting = status.plans.iter().filter(|of| of.phase == "RequiresApproval");
    for PlanReport { namespace, name, .. } in waiting {
        remarks.push(format!("InstallPlan {namespace}/{name} waits: flyball olm approve {name} -n {namespace}"));
    }
    for SubscriptionReport { namespace, name, .. } in status.subscriptions.iter().filter(|of| !of.problem.is_empty()) {
        remarks.push(format!("Subscription {namespace}/{name} has a problem: flyball olm why {name} -n {namespace}"));
    }
    remarks
}

/// Returns the remark about a rollback, which may only be requested.
fn rollback_remark(report: &SubscriptionReport) -> Option<String> {
    let SubscriptionReport { namespace, name, rollback, installed, .. } = report;
    match rollback.trim() {
        "" => None,
        target if target == installed => {
            Some(format!("Subscription {namespace}/{name} stays at {target} after a rollback"))
        }
        target => Some(format!("Subscription {namespace}/{name}: a rollback to {target} is requested")),
    }
}

/// Formats a table whose last column is a problem, below an empty line, unless there are no rows.
fn table<'r, T>(heading: &[&str], rows: &'r [T], cells: impl Fn(&'r T) -> (Vec<String>, &'r str)) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let heading = heading.iter().map(|name| (*name).to_owned()).collect();
    let rows = rows.iter().map(cells).map(|(cells, problem)| {
        let problem = if problem.is_empty() { String::new() } else { paint(Style::Bad, &one_line(problem)) };
        cells.iter().map(|cell| one_line(cell).into_owned()).chain([problem]).collect()
    });
    std::iter::once(String::new()).chain(columns(std::iter::once(heading).chain(rows).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn waiting_is_no_problem_and_failing_is_one() {
        let check = |status: Value, expected: bool| {
            let found: InstallPlan = serde_json::from_value(json!({
                "metadata": {"name": "install-1"}, "spec": {"approval": "Manual"}, "status": status,
            }))
            .unwrap();
            assert_eq!(plan(&found).is_problem, expected, "{status}");
        };
        check(json!({"phase": "RequiresApproval"}), false);
        check(json!({"phase": "Installing"}), false);
        check(json!({"phase": "Installing", "message": "retrying execution due to error: it is refused"}), true);
        check(json!({"phase": "Failed", "message": "it is refused"}), true);
        let check = |phase: &str, reason: &str, expected: bool| {
            let found: ClusterServiceVersion = serde_json::from_value(json!({
                "metadata": {"name": "memo.v1"}, "status": {"phase": phase, "reason": reason},
            }))
            .unwrap();
            assert_eq!(csv(&found).is_problem, expected, "{phase}");
        };
        check("Succeeded", "InstallSucceeded", false);
        check("Installing", "InstallWaiting", false);
        check("Pending", "RequirementsNotMet", true);
        check("Failed", "NoOperatorGroup", true);
    }

    #[test]
    fn failed_version_is_a_problem_of_its_subscription() {
        let report = |status: Value| {
            let found: Subscription = serde_json::from_value(json!({
                "metadata": {"name": "memo", "namespace": "demo"}, "spec": {}, "status": status,
            }))
            .unwrap();
            subscription(&found)
        };
        let failed: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {"name": "memo.v1", "namespace": "demo"},
            "status": {"phase": "Failed", "reason": "UnsupportedOperatorGroup", "message": "no"},
        }))
        .unwrap();
        let status = json!({"state": "AtLatestKnown", "currentCSV": "memo.v1", "installedCSV": "memo.v1"});
        let mut found = report(status.clone());
        add_failure(&mut found, &[csv(&failed)]);
        assert_eq!((found.is_problem, &*found.problem), (true, "memo.v1 is Failed: UnsupportedOperatorGroup: no"));
        let mut other = report(json!({"state": "AtLatestKnown", "currentCSV": "memo.v2", "installedCSV": "memo.v2"}));
        add_failure(&mut other, &[csv(&failed)]);
        assert!(!other.is_problem);
    }

    #[test]
    fn requested_rollback_is_not_yet_done() {
        let check = |installed: &str, expected: &str| {
            let found: Subscription = serde_json::from_value(json!({
                "metadata": {"name": "memo", "namespace": "demo", "annotations": {ROLLBACK: "memo.v1"}}, "spec": {},
                "status": {"installedCSV": installed},
            }))
            .unwrap();
            assert_eq!(rollback_remark(&subscription(&found)).as_deref(), Some(expected));
        };
        check("memo.v1", "Subscription demo/memo stays at memo.v1 after a rollback");
        check("memo.v2", "Subscription demo/memo: a rollback to memo.v1 is requested");
        check("", "Subscription demo/memo: a rollback to memo.v1 is requested");
    }
}
