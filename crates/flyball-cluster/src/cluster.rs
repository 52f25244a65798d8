//! The server and its controllers together.

use crate::controllers::{self, Controllers};
use flyball_core::{Clock, Rng};
use flyball_server::{DataDir, DataDirError, Options, Server, User};
use http::Request;
use tower::ServiceExt;

/// A control plane.
///
/// Clones are the same cluster. It ends with its last clone; its objects do so too unless a data directory
/// [keeps](Cluster::open) them.
#[derive(Clone)]
pub struct Cluster {
    server: Server,
    clock: Clock,
    rng: Rng,
    certificate: Option<String>,
}

impl Cluster {
    /// Makes a cluster that holds what every cluster holds from the start.
    pub fn new(options: Options) -> Self {
        let (clock, rng) = (options.clock.clone(), options.rng.fork("controllers"));
        Self { server: Server::new(options), clock, rng, certificate: None }
    }

    /// Goes on with the cluster that a data directory holds, and keeps all that is written there: see [`Server::open`].
    ///
    /// # Errors
    ///
    /// When the directory is damaged or cannot be written to.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let path = std::env::temp_dir().join(format!("flyball-doc-{}", std::process::id()));
    /// use flyball_cluster::{Cluster, DataDir, Options};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, api::PostParams, core::ObjectMeta};
    ///
    /// let named = |name: &str| ConfigMap {
    ///     metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
    ///     ..ConfigMap::default()
    /// };
    /// let cluster = Cluster::open(Options::system()?, DataDir::open(&path)?)?;
    /// let made = Api::default_namespaced(cluster.admin()).create(&PostParams::default(), &named("kept")).await?;
    /// cluster.close();
    ///
    /// let cluster = Cluster::open(Options::system()?, DataDir::open(&path)?)?;
    /// let found: ConfigMap = Api::default_namespaced(cluster.admin()).get("kept").await?;
    /// assert_eq!(found, made);
    /// # cluster.close();
    /// # std::fs::remove_dir_all(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn open(options: Options, directory: DataDir) -> Result<Self, DataDirError> {
        let (clock, rng) = (options.clock.clone(), options.rng.fork("controllers"));
        Ok(Self { server: Server::open(options, directory)?, clock, rng, certificate: None })
    }

    /// Lets the data directory go, if there is one; from then on writes are refused. See [`Server::close`].
    pub fn close(&self) {
        self.server.close();
    }

    /// Takes a snapshot of all objects and their history, in microseconds.
    ///
    /// What clients and controllers know is not in it: take it while nothing is under way, or let forks settle.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { server: self.server.snapshot(), certificate: self.certificate.clone() }
    }

    /// Makes a cluster that goes on from here on its own: what is written to one never shows in the other.
    ///
    /// It takes its clock, randomness and webhooks from `options`, and is in memory alone. Its controllers do not run
    /// before they are [run](Cluster::run).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use flyball_cluster::{Cluster, Options};
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use kube::{Api, api::DeleteParams};
    ///
    /// let cluster = Cluster::new(Options::system()?);
    /// let fork = cluster.fork(Options::system()?);
    /// let namespaces = |cluster: &Cluster| Api::<Namespace>::all(cluster.admin());
    /// namespaces(&fork).delete("kube-public", &DeleteParams::default()).await?;
    ///
    /// let shown = namespaces(&cluster).get("kube-public").await?;
    /// assert_eq!(shown.metadata.deletion_timestamp, None, "what happens in the fork stays in the fork");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn fork(&self, options: Options) -> Self {
        self.snapshot().fork(options)
    }

    /// Has this certificate, in PEM, published in every namespace, so that pods know the server by it.
    pub fn with_certificate(mut self, pem: impl Into<String>) -> Self {
        self.certificate = Some(pem.into());
        self
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Returns the API server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Makes a client that the API server takes for `user`, in process.
    pub fn client(&self, user: User) -> kube::Client {
        let user = move |mut request: Request<kube::client::Body>| {
            request.extensions_mut().insert(user.clone());
            request
        };
        kube::Client::new(self.server.clone().map_request(user), "default")
    }

    /// Makes a client that may do everything.
    pub fn admin(&self) -> kube::Client {
        self.client(User::new("kubernetes-admin", &["system:masters"]))
    }

    /// Runs controllers for ever; dropping the future ends them at once.
    pub async fn run(&self, controllers: &Controllers) {
        controllers::run(self, controllers, &self.clock, &self.rng).await;
    }
}

/// All that a cluster holds at one moment.
pub struct Snapshot {
    server: flyball_server::Snapshot,
    certificate: Option<String>,
}

impl Snapshot {
    /// Makes a cluster that goes on from here on its own, as [`Cluster::fork`] does.
    pub fn fork(&self, options: Options) -> Cluster {
        let (clock, rng) = (options.clock.clone(), options.rng.fork("controllers"));
        Cluster { server: self.server.fork(options), clock, rng, certificate: self.certificate.clone() }
    }
}
