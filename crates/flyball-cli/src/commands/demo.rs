//! `flyball demo`: the whole loop in a few seconds, on the embedded control plane or on any other.
//!
//! The operator runs in this process against a simulated vCenter; all else is what it would be in production: TLS, the
//! operator's own service account, and no more rights than its controllers declare.

mod installed;
mod show;
mod stage;
mod table;

use crate::error::{Error, Result, ResultExt};
use crate::terminal::{Style, paint, say};
use clap::Args;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Show an operator at work: VMs come, scale, heal and go
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Show it on the cluster of this kubeconfig instead of the embedded control plane
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, requires = "kubeconfig")]
    context: Option<String>,
    /// Go on serving when the show is over, until Ctrl-C
    #[arg(long)]
    keep: bool,
}

pub(crate) fn cmd_demo(args: DemoArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().when("cannot start the runtime")?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).when("cannot listen to signals")?;
        let mut stop = std::pin::pin!(async move {
            tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => {}
                _ = terminated.recv() => {}
            }
        });
        say(&format!("{}  VmGroup, the operator of virtual machines", paint(Style::Strong, "Flyball demo")));
        let stage = stage::set(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        let shown = tokio::select! {
            biased;
            () = &mut stop => Err(Error::new("interrupted")),
            shown = perform(&stage, args.keep) => shown,
        };
        let shown = match shown {
            Ok(installed) if args.keep => tokio::select! {
                biased;
                () = &mut stop => Ok(()),
                ended = installed.ended() => ended,
            },
            shown => shown.map(drop),
        };
        // Whatever happened, nothing of the demo stays on somebody's cluster.
        let cleared = stage.clear().await;
        shown.and(cleared)
    })
}

async fn perform(stage: &stage::Stage, keep: bool) -> Result<installed::Installed> {
    let installed = installed::install(stage).await?;
    show::run(stage, &installed).await?;
    say("");
    show::how_to_go_on(stage, keep)?;
    Ok(installed)
}
