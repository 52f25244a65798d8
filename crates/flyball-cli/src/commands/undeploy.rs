//! `flyball undeploy`: removes an operator and its custom resources from a cluster.

use super::deploy::is_created_by_flyball;
use crate::cluster::connection::{Connection, ConnectionArgs, ContextArgs, block_on};
use crate::cluster::deletion;
use crate::duration::parse_flag;
use crate::error::{Result, ResultExt};
use crate::operator::installation::{Installation, NAMESPACE, TargetArgs, is_webhook_configuration};
use crate::operator::removal::{self, Resources};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Remove an operator from a cluster: custom resources, then the operator, then its CRDs
///
/// Deletes custom resources first, while the operator is running and can clean up; if they are not deleted in time,
/// the operator stays. Deletes the namespace only if `flyball deploy` created it.
#[derive(Args, Debug)]
#[command(mut_arg("namespace", |arg| arg.help(NAMESPACE)), after_help = "Examples:
  flyball undeploy --dry-run       lists the objects
  flyball undeploy --yes
  flyball undeploy --keep-crds     keeps CRDs and custom resources")]
pub(crate) struct UndeployArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Keep the CRDs and all custom resources
    #[arg(long)]
    keep_crds: bool,
    #[command(flatten)]
    removal: RemovalArgs,
}

/// Flags of removals.
#[derive(Args, Debug)]
struct RemovalArgs {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print the objects without deleting them
    #[arg(long)]
    dry_run: bool,
    /// Timeout for deleting the custom resources of a kind
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_flag)]
    timeout: Duration,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Remove the CRDs of an operator with all custom resources, and its webhook configurations
///
/// Deletes custom resources first; those with finalizers need a running operator. Also deletes webhook configurations
/// and admission policies that `flyball run` applied.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball uninstall --dry-run
  flyball uninstall --yes")]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    connection: ContextArgs,
    #[command(flatten)]
    removal: RemovalArgs,
}

/// Removed objects, or objects to remove.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Removal {
    dry_run: bool,
    resources: Vec<Resources>,
    objects: Vec<String>,
}

pub(crate) fn cmd_undeploy(args: &UndeployArgs) -> Result<()> {
    block_on(async {
        let connection = args.connection.connect().await?;
        let installation = Installation::load(&args.target, args.connection.namespace.as_deref(), None).await?;
        let mut objects = installation.objects(true);
        objects.retain(|object| object["kind"] != "CustomResourceDefinition");
        objects.reverse();
        skip_existing_namespace(&connection, &mut objects).await?;
        objects.extend(runtime_objects(&installation));
        // A namespace is deleted last, with its contents.
        objects.sort_by_key(|object| object["kind"] == "Namespace");
        let definitions = if args.keep_crds { Vec::new() } else { installation.definitions() };
        remove(&connection, &objects, &definitions, &args.removal).await
    })
}

pub(crate) fn cmd_uninstall(args: &UninstallArgs) -> Result<()> {
    block_on(async {
        let connection = args.connection.connect().await?;
        let installation = Installation::load(&args.target, None, None).await?;
        let mut rules = installation.objects(false);
        rules.retain(is_admission_rule);
        rules.reverse();
        remove(&connection, &rules, &installation.definitions(), &args.removal).await
    })
}

/// Returns true if an object is a webhook configuration or a policy.
fn is_admission_rule(object: &Value) -> bool {
    is_webhook_configuration(object) || object["kind"].as_str().is_some_and(|kind| kind.contains("AdmissionPolicy"))
}

/// Returns true if webhooks are called at a URL: by a process on some machine, which may have ended.
fn has_url(configuration: &Value) -> bool {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks.into_iter().any(|webhook| webhook["clientConfig"]["url"].is_string())
}

/// Returns the objects that the operator creates itself in its namespace: its lease, and the certificates of its
/// webhooks.
fn runtime_objects(installation: &Installation) -> Vec<Value> {
    let target = &installation.target;
    let object = |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": target.namespace}});
    let lease = installation.description.lease.as_ref();
    let lease = lease.map(|lease| object("coordination.k8s.io/v1", "Lease", &lease.name));
    let has_webhooks = !installation.description.webhooks.is_empty();
    let certificates = has_webhooks.then(|| object("v1", "Secret", &target.object_name("webhook-certificates")));
    lease.into_iter().chain(certificates).collect()
}

async fn skip_existing_namespace(connection: &Connection, objects: &mut Vec<Value>) -> Result<()> {
    let Some(manifest) = objects.iter().find(|object| object["kind"] == "Namespace") else { return Ok(()) };
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespaces: Api<Namespace> = Api::all(connection.client.clone());
    let found = namespaces.get_opt(&name).await.context(format!("cannot read Namespace {name}"))?;
    if !found.is_some_and(|found| is_created_by_flyball(&found)) {
        objects.retain(|object| object["kind"] != "Namespace");
    }
    Ok(())
}

/// Removes custom resources, then the operator's objects in this order, then the definitions. Webhooks at a URL are
/// deleted first: those of a process that has ended would reject the writes of the removal.
async fn remove(connection: &Connection, objects: &[Value], definitions: &[Value], how: &RemovalArgs) -> Result<()> {
    let RemovalArgs { yes, dry_run, timeout, output } = *how;
    let quiet = output.is_some();
    let resources = Resources::count(connection, definitions).await?;
    let (mut there, mut first) = (Vec::new(), 0);
    for object in objects.iter().chain(definitions) {
        if let Some(found) = connection.find(object).await? {
            let description = connection.resolve(&found).await.map(|(_, description, _)| description)?;
            if is_webhook_configuration(&found) && has_url(&found) {
                there.insert(first, (object, description));
                first += 1;
            } else {
                there.push((object, description));
            }
        }
    }
    if !quiet {
        print_preview(&resources, &there);
    }
    let is_gone = there.is_empty() && resources.is_empty();
    if !dry_run && !is_gone {
        removal::confirm("Remove all of this?", yes)?;
        for (object, _) in &there[..first] {
            deletion::remove(connection, object, timeout, quiet).await?;
        }
        for each in resources.iter().filter(|each| each.count > 0) {
            each.delete(connection, timeout).await?;
            if !quiet {
                print_line(&format!("{} {} {}", each.count, each.kind, paint(Style::Good, "deleted")));
            }
        }
        for (object, _) in &there[first..] {
            deletion::remove(connection, object, timeout, quiet).await?;
        }
    }
    match output {
        Some(output) => {
            let objects = there.into_iter().map(|(_, description)| description).collect();
            output.print(&Removal { dry_run, resources, objects })
        }
        None => Ok(()),
    }
}

fn print_preview(resources: &[Resources], there: &[(&Value, String)]) {
    if there.is_empty() && resources.is_empty() {
        return print_line("nothing to remove");
    }
    print_line("To be removed:");
    for each in resources.iter().filter(|each| each.count > 0) {
        print_line(&paint(
            Style::Bad,
            &format!("  {} {} and {} children", each.count, each.kind, if each.count == 1 { "its" } else { "their" }),
        ));
    }
    for (object, description) in there {
        let more = if object["kind"] == "Namespace" { ", with everything in it" } else { "" };
        print_line(&format!("  {description}{more}"));
    }
}
