//! The cluster that a command is about.

use crate::error::{Result, ResultExt};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct ConnectArgs {
    /// Path of the kubeconfig; else KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
}

impl ConnectArgs {
    /// Makes a client, whose default namespace is that of the context.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let config = Kubeconfig::read_from(path).when("cannot read the kubeconfig")?;
                Config::from_custom_kubeconfig(config, &options).await.when("cannot use the kubeconfig")?
            }
            (None, Some(_)) => Config::from_kubeconfig(&options).await.when("cannot use the kubeconfig")?,
            (None, None) => Config::infer().await.when("there is no cluster to connect to")?,
        };
        Client::try_from(config).when("cannot connect to the cluster")
    }
}

/// Runs what waits for a cluster.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.when("cannot start the runtime")?.block_on(work)
}
