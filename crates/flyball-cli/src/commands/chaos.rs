//! `flyball chaos`: injects faults into an operator in a cluster, checks its recovery, and undoes the faults.

mod inject;
mod process;
mod protect;
mod report;
mod undo;

use crate::error::{Error, Result};
use crate::files::private::state_directory;
use clap::{Args, Subcommand};
use flyball_chaos::Cluster;
use std::path::PathBuf;
use std::process::ExitCode;

/// Inject faults into an operator in a cluster, check its recovery, and undo the faults
///
/// Runs experiments one after the other. Each one changes the operator, its custom resources, their children, or an
/// object that the operator needs, waits for the steady state, and undoes the remaining changes. The result of an
/// experiment is Resilient, Degraded (late, or with unnecessary changes) or Failed. Without --file, all experiments run
/// that apply to the objects of the operator.
///
/// Only objects of the operator change, in its namespace and those of --workload-namespace. Each change is written to a
/// state file before it is made, and undone at the end, after an error and after Ctrl-C. If this command is killed,
/// `flyball chaos undo` undoes the changes. Namespaces and clusters that are marked by `flyball chaos protect` are
/// refused, as are those of Kubernetes.
///
/// Exits with 1 if the operator fails an experiment, and with 2 if the command line is invalid.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  flyball chaos -n sites-system --dry-run              prints the experiments and their changes
  flyball chaos -n sites-system --operator deployment/sites --yes
  flyball chaos -n sites-system --only pod-kill,RBACRevoke
  flyball chaos -n sites-system --dry-run -o yaml > experiments.yaml
  flyball chaos -n sites-system --file experiments.yaml --yes -o junit
  flyball chaos -n sites-system --upgrade next/        faults of an upgrade to these manifests
  flyball chaos undo                                   after a killed run"
)]
pub(crate) struct ChaosArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    inject: inject::InjectArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    Undo(undo::UndoArgs),
    Protect(protect::ProtectArgs),
}

pub(crate) fn cmd_chaos(args: &ChaosArgs) -> Result<ExitCode> {
    match &args.command {
        None => inject::cmd_inject(&args.inject),
        Some(Command::Undo(args)) => undo::cmd_undo(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Protect(args)) => protect::cmd_protect(args).map(|()| ExitCode::SUCCESS),
    }
}

/// Returns the directory of state files.
fn state_files() -> Result<PathBuf> {
    Ok(state_directory()?.join("chaos"))
}

async fn connect(client: kube::Client) -> Result<Cluster> {
    Cluster::connect(client).await.map_err(error)
}

/// Converts an error of the experiments, with the remedy.
fn error(error: flyball_chaos::Error) -> Error {
    use flyball_chaos::Error as Chaos;
    let text = error.text();
    match error {
        Chaos::Invalid { .. } => Error::usage(text).hint("see docs/chaos.md"),
        Chaos::Refused { .. } | Chaos::NotApplicable(_) | Chaos::Target(_) => Error::new(text),
        Chaos::StateContent { .. } => Error::new(text),
        _ => Error::new(text).hint("check the permissions of the kubeconfig's user"),
    }
}
