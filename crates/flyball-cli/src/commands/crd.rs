//! `flyball crd`: manages custom resource definitions.

mod migrate;

use crate::cluster::connection::block_on;
use crate::error::Result;
use clap::{Args, Subcommand};

/// Manage custom resource definitions
#[derive(Args, Debug)]
pub(crate) struct CrdArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Migrate(migrate::MigrateArgs),
}

pub(crate) fn cmd_crd(args: CrdArgs) -> Result<()> {
    match args.command {
        Command::Migrate(args) => block_on(migrate::cmd_migrate(&args)),
    }
}
