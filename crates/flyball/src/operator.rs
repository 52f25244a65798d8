//! All controllers of one process, and what they share.
//!
//! Takes the declarations of the controllers and opens one watch per kind and namespace for all of them; starts and
//! stops everything; tells how it is. It knows no object: those pass from watchers to caches to queues without it.

mod args;
mod describe;
mod guard;
mod health;
mod log;
mod metrics;
#[cfg(feature = "otel")]
mod otel;
#[cfg(not(feature = "otel"))]
#[path = "operator/without_otel.rs"]
mod otel;
mod run;
mod running;
mod settings;
mod task;

pub use describe::{
    DefinitionDescription, Description, LeaseDescription, PolicyDescription, VersionDescription, WebhookDescription,
};
pub use task::{Task, TaskContext};

use crate::cache::{Cache, Plan};
use crate::context::{OnError, OnSettled};
use crate::controller::{Controller, Declaration, Reconcile};
use crate::election::LeaderElection;
use crate::kind::{AnyResource, Resource};
use crate::panics::OnPanic;
use crate::policy::{self, Policy};
use crate::rbac::{self, Grant};
use crate::webhook::{self, Certificates, Live, Webhook, Webhooks};
use flyball_core::{Clock, ObjectKey, Rng};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A set of controllers that run in one process, under one name.
///
/// [`main`](Self::main) makes a program of it; [`run`](Self::run) runs it within another program, or in a simulation.
///
/// ```
/// # use flyball::{Action, Context, Controller, Operator, Reconcile, Result, RunError};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # struct Sites;
/// # impl Reconcile for Sites {
/// #     type Resource = ConfigMap;
/// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
/// # }
/// async fn within_another_program(client: kube::Client) -> Result<(), RunError> {
///     let operator = Operator::new("site-operator").namespaces(["blue", "green"]).controller(Controller::new(Sites));
///     operator.run(client, async { drop(tokio::signal::ctrl_c().await) }).await
/// }
/// ```
///
/// All controllers share the caches: however many of them deal with a kind, it is watched once. A watch that fails, because it is
/// not allowed for instance, is tried again until it works; controllers that need it wait, the others run.
///
/// # Kinds that are not installed
///
/// A kind whose CRD is not there, or not there any more, is a kind without objects: nobody waits for it, and `/readyz` says so
/// without failing. Once the CRD appears, within five seconds, its objects come as new ones; when it goes, they are gone to all
/// who watch them, and it is waited for again. So an operator may be started before its CRDs, and may deal with kinds
/// that some clusters do not have. What is written to such a kind fails, and is tried again with growing waits.
///
/// The API server has to say three times in a row that it does not know the kind, since of several servers one may not
/// have heard of a new CRD yet. While the cache has objects of the kind, it has to say so for 30 seconds, and discovery
/// as well: a server that starts, or an aggregated one that is away, deletes nothing.
///
/// # Lists that lack objects
///
/// A list that makes up for a break and lacks more than 30 % of the known objects, and more than ten, is confirmed by a
/// second one before any of them counts as deleted.
pub struct Operator {
    name: String,
    version: Option<&'static str>,
    field_manager: Option<String>,
    controllers: Vec<Declaration>,
    plans: Vec<Plan>,
    crds: Vec<CustomResourceDefinition>,
    webhooks: Vec<webhook::Declaration>,
    policies: Vec<policy::Declaration>,
    webhook_live: Arc<OnceLock<Live>>,
    webhook_address: Option<SocketAddr>,
    webhook_url: Option<String>,
    webhook_certificates: Certificates,
    home: Option<String>,
    installed: Option<String>,
    namespaces: BTreeSet<String>,
    clock: Clock,
    rng: Rng,
    instance: Option<String>,
    host: String,
    figures: Vec<Box<Register>>,
    metrics_address: Option<SocketAddr>,
    protects_metrics: bool,
    metrics_directory: Option<PathBuf>,
    health_address: Option<SocketAddr>,
    election: Option<LeaderElection>,
    tasks: Vec<Task>,
    grace: Duration,
    longest_stale: Duration,
    on_error: Vec<Arc<OnError>>,
    on_settled: Vec<Arc<OnSettled>>,
    on_panic: Vec<Arc<OnPanic>>,
}

/// Registers metrics.
type Register = dyn FnOnce(&mut Registry) + Send;

/// Why an operator could not run.
///
/// ```
/// use flyball::{Operator, RunError};
///
/// # async fn start(client: kube::Client) {
/// match Operator::new("no name for a field manager").run(client, std::future::pending()).await {
///     Err(RunError::Name { why, .. }) => eprintln!("{why}"),
///     other => other.expect("everything else is in order"),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Its name cannot be a field manager and sign events.
    #[error("the name {name:?} is of no use to the API server: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// It is limited to something that cannot be a namespace.
    #[error("the namespace {name:?} cannot exist: {why}")]
    Namespace {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two controllers have one name.
    #[error(
        "two controllers are named {name:?}, of {first} and of {second}: give one of them another by Controller::name"
    )]
    SameName {
        /// The name.
        name: String,
        /// What the first one reconciles, such as `widgets.example.com`.
        first: String,
        /// What the second one reconciles.
        second: String,
    },
    /// Two webhooks are of one kind.
    #[error("two webhooks are of {kind}: declare one that does both")]
    SameWebhook {
        /// The kind, such as `widgets.example.com`.
        kind: String,
    },
    /// What of a kind is to be kept in memory is declared wrongly.
    #[error("the cache of {kind} is declared wrongly: {why}")]
    Cache {
        /// The kind, such as `widgets.example.com`.
        kind: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two policies are of one kind.
    #[error("two policies are of {kind}: declare one that says both")]
    SamePolicy {
        /// The kind, such as `widgets.example.com`.
        kind: String,
    },
    /// A controller is declared wrongly, or its [deferred](Controller::deferred) reconciler could not be made.
    #[error("controller {controller} cannot be set up")]
    SetUp {
        /// The name of the controller.
        controller: String,
        /// Why not.
        source: Box<dyn Error + Send + Sync>,
    },
    /// There is no connecting to the API server with this configuration.
    #[error("cannot connect to the cluster")]
    Configuration(#[source] kube::Error),
    /// It cannot listen where it was told to.
    #[error(
        "cannot listen on {address}; --metrics-addr, --health-addr and --webhook-addr choose others, 0 chooses none"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The settings of its leader election make no sense.
    #[error("leader election is set up wrongly: {why}")]
    LeaderElection {
        /// What is wrong with them.
        why: String,
    },
    /// It led, and does not any more. Everything was stopped at once.
    #[error("lost the lease {lease}: {why}")]
    LeadershipLost {
        /// Namespace and name of the lease.
        lease: String,
        /// How it came about.
        why: String,
    },
    /// A [`Task`] failed. The others were ended in order.
    #[error("task {name} failed")]
    Task {
        /// The name of the task.
        name: String,
        /// Its error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A task of the operator itself panicked.
    #[error("a task of the operator stopped")]
    Stopped(#[source] tokio::task::JoinError),
}

impl RunError {
    /// Tells whether somebody has to correct the operator's code or settings; if not, it may do to run it again.
    pub(crate) fn is_mistake(&self) -> bool {
        match self {
            Self::Name { .. } | Self::Namespace { .. } | Self::SameName { .. } => true,
            Self::SameWebhook { .. } | Self::SamePolicy { .. } | Self::SetUp { .. } => true,
            Self::LeaderElection { .. } | Self::Cache { .. } => true,
            Self::Configuration(_)
            | Self::Listen { .. }
            | Self::LeadershipLost { .. }
            | Self::Task { .. }
            | Self::Stopped(_) => false,
        }
    }
}

impl Operator {
    /// Makes an operator without controllers.
    ///
    /// The name is its field manager and stands in its events; it should stay the same from release to release.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: None,
            field_manager: None,
            controllers: Vec::new(),
            plans: Vec::new(),
            crds: Vec::new(),
            webhooks: Vec::new(),
            policies: Vec::new(),
            webhook_live: Arc::default(),
            webhook_address: None,
            webhook_url: None,
            webhook_certificates: Certificates::Own,
            home: None,
            installed: None,
            namespaces: BTreeSet::new(),
            clock: Clock::system(),
            rng: Rng::from_os(),
            instance: None,
            host: String::new(),
            figures: Vec::new(),
            metrics_address: None,
            protects_metrics: false,
            metrics_directory: None,
            health_address: None,
            election: None,
            tasks: Vec::new(),
            grace: Duration::from_secs(25),
            longest_stale: Duration::from_secs(60),
            on_error: Vec::new(),
            on_settled: Vec::new(),
            on_panic: Vec::new(),
        }
    }

    /// Says which version it is, for `--version` of its [program](Self::main) and its [description](Self::describe).
    ///
    /// A program with [flags of its own](Self::main_with) says it by `#[command(version)]` on these.
    ///
    /// ```no_run
    /// # use flyball::Operator;
    /// fn main() -> std::process::ExitCode {
    ///     Operator::new("site-operator").version(env!("CARGO_PKG_VERSION")).main()
    /// }
    /// ```
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = Some(version);
        self
    }

    /// Names the one who sets the fields that the operator sets; the operator's name unless told otherwise.
    ///
    /// This is for an operator that takes over what another one, of another name, has made.
    pub fn field_manager(mut self, manager: impl Into<String>) -> Self {
        self.field_manager = Some(manager.into());
        self
    }

    /// Adds a controller.
    pub fn controller<R: Reconcile>(mut self, controller: Controller<R>) -> Self {
        self.controllers.push(controller.into_declaration());
        self
    }

    /// Says what of a kind is watched and kept in memory: fewer objects or fewer fields than all. Without this, it is all of what
    /// controllers deal with, but for the data of [secrets](Cache#secrets).
    ///
    /// A kind that no controller deals with is watched as well, for [tasks](Self::task) to read.
    pub fn cache<T: AnyResource>(mut self, cache: Cache<T>) -> Self {
        self.plans.push(cache.into_plan());
        self
    }

    /// Adds the definition of a custom resource to the [manifests](Self::manifests), which a derived type returns from
    /// [`crd`](kube::CustomResourceExt::crd). The operator does not install it.
    ///
    /// Further versions of a kind join the definition that was given first, whose version is the one that objects are stored in;
    /// what converts them is [`Webhook::converts`].
    ///
    /// ```
    /// # use flyball::Operator;
    /// # use kube::{CustomResource, CustomResourceExt};
    /// # use serde::{Deserialize, Serialize};
    /// # mod v1alpha1 {
    /// #     use super::*;
    /// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
    /// #     #[kube(group = "example.com", version = "v1alpha1", kind = "Site")]
    /// #     pub struct SiteSpec {}
    /// # }
    /// # mod v1 {
    /// #     use super::*;
    /// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
    /// #     #[kube(group = "example.com", version = "v1", kind = "Site")]
    /// #     pub struct SiteSpec {}
    /// # }
    /// # fn main() {
    /// let operator = Operator::new("site-operator").crd(v1alpha1::Site::crd()).crd(v1::Site::crd());
    /// let versions = &operator.describe().definitions[0].versions;
    /// assert!(versions[0].storage && !versions[1].storage && versions[1].name == "v1");
    /// # }
    /// ```
    pub fn crd(mut self, crd: CustomResourceDefinition) -> Self {
        match self.crds.iter_mut().find(|known| known.metadata.name == crd.metadata.name) {
            Some(known) => {
                for mut version in crd.spec.versions {
                    version.storage = false;
                    if known.spec.versions.iter().all(|before| before.name != version.name) {
                        known.spec.versions.push(version);
                    }
                }
            }
            None => self.crds.push(crd),
        }
        self
    }

    /// Adds what is to be asked before objects of a kind are stored, or shown in another version.
    pub fn webhook<T: Resource + Serialize>(mut self, webhook: Webhook<T>) -> Self {
        self.webhooks.push(webhook.declared());
        self
    }

    /// Adds rules that the API server itself keeps, to the [manifests](Self::manifests). The operator does not install them.
    pub fn policy<T: Resource>(mut self, policy: Policy<T>) -> Self {
        self.policies.push(policy.declared());
        self
    }

    /// Serves [webhooks](Self::webhook) at this address, over TLS, and tells the API server so.
    pub fn webhook_address(mut self, address: SocketAddr) -> Self {
        self.webhook_address = Some(address);
        self
    }

    /// Has the API server call webhooks at this URL, such as `https://10.0.0.7:9443`, instead of through the operator's
    /// service. Port 0 stands for the one that is listened on.
    pub fn webhook_url(mut self, url: impl Into<String>) -> Self {
        self.webhook_url = Some(url.into());
        self
    }

    /// Takes the certificate of webhooks from here, instead of making it.
    pub fn webhook_certificates(mut self, certificates: Certificates) -> Self {
        self.webhook_certificates = certificates;
        self
    }

    /// Says in which namespace the operator lives: its service and what its replicas share. Unless told otherwise this is the
    /// namespace of its pod, or of the kubeconfig's context, and in [manifests](Self::manifests) `default`.
    pub fn home(mut self, namespace: impl Into<String>) -> Self {
        self.home = Some(namespace.into());
        self
    }

    /// Says under which name it is installed, its own unless told otherwise: that of its lease and roles, and what the names of the
    /// configurations, the service and the certificates of its webhooks begin with. Two that are in one cluster need two. Whom
    /// its fields belong to and who signs its events does not change by it.
    pub fn installed_as(mut self, name: impl Into<String>) -> Self {
        self.installed = Some(name.into());
        self
    }

    fn installed_name(&self) -> &str {
        self.installed.as_deref().unwrap_or(&self.name)
    }

    /// Returns the webhooks that were added so far, to be called within the process. They answer once the operator runs.
    pub fn webhooks(&self) -> Webhooks {
        Webhooks::new(&self.webhooks, self.webhook_live.clone())
    }

    /// Limits the operator to these namespaces; none means all of them. Kinds without a namespace are not limited.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Takes the time of day from here, not from the machine.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Takes chance from here, not from the machine.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }

    /// Names this instance among those of the operator, in events; the operator's name unless told otherwise.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Adds metrics of the operator's own to those that `/metrics` shows; `register` runs when the operator does.
    ///
    /// Those that every operator has go by the names that controller-runtime gives them, so that its dashboards show them. The
    /// [four golden signals](https://sre.google/sre-book/monitoring-distributed-systems/) are among them, by controller:
    ///
    /// | Signal | Series |
    /// |---|---|
    /// | latency, from when an object was to be looked at until that was done | `flyball_latency_seconds` |
    /// | traffic | `controller_runtime_reconcile_total` |
    /// | errors | `controller_runtime_reconcile_errors_total` |
    /// | saturation, from 0 to 1 of the workers | `flyball_saturation` |
    ///
    /// ```
    /// use flyball::Operator;
    /// use prometheus_client::metrics::gauge::Gauge;
    ///
    /// let sites: Gauge = Gauge::default(); // whose clones are the same gauge
    /// let shown = sites.clone();
    /// Operator::new("site-operator").metrics(|registry| registry.register("sites", "Sites that are up", shown));
    /// ```
    pub fn metrics(mut self, register: impl FnOnce(&mut Registry) + Send + 'static) -> Self {
        self.figures.push(Box::new(register));
        self
    }

    /// Serves `/metrics` at this address: in the clear and to everyone, unless they are [protected](Self::protect_metrics).
    pub fn metrics_address(mut self, address: SocketAddr) -> Self {
        self.metrics_address = Some(address);
        self
    }

    /// Serves metrics over TLS, and to those alone who show a token of somebody who may `get` the URL `/metrics` in the cluster.
    /// Whoever has none gets 401, who may not 403, and 500 comes while the API server cannot be asked; what it said is
    /// believed for a minute.
    ///
    /// The [manifests](Self::manifests) then hold a ClusterRole for readers, whose name ends in `-metrics-reader`, and the
    /// [rules](Self::rules) let the operator ask.
    ///
    /// The certificate is one that the process makes for itself at start, which a scraper cannot verify, unless there are
    /// [others](Self::metrics_certificate).
    ///
    /// ```
    /// # use flyball::Operator;
    /// let operator = Operator::new("site-operator").protect_metrics(true);
    /// let asks = |resource: &str| operator.rules().iter().any(|rule| rule.resources.as_ref().unwrap()[0] == resource);
    /// assert!(asks("tokenreviews") && asks("subjectaccessreviews"));
    /// ```
    pub fn protect_metrics(mut self, protect: bool) -> Self {
        self.protects_metrics = protect;
        self
    }

    /// Serves [protected](Self::protect_metrics) metrics with `tls.crt` and `tls.key` in this directory, which are read again when
    /// they change.
    pub fn metrics_certificate(mut self, directory: impl Into<PathBuf>) -> Self {
        self.metrics_directory = Some(directory.into());
        self
    }

    /// Serves `/healthz` and `/readyz` at this address.
    pub fn health_address(mut self, address: SocketAddr) -> Self {
        self.health_address = Some(address);
        self
    }

    /// Gives reconciles and tasks this time to end when the operator is shut down: 25 seconds unless told otherwise. What is
    /// to be done then takes 5 more at most, so that all fits into the 30 seconds that a pod has.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Is ready, by `/readyz`, as long as no watch has failed for longer than this: 60 seconds unless told otherwise.
    ///
    /// The page has a line for each watch. One that fails is shown from its first moment on, as in `[-]watch widgets
    /// failing for 37s: connection refused`, and in the metric `flyball_watch_failing_seconds`; the page answers with
    /// 503 once it has failed for longer than this. `/healthz` does not depend on watches: an operator that cannot
    /// reach its API server does not get better by being restarted.
    pub fn longest_stale(mut self, bound: Duration) -> Self {
        self.longest_stale = bound;
        self
    }

    /// Has one of several replicas act, and the others wait. Without this, all act.
    ///
    /// A program made by [`main`](Self::main) does this in a pod anyway, see there.
    pub fn leader_election(mut self, election: LeaderElection) -> Self {
        self.election = Some(election);
        self
    }

    /// Calls this with every error that a reconcile returned, or the error of the deadline that it passed, its controller and its
    /// object, for instance to report it elsewhere.
    ///
    /// Of several, each is told. It is called on the way to the next reconcile and should be quick; if it panics, that
    /// is logged. Panics of reconciles are no errors that were returned; they are in the metrics and the log, and go to
    /// [`on_panic`](Self::on_panic).
    pub fn on_error(mut self, tell: impl Fn(&str, &ObjectKey, &crate::Error) + Send + Sync + 'static) -> Self {
        self.on_error.push(Arc::new(tell));
        self
    }

    /// Calls this after each reconcile that leaves nothing to be tried again because it failed, with its controller and its
    /// object: it succeeded, the object is gone, or the error waits for a change. It is the counterpart of
    /// [`on_error`](Self::on_error).
    pub fn on_settled(mut self, tell: impl Fn(&str, &ObjectKey) + Send + Sync + 'static) -> Self {
        self.on_settled.push(Arc::new(tell));
        self
    }

    /// Calls this with every panic of the operator's code that was caught, in a reconcile, a mapping function, a predicate, an
    /// index, a source or a webhook: the place, which names controller and object as far as they are known, and the message.
    ///
    /// It is called on the way to whatever comes next and should be quick. A panic of a [task](Self::task) ends the operator,
    /// whose error tells of it.
    pub fn on_panic(mut self, tell: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.on_panic.push(Arc::new(tell));
        self
    }

    /// Runs something beside the controllers.
    pub fn task(mut self, task: Task) -> Self {
        self.tasks.push(task);
        self
    }

    /// Returns the RBAC rules that the operator needs: one for each resource, in the order of group and resource, then
    /// those that controllers [allow](Controller::allows) on top. What it needs in its own namespace only, for leases and
    /// certificates, is in the [manifests](Self::manifests).
    pub fn rules(&self) -> Vec<PolicyRule> {
        let mut rules = rbac::rules(&self.grants());
        rules.extend(self.extra_rules());
        rules.extend(self.cluster_rules());
        rules
    }

    fn extra_rules(&self) -> Vec<PolicyRule> {
        self.controllers.iter().flat_map(|controller| controller.rules.clone()).collect()
    }

    /// Returns the rules for what tells the API server of webhooks, and for asking who may see metrics.
    fn cluster_rules(&self) -> Vec<PolicyRule> {
        let mut rules = webhook::cluster_rules(self.installed_name(), &self.webhook_certificates, &self.webhooks);
        if self.protects_metrics {
            rules.extend(guard::rules());
        }
        rules
    }

    /// Returns what has to be in the cluster before the operator: the [definitions](Self::crd), the roles that grant its
    /// [rules](Self::rules), what leads the API server to its [webhooks](Self::webhook), and its [policies](Self::policy). The roles
    /// are one `ClusterRole`, or, for an operator that is limited to namespaces, a `Role` in each of them, and a `ClusterRole`
    /// for what lives in none; and a `Role` in its [home](Self::home) for each of the lease that
    /// [leads](Self::leader_election) and the certificates of webhooks.
    pub fn manifests(&self) -> Vec<Value> {
        let name = self.installed_name();
        let (home, certificates) = (self.home.as_deref().unwrap_or("default"), &self.webhook_certificates);
        let crd = |crd: &CustomResourceDefinition| {
            let mut crd = serde_json::to_value(crd).expect("a definition is a JSON object");
            crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
            crd["kind"] = "CustomResourceDefinition".into();
            webhook::convert_crd(&mut crd, name, home, certificates, &self.webhooks);
            crd
        };
        let roles = rbac::roles(name, &self.grants(), &self.extra_rules(), &self.cluster_rules(), &self.namespaces);
        let election = self
            .election
            .as_ref()
            .map(|election| rbac::election_role(name, home, election.lease.as_deref().unwrap_or(name)));
        let port = self.webhook_address.map_or(webhook::PORT, |address| address.port());
        let webhooks = webhook::manifests(name, home, port, certificates, &self.webhooks);
        let policies = self.policies.iter().flat_map(|policy| policy.manifests(name));
        let reader = self.protects_metrics.then(|| guard::reader(name));
        self.crds.iter().map(crd).chain(roles).chain(reader).chain(election).chain(webhooks).chain(policies).collect()
    }

    fn grants(&self) -> Vec<Grant> {
        let declared = self.controllers.iter().flat_map(|controller| controller.grants.clone());
        let watched = self.plans.iter().map(|plan| Grant::new(&plan.kind, "", &["get", "list", "watch"]));
        let place = |grant: Grant| match self.plans.iter().find(|plan| grant.is_of(&plan.kind)) {
            Some(plan) => grant.within(&plan.namespaces),
            None => grant,
        };
        declared.chain(watched).map(place).chain([Grant::events()]).collect()
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let controllers: Vec<&str> = self.controllers.iter().map(|controller| &*controller.name).collect();
        f.debug_struct("Operator").field("name", &self.name).field("controllers", &controllers).finish_non_exhaustive()
    }
}
