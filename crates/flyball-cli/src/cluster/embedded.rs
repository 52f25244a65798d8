//! A control plane in this process, for the duration of a command.

use crate::cluster::connection::config_of;
use crate::cluster::kubeconfig;
use crate::error::{Result, ResultExt};
use crate::files::private::PrivateDirectory;
use flyball_cluster::{Cluster, Controllers, Endpoint, Nodes, Options};
use kube::Config;
use std::future::pending;
use std::path::PathBuf;
use tokio::task::JoinSet;

/// A running control plane, which is removed when this is dropped.
pub(crate) struct EmbeddedCluster {
    /// Connection of an administrator.
    pub(crate) config: Config,
    /// Path of the kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// Its URL.
    pub(crate) url: String,
    // Both are removed when this is dropped.
    _folder: PrivateDirectory,
    _tasks: JoinSet<()>,
}

impl EmbeddedCluster {
    /// Starts a control plane with a number of simulated nodes, and a kubeconfig of its own whose context has this
    /// name.
    pub(crate) async fn start(name: &str, nodes: u32) -> Result<Self> {
        let folder = PrivateDirectory::new(name)?;
        let kubeconfig = folder.path().join("kubeconfig");
        let options = Options::system().context("cannot start a cluster")?;
        let endpoint = Endpoint::bind(0, &options.clock).await.context("cannot start a cluster")?;
        let cluster = Cluster::new(endpoint.aggregating(options)).with_certificate(endpoint.certificate());
        kubeconfig::write(&kubeconfig, &endpoint.kubeconfig(name))?;
        if nodes > 0 {
            let nodes = Nodes::new("node", usize::try_from(nodes).unwrap_or(usize::MAX));
            nodes.add_to(&cluster.admin()).await.context("cannot add nodes")?;
        }
        let url = endpoint.url();
        let mut tasks = JoinSet::new();
        let controllers = cluster.clone();
        tasks.spawn(async move { controllers.run(&Controllers::all()).await });
        tasks.spawn(async move {
            if let Err(error) = endpoint.serve(&cluster, pending()).await {
                tracing::error!(%error, "cannot serve");
            }
        });
        let config = config_of(&kubeconfig, None).await?;
        Ok(Self { config, kubeconfig, url, _folder: folder, _tasks: tasks })
    }
}
