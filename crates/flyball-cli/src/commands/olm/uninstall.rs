//! `flyball olm uninstall`.

mod inventory;

use super::manager::{self, ManagedCluster, ManagerKind, ManagerState};
use crate::cluster::connection::{ContextArgs, block_on};
use crate::cluster::deletion;
use crate::cluster::kinds::Kinds;
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::duration::parse_flag;
use crate::error::{Error, Result, ResultExt};
use crate::operator::removal;
use crate::render::output::Output;
use crate::render::terminal::{Style, one_line, paint, print_line};
use clap::Args;
use flyball_lifecycle::packages;
use inventory::{Inventory, Item, Remaining};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Time that the garbage collector gets to delete the objects of deleted owners.
const COLLECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Remove all operators with their custom resources and CRDs, and the lifecycle manager
///
/// In this order: Subscriptions, so that nothing is installed again; custom resources, while their operators run and
/// can clean up; ClusterExtensions and ClusterServiceVersions, with everything that was created for them; CRDs that
/// were installed with them; the other objects of the lifecycle manager, and the manager. CRDs of operators that
/// were deleted earlier, and namespaces that existed earlier, remain.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball olm uninstall --dry-run     lists the objects
  flyball olm uninstall --yes
  flyball olm uninstall --keep-crds   keeps the operators' CRDs and custom resources")]
pub(super) struct UninstallArgs {
    #[command(flatten)]
    connection: ContextArgs,
    /// Namespace of the manager
    #[arg(short, long, default_value = super::NAMESPACE)]
    namespace: String,
    /// Keep the CRDs of operators and all custom resources
    #[arg(long)]
    keep_crds: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print the objects without deleting them
    #[arg(long)]
    dry_run: bool,
    /// Timeout for each kind of objects
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_flag)]
    timeout: Duration,
    /// Print only errors
    #[arg(short, long, conflicts_with = "output")]
    quiet: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Removed objects, or objects to remove.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Removal {
    dry_run: bool,
    custom_resources: Vec<removal::Resources>,
    objects: Vec<String>,
    manager: ManagerState,
}

pub(super) fn cmd_uninstall(args: &UninstallArgs) -> Result<()> {
    block_on(async {
        let place = ManagedCluster::connect(&args.connection).await?;
        let connection = &place.connection;
        let manager = manager::state(&place, &args.namespace).await?;
        let inventory = Inventory::read(connection, args.keep_crds).await?;
        let own = own_objects(&place, args).await?;
        if !args.quiet && args.output.is_none() {
            preview(&inventory, &own, &manager);
        }
        let mut objects: Vec<String> = Vec::new();
        let is_gone = inventory.is_empty() && own.is_empty() && manager.kind == ManagerKind::None;
        if args.dry_run {
            objects.extend(inventory.descriptions());
            objects.extend(own.iter().map(|item| item.description.clone()));
        } else if !is_gone {
            check_extensions(&inventory, args)?;
            removal::confirm("Remove all of this?", args.yes)?;
            check_manager(&inventory, &manager)?;
            objects = remove(&place, args, &inventory, &own).await?;
        }
        let custom_resources = inventory.resources;
        match args.output {
            Some(output) => output.print(&Removal { dry_run: args.dry_run, custom_resources, objects, manager }),
            None => Ok(()),
        }
    })
}

/// Rejects `--keep-crds` if there are ClusterExtensions, because their deletion includes their CRDs.
fn check_extensions(inventory: &Inventory, args: &UninstallArgs) -> Result<()> {
    match inventory.extensions.first().filter(|_| args.keep_crds) {
        None => Ok(()),
        Some(item) => Err(Error::new(format!(
            "nothing was removed: the deletion of {} deletes its CRDs with all custom resources",
            item.description
        ))
        .hint("omit --keep-crds")),
    }
}

/// Checks that the manager is ready: only it removes the objects of ClusterServiceVersions and ClusterExtensions.
fn check_manager(inventory: &Inventory, manager: &ManagerState) -> Result<()> {
    match inventory.csvs.is_empty() && inventory.extensions.is_empty() || manager.ready {
        true => Ok(()),
        false => Err(Error::new(format!(
            "nothing was removed: {}, and it has to clean up after the operators",
            manager.problem
        ))
        .hint("start it: flyball olm install")),
    }
}

/// Returns the existing objects of the manager itself, in the order of their deletion.
async fn own_objects(place: &ManagedCluster, args: &UninstallArgs) -> Result<Vec<Item>> {
    let installation = manager::installation(&args.namespace, None).await?;
    let mut objects = installation.objects(true);
    let lease = installation.description.lease.as_ref().map(|lease| &lease.name);
    objects.extend(lease.map(|name| {
        let metadata = json!({"name": name, "namespace": args.namespace});
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})
    }));
    objects.extend(package_objects(&args.namespace));
    objects.reverse();
    // Policies first: they would reject the changes of others. The namespace is deleted last, with its contents.
    objects.sort_by_key(|object| match object["kind"].as_str() {
        Some(kind) if kind.contains("AdmissionPolicy") => 0,
        Some("Namespace") => 3,
        Some("CustomResourceDefinition") => 2,
        _ => 1,
    });
    let mut items = Vec::new();
    for object in objects {
        let Some(found) = place.connection.find(&object).await? else { continue };
        if object["kind"] == "Namespace" && !is_created_by_flyball(place, &found).await? {
            continue;
        }
        if package_objects(&args.namespace).contains(&object) && !is_published_by_manager(&found) {
            continue;
        }
        let description = place.connection.resolve(&found).await?.1;
        items.push(Item { object, description });
    }
    Ok(items)
}

/// Returns the objects by which the manager publishes PackageManifests.
fn package_objects(namespace: &str) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "packageserver-service", "namespace": namespace}}),
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{}.{}", packages::VERSION, packages::GROUP)}}),
    ]
}

/// Returns true if the manager published the object. OLM publishes its packages by objects of the same names.
fn is_published_by_manager(object: &Value) -> bool {
    let mut managers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    managers.any(|entry| entry["manager"] == "flyball-olm")
}

async fn is_created_by_flyball(place: &ManagedCluster, object: &Value) -> Result<bool> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let namespaces: Api<Namespace> = Api::all(place.connection.client.clone());
    let found = namespaces.get_opt(name).await.context(format!("cannot read Namespace {name}"))?;
    Ok(found.is_some_and(|found| crate::commands::deploy::is_created_by_flyball(&found)))
}

/// Removes everything, and returns the descriptions of the objects.
async fn remove(
    place: &ManagedCluster,
    args: &UninstallArgs,
    inventory: &Inventory,
    own: &[Item],
) -> Result<Vec<String>> {
    let connection = &place.connection;
    let is_quiet = args.quiet || args.output.is_some();
    let mut removed = Vec::new();
    let mut delete = async |items: &[Item]| -> Result<()> {
        for item in items {
            removed.extend(deletion::remove(connection, &item.object, args.timeout, is_quiet).await?);
        }
        Ok(())
    };
    delete(&inventory.subscriptions).await?;
    for resources in inventory.resources.iter().filter(|resources| resources.count > 0) {
        resources.delete(connection, args.timeout).await?;
        if !is_quiet {
            let kind = one_line(&resources.kind);
            print_line(&format!("{} {kind} {}", resources.count, paint(Style::Good, "deleted")));
        }
    }
    // Before their ClusterServiceVersions, which they would install again.
    delete(&inventory.extensions).await?;
    delete(&inventory.csvs).await?;
    delete(&inventory.groups).await?;
    // The roles to use their kinds go with them.
    delete(&inventory.definitions).await?;
    // Their owners are gone.
    let kinds = Kinds::discover(&connection.client).await?;
    delete(&Remaining::read(connection, &kinds).await?.unowned).await?;
    let collected = poll_until(args.timeout.min(COLLECTION_TIMEOUT), POLL_INTERVAL, async || {
        let Remaining { collected, unowned } = Remaining::read(connection, &kinds).await?;
        let left = [collected, unowned].concat();
        Ok(if left.is_empty() { Ok(()) } else { Err(left) })
    });
    if let Err(left) = collected.await? {
        delete(&left).await?;
    }
    delete(&inventory.others(connection).await?).await?;
    if let Some(process) = place.process()?
        && process.stop().await?
        && !is_quiet
    {
        print_line(&format!("lifecycle manager {}", paint(Style::Good, "stopped")));
    }
    delete(own).await?;
    Ok(removed)
}

fn preview(inventory: &Inventory, own: &[Item], manager: &ManagerState) {
    if inventory.is_empty() && own.is_empty() && manager.kind == ManagerKind::None {
        return print_line("nothing to remove");
    }
    print_line("To be removed:");
    for resources in inventory.resources.iter().filter(|resources| resources.count > 0) {
        print_line(&paint(
            Style::Bad,
            &format!("  {} {} with all objects that belong to them", resources.count, one_line(&resources.kind)),
        ));
    }
    for description in inventory.descriptions() {
        print_line(&format!("  {}", one_line(&description)));
    }
    if manager.kind != ManagerKind::None {
        print_line(&format!("  the lifecycle manager, {} {}", manager.kind, manager.name));
    }
    for item in own {
        let more = if item.object["kind"] == "Namespace" { ", with everything in it" } else { "" };
        print_line(&format!("  {}{more}", one_line(&item.description)));
    }
    for description in &inventory.kept {
        print_line(&format!("{} stays: its operator was deleted earlier", one_line(description)));
    }
}
