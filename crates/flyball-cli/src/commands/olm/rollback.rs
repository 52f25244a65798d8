//! `flyball olm rollback`.

use super::approve;
use super::objects::{self, CatalogArgs, ObjectArgs};
use super::refusal::{Refusal, failure_of, operator_problem, plan_problem};
use super::unread::Unread;
use crate::cluster::connection::{Connection, block_on};
use crate::cluster::safety::{self, BreakingChange};
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::duration::parse_flag;
use crate::error::{Error, Result, ResultExt};
use crate::operator::removal::Resources;
use crate::render::output::Output;
use crate::render::progress::Progress;
use crate::render::terminal::{Style, one_line, paint, print_line};
use clap::Args;
use flyball_lifecycle::api::labels::ROLLBACK;
use flyball_lifecycle::api::{
    ClusterServiceVersion, ClusterServiceVersionPhase as Phase, InstallPlan, InstallPlanPhase, Subscription,
};
use flyball_lifecycle::diagnosis::Snapshot;
use flyball_lifecycle::install::with_conversions;
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::source::CatalogClient;
use flyball_lifecycle::unserved_version;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Roll an operator back to an earlier version, and keep it there
///
/// The rollback is an upgrade in the other direction: the older version replaces the newer one, with its CRDs. It is
/// refused if stored objects would become invalid or be lost, or if custom resources would be left without an operator.
/// An upgrade that has not succeeded is reverted to the version that still runs. `flyball olm pin SUB --remove` lets
/// the Subscription upgrade again.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball olm rollback memo -n demo --dry-run
  flyball olm rollback memo -n demo                      to the version before
  flyball olm rollback memo -n demo --to memo.v1.0.0")]
pub(super) struct RollbackArgs {
    /// Subscription
    subscription: String,
    /// ClusterServiceVersion to install; defaults to the previous one
    #[arg(long, value_name = "CSV")]
    to: Option<String>,
    #[command(flatten)]
    objects: ObjectArgs,
    #[command(flatten)]
    catalogs: CatalogArgs,
    /// Check the rollback without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Timeout for the older version to succeed; 0s does not wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_flag)]
    timeout: Duration,
    /// Print only errors
    #[arg(short, long, conflicts_with = "output")]
    quiet: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result of a rollback.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RollbackReport {
    subscription: String,
    namespace: String,
    from: String,
    to: String,
    /// CRDs that the older version has.
    definitions: Vec<String>,
    /// CRDs that the older version does not have; they stay.
    kept_definitions: Vec<String>,
    dry_run: bool,
    succeeded: bool,
    /// Parts that the user may not read.
    #[serde(skip_serializing_if = "Unread::is_empty")]
    unread: Unread,
}

pub(super) fn cmd_rollback(args: &RollbackArgs) -> Result<()> {
    block_on(async {
        let connection = args.objects.connection.connect().await?;
        let subscription = objects::subscription(&connection, &args.subscription).await?;
        let (snapshot, mut unread) =
            objects::snapshot(&connection, &args.objects.global_namespace, &args.catalogs).await?;
        let current = current(&connection, &snapshot, &subscription)?;
        let target = target(args, &snapshot, &subscription, current)?;
        let manifests = manifests(&args.catalogs, &connection, &snapshot, &subscription, &target).await?;
        let kept = check(&connection, &snapshot, current, &manifests, &mut unread).await?;
        if !args.dry_run {
            start(&connection, &snapshot, &subscription, current, &target).await?;
            if !args.timeout.is_zero() {
                wait(args, &connection, &subscription, &target).await?;
            }
        }
        let report = RollbackReport::new(args, &connection, &subscription, current, &manifests, kept, unread);
        match args.output {
            Some(output) => output.print(&report),
            None => {
                if !args.quiet {
                    print(&report);
                }
                Ok(())
            }
        }
    })
}

pub(super) fn current<'s>(
    connection: &Connection,
    snapshot: &'s Snapshot,
    subscription: &Subscription,
) -> Result<&'s ClusterServiceVersion> {
    let status = &subscription.status;
    let named = |name: &str| snapshot.csvs.iter().find(|csv| csv.name_any() == name);
    // The next version may only be planned.
    named(&status.current_csv).or_else(|| named(&status.installed_csv)).ok_or_else(|| {
        let of = subscription.name_any();
        Error::new(format!("Subscription {}/{of} has no installed version", connection.namespace))
            .hint(format!("find out why: flyball olm why {of} -n {}", connection.namespace))
    })
}

/// Returns the name of the version to install: the one that was replaced, or that of the previous plan.
fn target(
    args: &RollbackArgs,
    snapshot: &Snapshot,
    subscription: &Subscription,
    current: &ClusterServiceVersion,
) -> Result<String> {
    let name = current.name_any();
    let found = args.to.clone().or_else(|| Some(current.spec.replaces.clone()).filter(|name| !name.is_empty()));
    let found = found.or_else(|| {
        let uid = subscription.uid().unwrap_or_default();
        let is_own = |plan: &&InstallPlan| plan.owner_references().iter().any(|owner| owner.uid == uid);
        let mut plans: Vec<&InstallPlan> = snapshot.plans.iter().filter(is_own).collect();
        plans.sort_by_key(|plan| plan.spec.generation);
        let names = plans.iter().rev().flat_map(|plan| &plan.spec.cluster_service_version_names);
        names.filter(|of| **of != name).find(|of| is_of_package(snapshot, subscription, of)).cloned()
    });
    match found {
        Some(found) if found == name => {
            Err(Error::new(format!("{name} is the current version")).hint("pass another one: --to CSV"))
        }
        Some(found) => Ok(found),
        None => Err(Error::new(format!("no version before {name} is known"))
            .hint("pass one of the catalog: --to CSV; list them: flyball olm why SUBSCRIPTION")),
    }
}

fn is_of_package(snapshot: &Snapshot, subscription: &Subscription, name: &str) -> bool {
    objects::content(snapshot, subscription)
        .is_ok_and(|loaded| loaded.content.bundle(&subscription.spec.package, name).is_some())
}

/// Returns the objects of the older version.
pub(super) async fn manifests(
    catalogs: &CatalogArgs,
    connection: &Connection,
    snapshot: &Snapshot,
    subscription: &Subscription,
    target: &str,
) -> Result<Manifests> {
    let loaded = objects::content(snapshot, subscription)?;
    let bundle = objects::bundle(&loaded.content, &subscription.spec.package, target)?;
    if let Some(manifests) = bundle.manifests() {
        return manifests.context(format!("bundle {target} is invalid"));
    }
    let client = catalogs.client();
    // Credentials in Secrets of the cluster are not read: those of this machine are used.
    let what = || format!("cannot read bundle {target} in {}", connection.namespace);
    client.manifests(bundle, &[]).await.context(what())
}

/// Refuses a rollback that loses data; returns the CRDs that the older version does not have.
///
/// If the user may not read custom resources of other namespaces, only those of this one are checked. The manager
/// checks all of them before the first step.
pub(super) async fn check(
    connection: &Connection,
    snapshot: &Snapshot,
    current: &ClusterServiceVersion,
    target: &Manifests,
    unread: &mut Unread,
) -> Result<Vec<String>> {
    const OTHERS: &str = "custom resources of other namespaces: the lifecycle manager checks them before it changes \
                          anything";
    const DEFINITIONS: &str = "the CRDs: the lifecycle manager checks them before it changes anything";
    let own = Some(connection.namespace.as_str());
    let definitions = with_conversions(target.csv(), target.definitions().cloned(), &connection.namespace);
    let changes: Vec<BreakingChange> = match unread.or_none(OTHERS, safety::find(connection, &definitions).await)? {
        Some(changes) => changes,
        None => unread.or_default(DEFINITIONS, safety::find_in(connection, own, &definitions).await)?,
    };
    if !changes.is_empty() {
        let error = Error::new(format!("the rollback would break stored objects:{}", safety::list(&changes)));
        // The others name their remedy.
        return Err(match changes.iter().any(|change| change.object.is_some()) {
            true => error.hint("change or delete these objects first"),
            false => error.hint("then run the rollback again"),
        });
    }
    check_others(connection, snapshot, (current, target), &definitions, unread).await?;
    let has = |name: &str| definitions.iter().any(|definition| definition["metadata"]["name"] == name);
    let mut dropped: Vec<&str> = current.spec.crds.owned.iter().map(|owned| owned.name.as_str()).collect();
    dropped.retain(|name| !has(name));
    dropped.sort_unstable();
    dropped.dedup();
    let objects: Vec<Value> = dropped.iter().map(|name| definition(name)).collect();
    let orphans = match unread.or_none(OTHERS, Resources::count(connection, &objects).await)? {
        Some(orphans) => orphans,
        None => unread.or_default(DEFINITIONS, Resources::count_in(connection, own, &objects).await)?,
    };
    if let Some(orphan) = orphans.iter().find(|resources| resources.count > 0) {
        return Err(Error::new(format!(
            "{} has {} custom resources, for which {} has no controller",
            orphan.definition,
            orphan.count,
            target.name()
        ))
        .hint(format!("delete them first: kubectl delete {} --all -A", orphan.definition)));
    }
    Ok(dropped.into_iter().map(str::to_owned).collect())
}

/// Refuses a rollback whose CRDs no longer serve a version, while other installations use them.
async fn check_others(
    connection: &Connection,
    snapshot: &Snapshot,
    (current, target): (&ClusterServiceVersion, &Manifests),
    definitions: &[Value],
    unread: &mut Unread,
) -> Result<()> {
    const DEFINITIONS: &str = "the CRDs: the lifecycle manager checks them before it changes anything";
    let line = line(snapshot, current, target.name());
    for new in definitions {
        let Some(old) = unread.or_default(DEFINITIONS, connection.find(new).await)? else { continue };
        let Some((version, users)) = unserved_version(&old, new) else { continue };
        let mut others = Vec::new();
        for (namespace, name) in users.into_iter().filter_map(|user| user.split_once('/')) {
            let is_own = namespace == connection.namespace && line.contains(name);
            if !is_own && exists(connection, namespace, name).await? {
                others.push(format!("{namespace}/{name}"));
            }
        }
        if !others.is_empty() {
            let name = old["metadata"]["name"].as_str().unwrap_or_default();
            return Err(Error::new(format!(
                "{name}: the CRD of {} no longer serves version {version}, and was also installed with \
                 ClusterServiceVersion {}",
                target.name(),
                others.join(", ")
            ))
            .hint("uninstall these first: all operators of a cluster share its CRDs"));
        }
    }
    Ok(())
}

/// Returns the versions of this installation: the target, the current version, and those that it replaces.
fn line<'s>(snapshot: &'s Snapshot, current: &'s ClusterServiceVersion, target: &'s str) -> BTreeSet<&'s str> {
    let mut names = BTreeSet::from([target]);
    let mut next = current.metadata.name.as_deref();
    while let Some(name) = next.filter(|name| names.insert(*name)) {
        let csv = snapshot.csvs.iter().find(|csv| csv.metadata.name.as_deref() == Some(name));
        next = csv.map(|csv| csv.spec.replaces.as_str());
    }
    names
}

/// Returns true if a ClusterServiceVersion exists, or may exist in a namespace that the user may not read.
async fn exists(connection: &Connection, namespace: &str, name: &str) -> Result<bool> {
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(connection.client.clone(), namespace);
    match csvs.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(true),
        found => {
            let found = found.context(format!("cannot read ClusterServiceVersion {namespace}/{name}"))?;
            Ok(found.is_some_and(|csv| csv.metadata.deletion_timestamp.is_none()))
        }
    }
}

fn definition(name: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}})
}

/// Requests the rollback from the manager; reverts an upgrade that has not succeeded.
async fn start(
    connection: &Connection,
    snapshot: &Snapshot,
    subscription: &Subscription,
    current: &ClusterServiceVersion,
    target: &str,
) -> Result<()> {
    let annotation = json!({"metadata": {"annotations": {ROLLBACK: target}}});
    objects::patch::<Subscription>(connection, &subscription.name_any(), &annotation).await?;
    let exists = snapshot.csvs.iter().any(|csv| csv.name_any() == target && csv.status.phase != Phase::Deleting);
    if !exists {
        return Ok(());
    }
    // The older version still exists: it is installed again when those that replace it are gone.
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let mut newer = Some(current);
    while let Some(csv) = newer.filter(|csv| csv.name_any() != target) {
        let name = csv.name_any();
        match csvs.delete(&name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted.context(format!("cannot delete ClusterServiceVersion {name}"))?),
        }
        newer = snapshot.csvs.iter().find(|other| other.name_any() == csv.spec.replaces);
    }
    Ok(())
}

/// Waits until the older version has succeeded. A plan that waits for approval is approved: the user requested it.
async fn wait(args: &RollbackArgs, connection: &Connection, subscription: &Subscription, target: &str) -> Result<()> {
    let mut progress = Progress::new(&format!("waiting for {target}"));
    let name = subscription.name_any();
    let (mut approved, mut refusal) = (BTreeSet::new(), Refusal::default());
    let namespace = &connection.namespace;
    let ended = poll_until(args.timeout, POLL_INTERVAL, async || {
        let plans: Vec<InstallPlan> = objects::list(connection, Some(&connection.namespace)).await?;
        let waits = |plan: &&InstallPlan| {
            plan.status.phase == InstallPlanPhase::RequiresApproval
                && !plan.spec.approved
                && plan.spec.cluster_service_version_names == [target]
        };
        for plan in plans.iter().filter(waits) {
            if approved.insert(plan.name_any()) {
                approve::approve_plan(connection, plan).await?;
            }
        }
        let found: Option<Subscription> = objects::find(connection, &name).await?;
        let is_current = found.as_ref().is_some_and(|found| found.status.installed_csv == target);
        let csv: Option<ClusterServiceVersion> = objects::find(connection, target).await?;
        let problem = plan_problem(&plans, target).or_else(|| operator_problem(csv.as_ref()));
        let problem = problem.or_else(|| resolution_problem(subscription, found.as_ref()));
        if let Some(problem) = &problem {
            progress.show(problem.clone());
            if refusal.persists(problem, Instant::now()) {
                return Err(Error::new(format!("{target} cannot be installed: {problem}"))
                    .hint("remove the cause: the lifecycle manager tries again by itself")
                    .hint(format!("or give the rollback up: flyball olm pin {name} -n {namespace} --remove")));
            }
            return Ok(Err(problem.clone()));
        }
        refusal.clear();
        Ok(match csv {
            Some(csv) if is_current && csv.status.phase == Phase::Succeeded => Ok(()),
            Some(csv) => {
                progress.show(format!("{target}: {:?}: {}", csv.status.phase, csv.status.message));
                Err(format!("{:?}, {}: {}", csv.status.phase, csv.status.reason, csv.status.message))
            }
            None => Err(match found.as_ref().and_then(failure_of) {
                Some(failure) => format!("it does not exist yet: {failure}"),
                None => "it does not exist yet".to_owned(),
            }),
        })
    });
    ended.await?.map_err(|state| {
        Error::new(format!("{target} did not succeed after {} s: {state}", args.timeout.as_secs()))
            .hint(format!("find out why: flyball olm why {name} -n {namespace}"))
    })
}

/// Returns the reason why the Subscription selects no version. A failure from before the rollback does not count: the
/// manager may not have noticed the rollback yet.
fn resolution_problem(before: &Subscription, now: Option<&Subscription>) -> Option<String> {
    let failure = failure_of(now?)?;
    (failure_of(before).as_ref() != Some(&failure)).then_some(failure)
}

impl RollbackReport {
    fn new(
        args: &RollbackArgs,
        connection: &Connection,
        subscription: &Subscription,
        current: &ClusterServiceVersion,
        target: &Manifests,
        kept_definitions: Vec<String>,
        unread: Unread,
    ) -> Self {
        let definitions = target.definitions().filter_map(|of| of["metadata"]["name"].as_str().map(str::to_owned));
        Self {
            subscription: subscription.name_any(),
            namespace: connection.namespace.clone(),
            from: current.name_any(),
            to: target.name().to_owned(),
            definitions: definitions.collect(),
            kept_definitions,
            dry_run: args.dry_run,
            succeeded: !args.dry_run && !args.timeout.is_zero(),
            unread,
        }
    }
}

fn print(report: &RollbackReport) {
    let RollbackReport { namespace, subscription, from, to, .. } = report;
    let state = match (report.dry_run, report.succeeded) {
        (true, _) if report.unread.is_empty() => "can be rolled back (dry run)".to_owned(),
        (true, _) => "can be rolled back, as far as you may read the cluster (dry run)".to_owned(),
        (false, true) => paint(Style::Good, "rolled back"),
        (false, false) => "is being rolled back".to_owned(),
    };
    let (from, to) = (one_line(from), one_line(to));
    print_line(&format!("Subscription {namespace}/{subscription} {state} from {from} to {to}"));
    for name in &report.kept_definitions {
        print_line(&format!("  {} stays: {to} does not have it, and it has no custom resources", one_line(name)));
    }
    report.unread.print();
    print_line(&format!("  to upgrade again: flyball olm pin {subscription} -n {namespace} --remove"));
}
