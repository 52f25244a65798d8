//! `flyball cluster node remove`.

use super::{ClusterNameArgs, with_client};
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::print_line;
use clap::Args;
use flyball_cluster::SIMULATED_NODE_ANNOTATION;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};

/// Remove nodes; their pods are deleted after 40 seconds, and their controllers replace them
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball cluster node remove node-1 node-2
  flyball cluster node remove --all")]
pub(super) struct RemoveArgs {
    #[command(flatten)]
    named: ClusterNameArgs,
    /// Names of the nodes
    #[arg(value_name = "NODE", required_unless_present = "all", conflicts_with = "all")]
    nodes: Vec<String>,
    /// Remove all simulated nodes
    #[arg(long)]
    all: bool,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn cmd_remove(args: &RemoveArgs) -> Result<()> {
    let removed = with_client(&args.named, async |client| {
        let api = Api::<Node>::all(client);
        let mut names = args.nodes.clone();
        if args.all {
            let all = api.list(&ListParams::default()).await.context("cannot list the nodes")?;
            let is_simulated = |node: &&Node| {
                node.annotations()
                    .get(SIMULATED_NODE_ANNOTATION.0)
                    .is_some_and(|value| value == SIMULATED_NODE_ANNOTATION.1)
            };
            names = all.iter().filter(is_simulated).map(ResourceExt::name_any).collect();
        }
        for name in &names {
            match api.delete(name, &DeleteParams::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    let error = Error::new(format!("node {name} not found"));
                    return Err(error.hint("flyball cluster node list"));
                }
                Err(error) => return Err(error).context(format!("cannot remove {name}")),
            }
        }
        Ok(names)
    })?;
    if !args.quiet {
        match &removed[..] {
            [] => print_line("no nodes to remove"),
            [one] => print_line(&format!("removed {one}")),
            all => print_line(&format!("removed {} nodes", all.len())),
        }
    }
    Ok(())
}
