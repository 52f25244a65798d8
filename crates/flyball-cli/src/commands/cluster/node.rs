//! `flyball cluster node`: simulated nodes of a running control plane.
//!
//! All actions use the API: any client that can create a Node object can add a simulated node.

mod add;
mod list;
mod remove;

use super::ClusterNameArgs;
use super::record::Files;
use crate::error::{Error, Result, ResultExt};
use clap::{Args, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Add, list and remove simulated nodes
#[derive(Args, Debug)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Add(add::AddArgs),
    List(list::ListArgs),
    Remove(remove::RemoveArgs),
}

pub(crate) fn cmd_node(args: NodeArgs) -> Result<()> {
    match args.command {
        Command::Add(args) => add::cmd_add(args),
        Command::List(args) => list::cmd_list(&args),
        Command::Remove(args) => remove::cmd_remove(&args),
    }
}

/// Runs an action on the API server of a cluster on this machine.
fn with_client<T>(named: &ClusterNameArgs, work: impl AsyncFnOnce(kube::Client) -> Result<T>) -> Result<T> {
    let files = Files::of(&named.name)?;
    let (running, record) = files.find()?;
    let Some(record) = record.filter(|_| running) else {
        let error = Error::new(format!("cluster {} is not running", named.name));
        return Err(error.hint(format!("flyball cluster up{}", named.flag())));
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(async {
        let config = Kubeconfig::read_from(&record.own_kubeconfig).context("cannot read its kubeconfig")?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        let client =
            flyball::connect(config.context("cannot use its kubeconfig")?).context("cannot create a client")?;
        work(client).await
    })
}
