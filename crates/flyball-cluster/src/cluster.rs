//! The server and its controllers together.

use crate::client::client_of;
use crate::controllers::{self, Controllers, Environment, OnPanic};
use crate::event_expiry;
use crate::metrics::Metrics;
use crate::node::{ContainerRule, Program, Rules, SimulatedProgram};
use flyball_core::{Clock, GroupResource, Rng};
use flyball_server::{DataDir, DataDirError, Options, Recording, RecordingError, Server, User};
use futures_util::future::join;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// An embedded Kubernetes control plane in one process: API server, controllers, scheduler and simulated nodes.
///
/// Clones share the cluster, which ends when the last one is dropped. Its objects are lost then, unless a data
/// directory [stores](Cluster::open) them.
#[derive(Clone)]
#[doc(alias = "envtest")]
pub struct Cluster {
    server: Server,
    clock: Clock,
    rng: Rng,
    certificate: Option<String>,
    metrics: Metrics,
    rules: Rules,
    program: Option<Arc<dyn Program>>,
    on_panic: Option<Arc<OnPanic>>,
    collected: Option<Arc<BTreeSet<GroupResource>>>,
}

impl Cluster {
    /// Creates a cluster with the default objects of Kubernetes.
    pub fn new(options: Options) -> Self {
        let (clock, rng) = (options.clock.clone(), options.rng.fork("controllers"));
        Self::around(Server::new(options), clock, rng)
    }

    /// Opens the cluster in a data directory, which stores all further writes: see [`Server::open`].
    ///
    /// # Errors
    ///
    /// If the directory is damaged or cannot be written.
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
        Ok(Self::around(Server::open(options, directory)?, clock, rng))
    }

    /// Creates a cluster with the objects, resource versions and revision of a recording as of one of its revisions.
    /// It is in memory only: see [`Server::replay`].
    ///
    /// # Errors
    ///
    /// If the revision is not recorded, or the recording is damaged or has invalid entries.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let path = std::env::temp_dir().join(format!("flyball-doc-recording-{}", std::process::id()));
    /// use flyball_cluster::{Cluster, Options, Recording};
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use kube::{Api, api::DeleteParams};
    ///
    /// let cluster = Cluster::new(Options::system()?);
    /// cluster.record(&path, 64 << 20)?;
    /// let before = cluster.server().revision();
    /// Api::<Namespace>::all(cluster.admin()).delete("kube-public", &DeleteParams::default()).await?;
    /// cluster.close();
    ///
    /// let replayed = Cluster::replay(Options::system()?, &Recording::open(&path)?, before)?;
    /// let found = Api::<Namespace>::all(replayed.admin()).get("kube-public").await?;
    /// assert_eq!(found.metadata.deletion_timestamp, None);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn replay(options: Options, recording: &Recording, revision: u64) -> Result<Self, RecordingError> {
        let (clock, rng) = (options.clock.clone(), options.rng.fork("controllers"));
        Ok(Self::around(Server::replay(options, recording, revision)?, clock, rng))
    }

    /// Records all objects and all further writes in a new file of at most `limit` bytes: see [`Server::record`].
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written, the objects exceed the limit, or the cluster is recorded already.
    pub fn record(&self, path: &Path, limit: u64) -> Result<(), RecordingError> {
        self.server.record(path, limit)
    }

    fn around(server: Server, clock: Clock, rng: Rng) -> Self {
        let (metrics, rules) = (Metrics::default(), Rules::default());
        Self { server, clock, rng, certificate: None, metrics, rules, program: None, on_panic: None, collected: None }
    }

    /// Ends the recording, if there is one, and releases the data directory, if there is one; then further writes are
    /// rejected. See [`Server::close`].
    pub fn close(&self) {
        self.server.close();
    }

    /// Takes a snapshot of all objects and their history, in microseconds.
    ///
    /// It does not contain the state of clients and controllers: take it while they are idle, or let forks settle.
    pub fn snapshot(&self) -> Snapshot {
        let Self { certificate, rules, program, .. } = self.clone();
        Snapshot { server: self.server.snapshot(), certificate, metrics: self.metrics.copied(), rules, program }
    }

    /// Creates an independent copy of the cluster; later writes to one do not affect the other.
    ///
    /// It takes its clock, randomness and webhooks from `options`, and is in memory only. Its controllers start with
    /// [`Cluster::run`].
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
    /// assert_eq!(shown.metadata.deletion_timestamp, None, "changes of the fork do not affect the original");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn fork(&self, options: Options) -> Self {
        self.snapshot().fork(options)
    }

    /// Publishes this certificate, in PEM, in every namespace, so that pods can verify the server.
    pub fn with_certificate(mut self, pem: impl Into<String>) -> Self {
        self.certificate = Some(pem.into());
        self
    }

    /// Sets the rules for containers on simulated nodes. The first rule that matches a container applies.
    pub fn with_rules(mut self, rules: impl IntoIterator<Item = ContainerRule>) -> Self {
        self.rules = rules.into_iter().collect();
        self
    }

    /// Sets the program that runs the containers on simulated nodes, instead of [`SimulatedProgram`].
    pub fn with_program(mut self, program: Arc<dyn Program>) -> Self {
        self.program = Some(program);
        self
    }

    /// Sets a callback for panics in the reconcile of a single object, with location and message. They are logged as
    /// well. Forks do not inherit the callback.
    pub fn on_panic(mut self, callback: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.on_panic = Some(Arc::new(callback));
        self
    }

    /// Limits the garbage collector to these resources: only their objects are deleted with their owners. Its watches
    /// of all resources are most of the work of a small simulation. Forks do not inherit the limit.
    pub fn with_collected(mut self, resources: impl IntoIterator<Item = GroupResource>) -> Self {
        self.collected = Some(Arc::new(resources.into_iter().collect()));
        self
    }

    /// Returns the program that runs the containers of pods.
    fn program(&self, rng: &Rng) -> Arc<dyn Program> {
        let simulated = || Arc::new(SimulatedProgram::new(self.rules.clone(), &rng.fork("programs")));
        self.program.clone().unwrap_or_else(|| simulated())
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the simulated metrics of the cluster.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the API server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Creates an in-process client that is authenticated as `user`.
    pub fn client(&self, user: User) -> kube::Client {
        client_of(&self.server, user)
    }

    /// Creates a client with all permissions.
    pub fn admin(&self) -> kube::Client {
        self.client(User::new("kubernetes-admin", &["system:masters"]))
    }

    /// Runs controllers until the future is dropped, which stops them immediately. Meanwhile, events are deleted an
    /// hour after their last write.
    pub async fn run(&self, controllers: &Controllers) {
        let program = |rng: &Rng| self.program(rng);
        let environment = Environment {
            server: &self.server,
            clock: &self.clock,
            rng: &self.rng,
            certificate: self.certificate.as_deref(),
            metrics: &self.metrics,
            on_panic: self.on_panic.clone(),
            collected: self.collected.clone(),
            program: &program,
        };
        let events = self.client(User::new("system:apiserver", &["system:masters"]));
        join(controllers::run(controllers, environment), event_expiry::run(events, self.clock.clone())).await;
    }
}

/// The state of a cluster at one point in time.
pub struct Snapshot {
    server: flyball_server::Snapshot,
    certificate: Option<String>,
    metrics: Metrics,
    rules: Rules,
    program: Option<Arc<dyn Program>>,
}

impl Snapshot {
    /// Creates an independent copy of the cluster, as [`Cluster::fork`] does.
    pub fn fork(&self, options: Options) -> Cluster {
        let (clock, rng) = (options.clock.clone(), options.rng.fork("controllers"));
        let (certificate, metrics) = (self.certificate.clone(), self.metrics.copied());
        let (rules, program) = (self.rules.clone(), self.program.clone());
        let (server, on_panic, collected) = (self.server.fork(options), None, None);
        Cluster { server, clock, rng, certificate, metrics, rules, program, on_panic, collected }
    }
}
