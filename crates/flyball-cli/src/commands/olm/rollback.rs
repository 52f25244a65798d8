//! `flyball olm rollback`.

use super::objects::{self, CatalogArgs, ObjectArgs};
use crate::cluster::connection::{Connection, block_on};
use crate::cluster::safety::{self, BreakingChange};
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::commands::deploy::parse_wait;
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
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::source::CatalogClient;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

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
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_wait)]
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
}

pub(super) fn cmd_rollback(args: &RollbackArgs) -> Result<()> {
    block_on(async {
        let connection = args.objects.connection.connect().await?;
        let subscription = objects::subscription(&connection, &args.subscription).await?;
        let snapshot = objects::snapshot(&connection, &args.objects.global_namespace, &args.catalogs).await?;
        let current = current(&connection, &snapshot, &subscription)?;
        let target = target(args, &snapshot, &subscription, current)?;
        let manifests = manifests(args, &connection, &snapshot, &subscription, &target).await?;
        let kept = check(&connection, current, &manifests).await?;
        if !args.dry_run {
            start(&connection, &snapshot, &subscription, current, &target).await?;
            if !args.timeout.is_zero() {
                wait(args, &connection, &subscription, &target).await?;
            }
        }
        report(args, &connection, &subscription, current, &manifests, kept)
    })
}

fn current<'s>(
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
    content(snapshot, subscription)
        .is_ok_and(|loaded| loaded.content.bundle(&subscription.spec.package, name).is_some())
}

/// Returns the content of the catalog of a Subscription.
fn content<'s>(snapshot: &'s Snapshot, subscription: &Subscription) -> Result<&'s flyball_lifecycle::source::Loaded> {
    let (name, namespace) = (&subscription.spec.source, &subscription.spec.source_namespace);
    let what = format!("CatalogSource {namespace}/{name}");
    let is_it = |source: &flyball_lifecycle::api::CatalogSource| {
        source.name_any() == *name && source.namespace().as_ref() == Some(namespace)
    };
    let found = snapshot.catalogs.iter().find(|(source, _)| is_it(source));
    let (_, loaded) = found.ok_or_else(|| Error::new(format!("{what} does not exist")))?;
    loaded
        .as_ref()
        .map_err(|error| Error::new(format!("{what}: {error}")).hint(format!("pass its content: --catalog {name}=REF")))
}

/// Returns the objects of the older version.
async fn manifests(
    args: &RollbackArgs,
    connection: &Connection,
    snapshot: &Snapshot,
    subscription: &Subscription,
    target: &str,
) -> Result<Manifests> {
    let loaded = content(snapshot, subscription)?;
    let package = &subscription.spec.package;
    let bundle = loaded.content.bundle(package, target).ok_or_else(|| {
        let known = loaded.content.package(package);
        let names: Vec<&str> = known.iter().flat_map(|package| package.bundles.keys().map(String::as_str)).collect();
        let error = Error::new(format!("package {package} of the catalog has no {target}"));
        if names.is_empty() { error } else { error.hint(format!("it has {}", one_line(&names.join(", ")))) }
    })?;
    if let Some(manifests) = bundle.manifests() {
        return manifests.context(format!("bundle {target} is invalid"));
    }
    let client = args.catalogs.client();
    // Credentials in Secrets of the cluster are not read: those of this machine are used.
    let what = || format!("cannot read bundle {target} in {}", connection.namespace);
    client.manifests(bundle, &[]).await.context(what())
}

/// Refuses a rollback that loses data; returns the CRDs that the older version does not have.
async fn check(connection: &Connection, current: &ClusterServiceVersion, target: &Manifests) -> Result<Vec<String>> {
    let definitions: Vec<Value> = target.definitions().cloned().collect();
    let changes: Vec<BreakingChange> = safety::find(connection, &definitions).await?;
    if !changes.is_empty() {
        return Err(Error::new(format!("the rollback would break stored objects:{}", safety::list(&changes)))
            .hint("change or delete these objects first; to remove a stored version: flyball crd migrate"));
    }
    let has = |name: &str| definitions.iter().any(|definition| definition["metadata"]["name"] == name);
    let mut dropped: Vec<&str> = current.spec.crds.owned.iter().map(|owned| owned.name.as_str()).collect();
    dropped.retain(|name| !has(name));
    dropped.sort_unstable();
    dropped.dedup();
    let objects: Vec<Value> = dropped.iter().map(|name| definition(name)).collect();
    let orphans = Resources::count(connection, &objects).await?;
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
    let ended = poll_until(args.timeout, POLL_INTERVAL, async || {
        let plans: Vec<InstallPlan> = objects::list(connection, Some(&connection.namespace)).await?;
        let waits = |plan: &&InstallPlan| {
            plan.status.phase == InstallPlanPhase::RequiresApproval
                && !plan.spec.approved
                && plan.spec.cluster_service_version_names == [target]
        };
        for plan in plans.iter().filter(waits) {
            objects::patch::<InstallPlan>(connection, &plan.name_any(), &json!({"spec": {"approved": true}})).await?;
        }
        let found: Option<Subscription> = objects::find(connection, &name).await?;
        let is_current = found.is_some_and(|found| found.status.installed_csv == target);
        let csv: Option<ClusterServiceVersion> = objects::find(connection, target).await?;
        Ok(match csv {
            Some(csv) if is_current && csv.status.phase == Phase::Succeeded => Ok(()),
            Some(csv) => {
                progress.show(format!("{target}: {:?}: {}", csv.status.phase, csv.status.message));
                Err(format!("{:?}, {}: {}", csv.status.phase, csv.status.reason, csv.status.message))
            }
            None => Err("it does not exist yet".to_owned()),
        })
    });
    ended.await?.map_err(|state| {
        Error::new(format!("{target} did not succeed after {} s: {state}", args.timeout.as_secs()))
            .hint(format!("find out why: flyball olm why {name} -n {}", connection.namespace))
    })
}

fn report(
    args: &RollbackArgs,
    connection: &Connection,
    subscription: &Subscription,
    current: &ClusterServiceVersion,
    target: &Manifests,
    kept_definitions: Vec<String>,
) -> Result<()> {
    let definitions = target.definitions().filter_map(|of| of["metadata"]["name"].as_str().map(str::to_owned));
    let report = RollbackReport {
        subscription: subscription.name_any(),
        namespace: connection.namespace.clone(),
        from: current.name_any(),
        to: target.name().to_owned(),
        definitions: definitions.collect(),
        kept_definitions,
        dry_run: args.dry_run,
        succeeded: !args.dry_run && !args.timeout.is_zero(),
    };
    if let Some(output) = args.output {
        return output.print(&report);
    }
    if args.quiet {
        return Ok(());
    }
    let RollbackReport { namespace, subscription, from, to, .. } = &report;
    let state = match (report.dry_run, report.succeeded) {
        (true, _) => "can be rolled back (dry run)".to_owned(),
        (false, true) => paint(Style::Good, "rolled back"),
        (false, false) => "is being rolled back".to_owned(),
    };
    let (from, to) = (one_line(from), one_line(to));
    print_line(&format!("Subscription {namespace}/{subscription} {state} from {from} to {to}"));
    for name in &report.kept_definitions {
        print_line(&format!("  {} stays: {to} does not have it, and it has no custom resources", one_line(name)));
    }
    print_line(&format!("  to upgrade again: flyball olm pin {subscription} -n {namespace} --remove"));
    Ok(())
}
