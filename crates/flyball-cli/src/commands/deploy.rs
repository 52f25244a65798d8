//! `flyball deploy`: installs an operator in a cluster.

use crate::cluster::connection::{Connection, ConnectionArgs, block_on};
use crate::cluster::deletion;
use crate::cluster::kinds::Kinds;
use crate::cluster::rollout::{self, AppliedObject, RolloutArgs};
use crate::cluster::safety;
use crate::duration::parse_flag;
use crate::error::{Error, Result, ResultExt};
use crate::operator::installation::{Installation, MANAGED_BY, NAMESPACE, TargetArgs, is_webhook_configuration};
use crate::operator::overlay::{OverlayArgs, parse_image};
use crate::operator::removal;
use crate::render::terminal::{Style, paint, print_labeled, print_line};
use clap::Args;
use flyball_cluster::SIMULATED_NODE_ANNOTATION;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// Install an operator in a cluster and wait until it is ready
///
/// Applies the objects that `flyball render` prints, in the order namespace, CRDs, service account, roles,
/// Deployment. Webhook configurations follow after the Deployment is ready. CRDs that would make stored objects
/// invalid are rejected.
#[derive(Args, Debug)]
#[command(mut_arg("namespace", |arg| arg.help(NAMESPACE)), after_help = "Examples:
  flyball deploy --image registry.example.com/site-operator:1.0
  flyball deploy --image site-operator:dev --namespace sites --name-prefix team-a- --patch env.yaml
  flyball deploy --image site-operator:dev --dry-run -o json
  flyball deploy --image site-operator:dev -- --namespaces a,b     limited to two namespaces

The operator's namespace is NAME-system unless --namespace is given. A second run changes nothing.")]
pub(crate) struct DeployArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Image of the operator
    #[arg(long, value_name = "REF", value_parser = parse_image)]
    image: String,
    #[command(flatten)]
    overlay: OverlayArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Timeout for readiness; 0s does not wait
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_flag)]
    timeout: Duration,
    #[command(flatten)]
    rollout: RolloutArgs,
}

/// Result of a deployment.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeployReport {
    operator: String,
    namespace: String,
    dry_run: bool,
    objects: Vec<AppliedObject>,
    /// Objects of an earlier deployment that are no longer needed.
    removed: Vec<String>,
    ready: bool,
}

pub(crate) fn cmd_deploy(args: &DeployArgs) -> Result<()> {
    block_on(deploy(args))
}

async fn deploy(args: &DeployArgs) -> Result<()> {
    let connection = args.connection.connect().await?;
    let installation =
        Installation::load(&args.target, args.connection.namespace.as_deref(), Some(&args.image)).await?;
    let RolloutArgs { force, dry_run, output, .. } = args.rollout;
    let quiet = output.is_some();
    let kinds = Kinds::discover(&connection.client).await?;
    let monitored = ["ServiceMonitor", "PrometheusRule"];
    let monitoring = monitored.iter().all(|kind| kinds.of("monitoring.coreos.com/v1", kind).is_some());
    let mut objects = installation.objects(monitoring);
    args.overlay.apply(&mut objects, &installation.target)?;
    skip_existing_namespace(&connection, &mut objects).await?;

    let definitions: Vec<Value> =
        objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition").cloned().collect();
    safety::check(&connection, &definitions, force).await?;
    let (configurations, others): (Vec<Value>, Vec<Value>) =
        objects.iter().cloned().partition(is_webhook_configuration);
    let mut applied = rollout::apply_in_order(&connection, &others, &args.rollout).await?;
    if !monitoring && !quiet {
        let message = "alerts and dashboard skipped: the cluster has no Prometheus operator";
        print_line(&paint(Style::Faint, message));
    }
    let waits = !dry_run && !args.timeout.is_zero();
    if waits {
        for deployment in objects.iter().filter(|object| object["kind"] == "Deployment") {
            rollout::until_ready(&connection, deployment, args.timeout, quiet).await?;
        }
        note_simulated_nodes(&connection).await;
    }
    applied.extend(rollout::apply_in_order(&connection, &configurations, &args.rollout).await?);
    // Only after the pods that may still need them are deleted.
    let mut removed = Vec::new();
    for object in removal::find_stale(&connection, &kinds, &installation.target, &objects).await? {
        removed.extend(match dry_run {
            true => Some(connection.resolve(&object).await?.1),
            false => deletion::remove(&connection, &object, args.timeout, true).await?,
        });
    }
    if !quiet {
        let dry = if dry_run { " (dry run)" } else { "" };
        removed.iter().for_each(|description| {
            print_line(&format!("{description} {}{dry}", paint(Style::Busy, "deleted: no longer needed")))
        });
    }
    match output {
        Some(output) => output.print(&DeployReport {
            operator: installation.description.name,
            namespace: installation.target.namespace,
            dry_run,
            objects: applied,
            removed,
            ready: waits,
        }),
        None => Ok(()),
    }
}

/// Prints a note if all nodes are simulated: their pods become ready without a process.
async fn note_simulated_nodes(connection: &Connection) {
    // Users of clusters may lack the permission to list nodes.
    let nodes = Api::<Node>::all(connection.client.clone()).list(&ListParams::default()).await;
    let nodes = nodes.map(|nodes| nodes.items).unwrap_or_default();
    let is_simulated = |node: &Node| {
        node.annotations().get(SIMULATED_NODE_ANNOTATION.0).is_some_and(|value| value == SIMULATED_NODE_ANNOTATION.1)
    };
    if !nodes.is_empty() && nodes.iter().all(is_simulated) {
        print_labeled(
            "note",
            "all nodes of the cluster are simulated: the operator's pod is ready, but no process runs in it",
        );
        print_labeled("hint", "run the operator on this machine: flyball run");
    }
}

/// Skips a namespace that `flyball deploy` did not create.
async fn skip_existing_namespace(connection: &Connection, objects: &mut Vec<Value>) -> Result<()> {
    let Some(manifest) = objects.iter().find(|object| object["kind"] == "Namespace") else { return Ok(()) };
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespaces: Api<Namespace> = Api::all(connection.client.clone());
    let found = namespaces.get_opt(&name).await.context(format!("cannot read Namespace {name}"))?;
    if let Some(found) = found {
        if found.metadata.deletion_timestamp.is_some() {
            return Err(Error::new(format!("Namespace {name} is being deleted")).hint("wait until it is deleted"));
        }
        if !is_created_by_flyball(&found) {
            objects.retain(|object| object["kind"] != "Namespace");
        }
    }
    Ok(())
}

/// Returns true if a namespace was created by `flyball deploy`.
pub(super) fn is_created_by_flyball(namespace: &Namespace) -> bool {
    namespace.labels().get(MANAGED_BY.0).is_some_and(|value| value == MANAGED_BY.1)
}
