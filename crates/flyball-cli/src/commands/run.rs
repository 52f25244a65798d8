//! `flyball run`: an operator as a process on this machine, against the current context.
//!
//! Its rights are those of the kubeconfig's user.

use crate::apply;
use crate::connection::{ConnectionArgs, block_on};
use crate::error::{Error, Result};
use crate::local::{self, Local, LocalArgs};
use crate::process::told_to_stop;
use clap::Args;
use std::path::PathBuf;

/// Run an operator on this machine, against the current context
///
/// Builds the program of the project in this folder, installs its custom resource definitions, and runs it until Ctrl-C.
/// At the end its webhook configurations are deleted: they would have the API server call a process that has ended.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball run                                    the project in this folder
  flyball run --samples                          the same, with its samples applied
  flyball run --watch                            built and started anew whenever a file of it is saved
  flyball run --env-from secret/vc-credentials   with the variables that its pod would have
  flyball run --program ./vmgroup -- --resync 10s
  flyball run -- --metrics-addr 0 --health-addr 0   without the pages of metrics and health

If another program has the port 8080 or 8081, the page is served at a free one, and the command says at which.")]
pub(crate) struct RunArgs {
    /// Apply the objects of this file or folder once the definitions are there; `samples` or `config/samples` unless given
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    samples: Option<Option<PathBuf>>,
    /// Build and start it anew whenever a file that it is made of is saved; while that does not build, the one before goes on
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    local: LocalArgs,
}

pub(crate) fn cmd_run(args: RunArgs) -> Result<()> {
    let samples = args.samples.as_ref().map(|named| {
        let found = local::samples(named.as_deref());
        found.ok_or_else(|| {
            Error::new("there is neither a folder samples nor config/samples here").hint("name one: --samples=PATH")
        })
    });
    let samples = samples.transpose()?;
    // So that a mistake in them costs nothing.
    samples.as_deref().map(apply::read).transpose()?;
    args.local.check_project()?;
    block_on(async {
        let stop = told_to_stop()?;
        let mut operator = Local::new(args.local, args.connection.connect().await?);
        (operator.samples, operator.watch) = (samples, args.watch);
        if let Some(path) = args.connection.cluster.kubeconfig {
            operator.flags.extend(["--kubeconfig".into(), path.into()]);
        }
        if let Some(context) = args.connection.cluster.context {
            operator.flags.extend(["--context".into(), context.into()]);
        }
        operator.run(stop).await
    })
}
