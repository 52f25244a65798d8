//! `flyball meter`: what pods, custom resources, operators and tenants use.

mod collect;
mod export;
mod format;
mod period;
mod report;
mod run;
mod top;

use crate::cluster::connection::ContextArgs;
use crate::error::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Meter what custom resources, operators and tenants request and use
///
/// `top` and `report` need nothing in the cluster: requests, limits and storage are exact since the start of each pod
/// that still exists, and usage counts from now on. `run` is the operator, which keeps a history for reports with a
/// schedule.
#[derive(Args, Debug)]
pub(crate) struct MeterArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Top(top::TopArgs),
    Report(Box<report::ReportArgs>),
    Export(export::ExportArgs),
    Run(run::RunArgs),
}

/// Flags for the cluster, and for the part of it that is shown.
#[derive(Args, Debug)]
struct ScopeArgs {
    #[command(flatten)]
    cluster: ContextArgs,
    /// Count only the pods and claims of this namespace; those of all namespaces by default
    #[arg(short, long)]
    namespace: Option<String>,
}

impl MeterArgs {
    /// Returns true if the command is the operator, which has a log of its own.
    pub(super) fn is_operator(&self) -> bool {
        matches!(self.command, Command::Run(_))
    }
}

pub(crate) fn cmd_meter(args: MeterArgs) -> Result<ExitCode> {
    let done = match args.command {
        Command::Top(args) => top::cmd_top(&args),
        Command::Report(args) => report::cmd_report(&args),
        Command::Export(args) => export::cmd_export(&args),
        Command::Run(args) => return Ok(run::cmd_run(args)),
    };
    done.map(|()| ExitCode::SUCCESS)
}
