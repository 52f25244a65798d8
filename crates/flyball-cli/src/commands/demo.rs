//! `flyball demo`: demonstrates an operator in a few seconds, on the embedded control plane or another cluster.
//!
//! The operator runs in this process, the VmGroup operator against a simulated vCenter. Everything else is as in
//! production: TLS, the operator's own service account, and only the permissions that its controllers declare.

mod cluster;
mod demovolume;
mod installed;
mod show;
mod visitors;
mod vmgroup;

use crate::cluster::connection::block_on_threads;
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::{Style, paint, print_line};
use ::demovolume::NAME as VOLUME_OPERATOR;
use ::demovolume::api::demovolume_v1::DemoVolume;
use ::demovolume::controllers::demovolume::controller;
use ::visitors::NAME as SITE_OPERATOR;
use ::visitors::api::visitorsapp_v1::VisitorsApp;
use ::visitors::controllers::visitorsapp::{self, random_password};
use ::vmgroup::NAME as VM_OPERATOR;
use ::vmgroup::api::vmgroup_v1alpha1::VmGroup;
use clap::{Args, ValueEnum};
use cluster::DemoCluster;
use flyball::Operator;
use installed::{RunningOperator, install};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Demonstrate an operator: create, change, repair and delete its resources
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball demo
  flyball demo visitors --keep     keeps the control plane running for kubectl")]
pub(crate) struct DemoArgs {
    /// Operator to demonstrate
    #[arg(default_value = "vmgroup")]
    operator: DemoOperator,
    /// Use the cluster of this kubeconfig instead of an embedded control plane
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, requires = "kubeconfig")]
    context: Option<String>,
    /// Keep the control plane running afterwards, until Ctrl-C
    #[arg(long)]
    keep: bool,
}

/// Sample operators with a demo.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DemoOperator {
    /// Virtual machines in a simulated vCenter
    Vmgroup,
    /// Volumes and their claims
    Demovolume,
    /// A website with three tiers
    Visitors,
}

impl DemoOperator {
    fn title(self) -> &'static str {
        match self {
            Self::Vmgroup => "VmGroup, the operator of virtual machines",
            Self::Demovolume => "DemoVolume, the operator of volumes",
            Self::Visitors => "Visitors, the operator of a three-tier website",
        }
    }

    /// Returns the command of its demo.
    fn command(self) -> String {
        match self.to_possible_value() {
            Some(name) if !matches!(self, Self::Vmgroup) => format!("flyball demo {}", name.get_name()),
            _ => "flyball demo".to_owned(),
        }
    }

    /// Returns true if its objects become pods, which wait for a node.
    fn needs_nodes(self) -> bool {
        matches!(self, Self::Visitors)
    }

    fn crd(self) -> CustomResourceDefinition {
        match self {
            Self::Vmgroup => VmGroup::crd(),
            Self::Demovolume => DemoVolume::crd(),
            Self::Visitors => VisitorsApp::crd(),
        }
    }
}

pub(crate) fn cmd_demo(args: DemoArgs) -> Result<()> {
    block_on_threads(async {
        let mut terminated = signal(SignalKind::terminate()).context("cannot listen to signals")?;
        let mut stop = std::pin::pin!(async move {
            tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => {}
                _ = terminated.recv() => {}
            }
        });
        print_line(&format!("{}  {}", paint(Style::Strong, "Flyball demo"), args.operator.title()));
        let cluster =
            cluster::connect(args.kubeconfig.as_deref(), args.context.as_deref(), args.operator.crd()).await?;
        if args.operator.needs_nodes() {
            cluster.check_nodes().await?;
        }
        let shown = tokio::select! {
            biased;
            () = &mut stop => Err(Error::interrupted()),
            shown = run_demo(args.operator, &cluster, args.keep) => shown,
        };
        let shown = match shown {
            Ok(installed) if args.keep => tokio::select! {
                biased;
                () = &mut stop => Ok(()),
                ended = installed.wait() => ended,
            },
            shown => shown.map(drop),
        };
        // The objects of the demo are always removed from an existing cluster.
        let cleared = cluster.clear().await;
        shown.and(cleared)
    })
}

async fn run_demo(operator: DemoOperator, cluster: &DemoCluster, keep: bool) -> Result<RunningOperator> {
    let (installed, sample, commands) = match operator {
        DemoOperator::Vmgroup => {
            let vcenter = vmgroup::vcenter();
            let installed = install(cluster, vmgroup::operator(&vcenter)?, VM_OPERATOR).await?;
            vmgroup::run(cluster, &vcenter).await?;
            (installed, vmgroup::sample(), vmgroup::COMMANDS.as_slice())
        }
        DemoOperator::Demovolume => {
            let operator = Operator::new(VOLUME_OPERATOR).controller(controller());
            let installed = install(cluster, operator, VOLUME_OPERATOR).await?;
            demovolume::run(cluster).await?;
            (installed, demovolume::sample(), demovolume::COMMANDS.as_slice())
        }
        DemoOperator::Visitors => {
            let operator = Operator::new(SITE_OPERATOR).controller(visitorsapp::controller(random_password));
            let installed = install(cluster, operator, SITE_OPERATOR).await?;
            visitors::run(cluster).await?;
            (installed, visitors::sample(), visitors::COMMANDS.as_slice())
        }
    };
    print_line("");
    show::print_next_steps(cluster, keep, &operator.command(), &sample, commands)?;
    Ok(installed)
}
