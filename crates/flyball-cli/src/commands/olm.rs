//! `flyball olm`: the operator lifecycle manager, and the operators that it installs.

pub(super) mod absence;
mod alternatives;
mod approve;
mod breaking;
mod conflict;
mod definitions;
mod elsewhere;
mod extensions;
mod install;
mod local;
pub(super) mod manager;
mod objects;
mod original;
mod pin;
pub(super) mod pods;
pub(super) mod refusal;
mod rehearse;
mod rollback;
mod run;
mod status;
mod uninstall;
pub(super) mod unread;
mod why;

use crate::error::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// The namespace of the manager, whose catalogs all namespaces see, as in OLM.
pub(super) const NAMESPACE: &str = "olm";

/// Install, examine and control the operator lifecycle manager and its operators
#[derive(Args, Debug)]
pub(crate) struct OlmArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Install(install::InstallArgs),
    Status(status::StatusArgs),
    Uninstall(uninstall::UninstallArgs),
    Why(why::WhyArgs),
    Approve(approve::ApproveArgs),
    Pin(pin::PinArgs),
    Rehearse(rehearse::RehearseArgs),
    Rollback(rollback::RollbackArgs),
    Run(run::RunArgs),
    #[command(hide = true)]
    Local(local::LocalArgs),
}

impl OlmArgs {
    /// Returns true if the command is the manager, which has a log of its own.
    pub(super) fn is_manager(&self) -> bool {
        matches!(self.command, Command::Run(_) | Command::Local(_))
    }
}

pub(crate) fn cmd_olm(args: OlmArgs) -> Result<ExitCode> {
    let done = match args.command {
        Command::Install(args) => install::cmd_install(&args),
        Command::Status(args) => return status::cmd_status(&args),
        Command::Uninstall(args) => uninstall::cmd_uninstall(&args),
        Command::Why(args) => return why::cmd_why(&args),
        Command::Approve(args) => approve::cmd_approve(&args),
        Command::Pin(args) => pin::cmd_pin(&args),
        Command::Rehearse(args) => return rehearse::cmd_rehearse(&args),
        Command::Rollback(args) => rollback::cmd_rollback(&args),
        Command::Run(args) => return run::cmd_run(args),
        Command::Local(args) => return local::cmd_local(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
