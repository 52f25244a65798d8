//! `flyball chaos protect`: marks a cluster or a namespace, which then refuses experiments.

use super::{connect, error};
use crate::cluster::connection::{ContextArgs, block_on};
use crate::error::Result;
use crate::render::terminal::print_line;
use clap::Args;
use flyball_chaos::protect;

/// Mark a cluster or a namespace, which then refuses experiments
///
/// Sets the annotation chaos.flyball.dev/protected of the namespace; of kube-system for the whole cluster.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball chaos protect                    the whole cluster
  flyball chaos protect -n sites-system
  flyball chaos protect --off")]
pub(super) struct ProtectArgs {
    #[command(flatten)]
    connection: ContextArgs,
    /// Mark only this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Remove the mark
    #[arg(long)]
    off: bool,
}

pub(super) fn cmd_protect(args: &ProtectArgs) -> Result<()> {
    block_on(async {
        let connection = args.connection.connect().await?;
        let cluster = connect(connection.client).await?;
        let namespace = args.namespace.as_deref().unwrap_or("kube-system");
        let is_changed = protect(&cluster, namespace, !args.off).await.map_err(error)?;
        let what = match &args.namespace {
            Some(namespace) => format!("namespace {namespace}"),
            None => "cluster".to_owned(),
        };
        let state = if args.off { "accepts experiments" } else { "refuses experiments" };
        let again = if is_changed { "" } else { " already" };
        print_line(&format!("{what} {state}{again}"));
        Ok(())
    })
}
