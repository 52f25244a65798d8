//! `flyball run`: runs an operator as a process on this machine, against the current context.
//!
//! It has the permissions of the kubeconfig's user.

use crate::cluster::apply;
use crate::cluster::connection::{ConnectionArgs, block_on};
use crate::error::{Error, Result};
use crate::operator::local::{self, LocalArgs, LocalOperator, NAMESPACE_HELP, Reload};
use crate::operator::process::stop_signal;
use crate::project::enter_project;
use clap::Args;
use std::path::PathBuf;

/// Run an operator on this machine against the current context
///
/// Builds the project in this directory, installs its CRDs and runs it until Ctrl-C. At the end, its webhook
/// configurations are deleted, because they point at the ended process.
///
/// Changes of watches.yaml, charts, roles, CRDs and samples take effect at once; if the new version is invalid, the old
/// one continues. Operators in Rust need --watch for this.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball run                                    the project in this directory
  flyball run --samples                          also applies its samples
  flyball run --watch                            rebuilds and restarts on each save
  flyball run --env-from secret/vc-credentials   with the environment variables of a Secret
  flyball run --program ./vmgroup -- --resync 10s
  flyball run -- --help                          prints the flags of the operator
  flyball run -- --metrics-addr 0 --health-addr 0   without metrics and health checks

If port 8080 or 8081 is in use, also by another flyball run that has just started, metrics or health checks are served
on a free port, which the command prints.")]
#[command(mut_arg("namespace", |namespace| namespace.help(NAMESPACE_HELP)))]
pub(crate) struct RunArgs {
    /// Apply the objects of this file or directory after the CRDs; defaults to `samples` or `config/samples`
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    samples: Option<Option<PathBuf>>,
    /// Rebuild and restart the operator on each save; if the build fails, the old process continues, and if it exits,
    /// the command waits for the next save
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    local: LocalArgs,
}

pub(crate) fn cmd_run(mut args: RunArgs) -> Result<()> {
    if args.local.program.is_none() {
        enter_project(args.samples.iter_mut().flatten().chain(&mut args.connection.cluster.kubeconfig))?;
    }
    if args.local.requests_help() {
        return block_on(args.local.print_help());
    }
    let samples = args.samples.as_ref().map(|named| {
        let found = local::samples(named.as_deref());
        found.ok_or_else(|| Error::new("no samples or config/samples directory found").hint("pass --samples=PATH"))
    });
    let samples = samples.transpose()?;
    // Validate the samples before the build.
    samples.as_deref().map(apply::read).transpose()?;
    args.local.check_project()?;
    block_on(async {
        let stop = stop_signal()?;
        let mut operator = LocalOperator::new(args.local, args.connection.connect().await?);
        operator.samples = samples;
        operator.reload = match args.watch {
            true => Reload::Always,
            false if operator.args.needs_no_build() => Reload::AfterStart,
            false => Reload::Never,
        };
        if let Some(path) = args.connection.cluster.kubeconfig {
            operator.flags.extend(["--kubeconfig".into(), path.into()]);
        }
        if let Some(context) = args.connection.cluster.context {
            operator.flags.extend(["--context".into(), context.into()]);
        }
        operator.run(stop).await
    })
}
