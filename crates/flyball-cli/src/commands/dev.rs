//! `flyball dev`: runs a control plane and an operator, and rebuilds the operator on each save, until Ctrl-C.
//!
//! The operator runs as a service account with only the roles of its manifests, as in its pod.

mod console;
mod explorations;
mod log;
mod status;

use crate::cluster::connection::{Connection, ConnectionArgs, block_on_threads};
use crate::cluster::created::CreatedObjects;
use crate::cluster::embedded::EmbeddedCluster;
use crate::commands::cluster::parse_count;
use crate::error::Result;
use crate::files::private::PrivateDirectory;
use crate::operator::installation::MANAGED_BY;
use crate::operator::local::{self, LineSinks, LocalArgs, LocalOperator, NAMESPACE_HELP, Reload};
use crate::operator::metrics::{self, free_address};
use crate::operator::process::stop_signal;
use crate::project::enter_project;
use crate::render::terminal::{self, Style, paint, print_labeled, print_line, set_status_line};
use clap::Args;
use console::ConsoleSettings;
use log::Log;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Run a control plane and the operator, and rebuild the operator on each save
///
/// Starts a control plane, builds the project in this directory, installs its CRDs and roles, applies its samples,
/// and runs it as a service account with only the roles of its manifests. On each save, it rebuilds and restarts the
/// operator; if the build fails, the old process continues. Ctrl-C removes everything.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball dev                               the project in this directory, on its own control plane
  flyball dev --samples config/samples/small.yaml
  flyball dev --console --write             with a page in a browser, which may write
  flyball dev --no-cluster                  on the cluster of the current context
  flyball dev --program ./site-operator -- --namespace default

On an existing cluster, the created objects are deleted at the end: samples first, while the operator is running,
and CRDs only if no other custom resources exist.")]
#[command(mut_arg("namespace", |namespace| namespace.help(NAMESPACE_HELP)))]
pub(crate) struct DevArgs {
    /// Use the current context, or that of --context, instead of starting a control plane
    #[arg(long)]
    no_cluster: bool,
    /// Number of simulated nodes of the control plane
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count, conflicts_with = "no_cluster")]
    nodes: u32,
    /// Apply the objects of this file or directory; defaults to `samples` or `config/samples`, if present
    #[arg(long, value_name = "PATH")]
    samples: Option<PathBuf>,
    /// Do not apply samples
    #[arg(long, conflicts_with = "samples")]
    no_samples: bool,
    /// Serve a page that shows the cluster and the operator in a browser, as `flyball console` does; on a free port
    /// unless one is given
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    console: Option<u16>,
    /// Permit the page of --console to write objects, and to explore faults with the samples
    #[arg(long, requires = "console")]
    write: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    local: LocalArgs,
}

pub(crate) fn cmd_dev(mut args: DevArgs) -> Result<()> {
    if args.local.program.is_none() {
        enter_project(args.samples.iter_mut().chain(&mut args.connection.cluster.kubeconfig))?;
    }
    if args.local.requests_help() {
        return block_on_threads(args.local.print_help());
    }
    args.local.check_project()?;
    let samples = if args.no_samples { None } else { local::samples(args.samples.as_deref()) };
    if let Some(path) = args.samples.as_deref() {
        // Validate the samples before the build.
        crate::cluster::apply::read(path)?;
    }
    let done = block_on_threads(dev(args, samples));
    set_status_line("");
    done
}

async fn dev(args: DevArgs, samples: Option<PathBuf>) -> Result<()> {
    let mut stop = Box::pin(stop_signal()?);
    let folder = PrivateDirectory::new("flyball-dev-operator")?;
    let is_elsewhere =
        args.no_cluster || args.connection.cluster.kubeconfig.is_some() || args.connection.cluster.context.is_some();
    let own =
        if is_elsewhere { None } else { Some(Arc::new(EmbeddedCluster::start("flyball-dev", args.nodes).await?)) };
    let config = match &own {
        Some(own) => {
            print_line(&format!("control plane ready at {}, in another terminal:", own.url));
            print_line(&format!("  export KUBECONFIG={}", own.kubeconfig.display()));
            let mut config = own.config.clone();
            config.default_namespace = args.connection.namespace.clone().unwrap_or(config.default_namespace);
            config
        }
        None => args.connection.config().await?,
    };
    let (metrics_address, url) = (free_address()?, config.cluster_url.to_string());
    let mut operator = LocalOperator::new(args.local, Connection::open(config.clone()).await?);
    let namespace = operator.connection.namespace.clone();
    if own.is_some() && namespace != "default" {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        operator.connection.apply(&object).await?;
    }
    let log = Arc::new(Log::default());
    operator.sinks = LineSinks { build: Some(log::of_cargo()), operator: Some(log.clone().of_operator()) };
    print_line(&format!("metrics at {}", metrics::url(&metrics_address)));
    operator.configure_as_pod(config, folder.path().join("kubeconfig"), &metrics_address, "0");
    (operator.samples, operator.reload) = (samples, Reload::Always);
    let console = match args.console {
        None => None,
        Some(port) => {
            let context = if own.is_some() { Some("flyball dev".to_owned()) } else { args.connection.cluster.context };
            let (write, context) = (args.write, context.unwrap_or_default());
            let (folder, own) = (folder.path(), own.clone());
            let page = ConsoleSettings { port, write, context, cluster: &url, folder, own };
            Some(page.start(&mut operator, &metrics_address).await?)
        }
    };
    if own.is_none() {
        operator.created = Some(begin(&operator.connection, &url).await?);
    }

    let result = tokio::select! {
        biased;
        result = operator.run(&mut stop) => result,
        result = status::show(&metrics_address, &log) => result,
        () = console::serve(console) => unreachable!("the console is served forever"),
    };
    set_status_line("");
    if let Some(created) = operator.created.take() {
        clean_up(&operator.connection, created).await?;
    }
    result
}

/// Deletes the objects that this command created, until a second signal.
async fn clean_up(connection: &Connection, created: CreatedObjects) -> Result<()> {
    print_line(&paint(Style::Faint, "cleaning up"));
    let again = stop_signal()?;
    tokio::select! {
        biased;
        () = remove(connection, created.parts()) => created.end(),
        () = again => print_labeled("note", "cleanup is incomplete; the next `flyball dev` on this cluster finishes it"),
    }
    Ok(())
}

/// Creates the record of created objects, including those of killed commands, which are removed at the end as well.
async fn begin(connection: &Connection, url: &str) -> Result<CreatedObjects> {
    let mut created = CreatedObjects::begin(url)?;
    let mut leftovers = Vec::new();
    for object in created.adopt(url)? {
        if let Some(found) = connection.find(&object).await? {
            leftovers.push(connection.resolve(&found).await?.1);
        }
    }
    if !leftovers.is_empty() {
        let leftovers = leftovers.join(", ");
        print_labeled(
            "note",
            &format!("a previous `flyball dev` was killed and left {leftovers}; this run removes them on exit"),
        );
    }
    Ok(created)
}

/// Deletes the created objects in reverse order. Objects that were deployed since are kept.
async fn remove(connection: &Connection, parts: &[Value]) {
    for part in parts.iter().rev() {
        let found = connection.find(part).await.ok().flatten().unwrap_or_default();
        if found["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1 {
            continue;
        }
        let removed = match connection.defines_objects(part).await {
            Ok(true) => {
                let name = part["metadata"]["name"].as_str().unwrap_or_default();
                print_labeled("note", &format!("CustomResourceDefinition {name} was kept: it has objects"));
                Ok(())
            }
            Ok(false) => connection.delete(part).await,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            terminal::print_error(&error);
        }
    }
}
