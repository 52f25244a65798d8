//! A control plane in this process, for the duration of a command.

use crate::cluster::connection::config_of;
use crate::cluster::kubeconfig;
use crate::cluster::real_time::InRealTime;
use crate::cluster::steppable::SteppableRuntime;
use crate::error::{Result, ResultExt};
use crate::files::private::PrivateDirectory;
use flyball_cluster::{Cluster, Controllers, Endpoint, Nodes, Options};
use flyball_core::Clock;
use kube::Config;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// A running control plane, which is removed when this is dropped.
pub(crate) struct EmbeddedCluster {
    /// Connection of an administrator.
    pub(crate) config: Config,
    /// Path of the kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// Its URL.
    pub(crate) url: String,
    cluster: Cluster,
    // Both are removed when this is dropped.
    _folder: Option<PrivateDirectory>,
    _tasks: JoinSet<()>,
}

impl EmbeddedCluster {
    /// Starts a control plane with a number of simulated nodes, and a kubeconfig of its own whose context has this
    /// name.
    pub(crate) async fn start(name: &str, nodes: u32) -> Result<Self> {
        let folder = PrivateDirectory::new(name)?;
        let kubeconfig = folder.path().join("kubeconfig");
        let (endpoint, options) = bind(Clock::system()).await?;
        let cluster = Cluster::new(options).with_certificate(endpoint.certificate());
        if nodes > 0 {
            let nodes = Nodes::new("node", usize::try_from(nodes).unwrap_or(usize::MAX));
            nodes.add_to(&cluster.admin()).await.context("cannot add nodes")?;
        }
        let served = Self::serve(cluster, endpoint, name, kubeconfig, &Handle::current()).await?;
        Ok(Self { _folder: Some(folder), ..served })
    }

    /// Starts a copy of the control plane in its current state, with the time of a runtime. Its kubeconfig is written
    /// to this path.
    ///
    /// Its controllers and nodes run on that runtime. Connections of clients are served in real time, so that a step
    /// does not exceed their timeouts.
    pub(crate) async fn fork(&self, name: &str, kubeconfig: PathBuf, time: &SteppableRuntime) -> Result<Self> {
        let (endpoint, options) = bind(time.clock().clone()).await?;
        let (webhooks, aggregated) = (InRealTime::new(options.webhooks), InRealTime::new(options.aggregated));
        let options = Options { webhooks: Arc::new(webhooks), aggregated: Arc::new(aggregated), ..options };
        let cluster = self.cluster.fork(options).with_certificate(endpoint.certificate());
        Self::serve(cluster, endpoint, name, kubeconfig, time.handle()).await
    }

    /// Serves a control plane, with its controllers on a runtime.
    async fn serve(
        cluster: Cluster,
        endpoint: Endpoint,
        name: &str,
        kubeconfig: PathBuf,
        runtime: &Handle,
    ) -> Result<Self> {
        kubeconfig::write(&kubeconfig, &endpoint.kubeconfig(name))?;
        let url = endpoint.url();
        let mut tasks = JoinSet::new();
        let controllers = cluster.clone();
        tasks.spawn_on(async move { controllers.run(&Controllers::all()).await }, runtime);
        let served = cluster.clone();
        tasks.spawn(async move {
            if let Err(error) = endpoint.serve(&served, pending()).await {
                tracing::error!(%error, "cannot serve");
            }
        });
        let config = config_of(&kubeconfig, None).await?;
        Ok(Self { config, kubeconfig, url, cluster, _folder: None, _tasks: tasks })
    }
}

/// Binds a free port, and returns the options of a server behind it with a clock.
async fn bind(clock: Clock) -> Result<(Endpoint, Options)> {
    let options = Options { clock, ..Options::system().context("cannot start a cluster")? };
    let endpoint = Endpoint::bind(0, &options.clock).await.context("cannot start a cluster")?;
    let options = endpoint.aggregating(options);
    Ok((endpoint, options))
}
