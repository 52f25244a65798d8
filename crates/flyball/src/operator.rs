//! The assembly: creates a running process from the declarations of controllers, webhooks and tasks.
//!
//! It opens one watch per kind and namespace for all controllers, starts and stops everything, and serves health and
//! metrics. Objects do not pass through it: they go from watchers to caches to queues. No other module imports it.

mod args;
mod debug;
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
mod servers;
mod settings;
mod start;
mod task;

pub use guard::FORWARDED_AUTHORIZATION;
pub use servers::{HealthServer, MetricsServer, WebhookServer};
pub use task::{Task, TaskContext};

use crate::cache::{Cache, Plan};
use crate::context::{OnError, OnSuccess};
use crate::controller::{Controller, Declaration, Reconcile};
use crate::election::LeaderElection;
use crate::kind::{AnyResource, Resource};
use crate::panics::OnPanic;
use crate::policy::{self, Policy};
use crate::rbac::{self, Grant};
use crate::webhook::{self, OperatorState, Webhook, Webhooks};
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
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A set of controllers that run in one process, under one name.
///
/// [`main`](Self::main) runs it as a program; [`run`](Self::run) runs it within another program or a simulation.
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
/// All controllers share the caches: each kind is watched once, regardless of the number of controllers that use it. A
/// watch that fails, for example because it is forbidden, is retried without end; controllers that need it wait, the
/// others run.
///
/// # Kinds that are not installed
///
/// A kind without a CRD is a kind without objects: no controller waits for it, and `/readyz` reports it without
/// failing. Within five seconds after the CRD was installed, its objects are delivered as new ones; when the CRD is
/// removed, they are deleted for all listeners. So an operator may start before its CRDs, and may use kinds that some
/// clusters do not have. Writes of such a kind fail, and are retried with backoff.
///
/// A kind counts as removed after the API server has reported it as missing three times in a row, as one of several
/// servers may not serve a new CRD yet. If the cache has objects of the kind, the API server must report it as
/// missing for 30 seconds, and discovery as well: a starting server, or an unavailable aggregated one, deletes
/// nothing.
///
/// # Incomplete lists
///
/// If a list after an interruption lacks more than 30 % of the known objects, and more than ten, a second list has to
/// confirm it before any of them counts as deleted.
#[doc(alias = "Manager")]
#[must_use = "an operator does nothing until it runs"]
pub struct Operator {
    name: String,
    version: Option<&'static str>,
    field_manager: Option<String>,
    controllers: Vec<Declaration>,
    plans: Vec<Plan>,
    crds: Vec<CustomResourceDefinition>,
    aggregated_roles: Vec<Value>,
    webhooks: Vec<webhook::Declaration>,
    policies: Vec<policy::Declaration>,
    webhook_live: Arc<OnceLock<OperatorState>>,
    webhook_server: WebhookServer,
    namespace: Option<String>,
    installed: Option<String>,
    namespaces: BTreeSet<String>,
    clock: Clock,
    /// True if long computations run on other threads: unless a clock is set, since these are not reproducible.
    has_threads: bool,
    rng: Rng,
    instance: Option<String>,
    host: String,
    custom_metrics: Vec<Box<Register>>,
    metrics_server: MetricsServer,
    health_server: HealthServer,
    election: Option<LeaderElection>,
    tasks: Vec<Task>,
    grace: Duration,
    has_ledger: bool,
    on_error: Vec<Arc<OnError>>,
    on_success: Vec<Arc<OnSuccess>>,
    on_panic: Vec<Arc<OnPanic>>,
}

/// Registers metrics.
type Register = dyn FnOnce(&mut Registry) + Send;

/// An error that ends an operator.
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
    /// The name of the operator is invalid as a field manager or in events.
    #[error("invalid operator name {name:?}: {why}")]
    Name {
        /// The name.
        name: String,
        /// The reason.
        why: String,
    },
    /// The name of a namespace is invalid.
    #[error("invalid namespace {name:?}: {why}")]
    Namespace {
        /// The name.
        name: String,
        /// The reason.
        why: String,
    },
    /// Two controllers have the same name.
    #[error("two controllers are named {name:?} ({first}, {second}): rename one with Controller::name")]
    SameName {
        /// The name.
        name: String,
        /// The kind of the first one, such as `widgets.example.com`.
        first: String,
        /// The kind of the second one.
        second: String,
    },
    /// Two webhooks are declared for the same kind.
    #[error("duplicate webhook for {kind}: merge the declarations")]
    SameWebhook {
        /// The kind, such as `widgets.example.com`.
        kind: String,
    },
    /// The declaration of a cache is invalid.
    #[error("invalid cache of {kind}: {why}")]
    Cache {
        /// The kind, such as `widgets.example.com`.
        kind: String,
        /// The reason.
        why: String,
    },
    /// Two policies are declared for the same kind.
    #[error("duplicate policy for {kind}: merge the declarations")]
    SamePolicy {
        /// The kind, such as `widgets.example.com`.
        kind: String,
    },
    /// The declaration of a controller is invalid, or its [deferred](Controller::deferred) reconciler could not be
    /// made.
    #[error("cannot set up controller {controller}")]
    SetUp {
        /// The name of the controller.
        controller: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The configuration of the connection to the API server is invalid.
    #[error("cannot connect to the cluster")]
    Configuration(#[source] kube::Error),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The settings of the leader election are invalid.
    #[error("invalid leader election settings: {why}")]
    LeaderElection {
        /// The reason.
        why: String,
    },
    /// The lease was lost. Everything was stopped at once.
    #[error("lost the lease {lease}: {why}")]
    LeadershipLost {
        /// Namespace and name of the lease.
        lease: String,
        /// The reason.
        why: String,
    },
    /// A [`Task`] failed. The others were stopped in order.
    #[error("task {name} failed")]
    Task {
        /// The name of the task.
        name: String,
        /// Its error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An internal task of the operator panicked.
    #[error("an internal task of the operator stopped")]
    Stopped(#[source] tokio::task::JoinError),
}

impl RunError {
    /// Returns true if the operator's code or settings have to be corrected, so that a restart does not help.
    pub(crate) fn is_configuration_error(&self) -> bool {
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
    /// Creates an operator without controllers.
    ///
    /// The name is the field manager and the reporting controller of events; do not change it between releases.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: None,
            field_manager: None,
            controllers: Vec::new(),
            plans: Vec::new(),
            crds: Vec::new(),
            aggregated_roles: Vec::new(),
            webhooks: Vec::new(),
            policies: Vec::new(),
            webhook_live: Arc::default(),
            webhook_server: WebhookServer::default(),
            namespace: None,
            installed: None,
            namespaces: BTreeSet::new(),
            clock: Clock::system(),
            has_threads: true,
            rng: Rng::from_os(),
            instance: None,
            host: String::new(),
            custom_metrics: Vec::new(),
            metrics_server: MetricsServer::default(),
            health_server: HealthServer::default(),
            election: None,
            tasks: Vec::new(),
            grace: Duration::from_secs(25),
            has_ledger: true,
            on_error: Vec::new(),
            on_success: Vec::new(),
            on_panic: Vec::new(),
        }
    }

    /// Sets the version, for `--version` of its [program](Self::main) and its [description](Self::describe).
    ///
    /// A program with [flags of its own](Self::main_with) sets `#[command(version)]` on them instead.
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

    /// Sets the field manager of server-side applies; the operator's name by default.
    ///
    /// Set it for an operator that takes over objects from an operator with another name.
    #[doc(alias = "FieldOwner")]
    #[doc(alias = "ForceOwnership")]
    pub fn field_manager(mut self, manager: impl Into<String>) -> Self {
        self.field_manager = Some(manager.into());
        self
    }

    /// Adds a controller.
    pub fn controller<R: Reconcile>(mut self, controller: Controller<R>) -> Self {
        self.controllers.push(controller.into_declaration());
        self
    }

    /// Restricts the cache of a kind to fewer objects or fewer fields. By default it holds everything of the kinds
    /// that controllers use, except the data of [secrets](Cache#secrets).
    ///
    /// A kind that no controller uses is watched as well, for [tasks](Self::task) to read.
    pub fn cache<T: AnyResource>(mut self, cache: Cache<T>) -> Self {
        self.plans.push(cache.into_plan());
        self
    }

    /// Adds a custom resource definition to the [manifests](Self::manifests), as a derived type returns it from
    /// [`crd`](kube::CustomResourceExt::crd). The operator does not install it.
    ///
    /// Further versions of a kind are added to the first definition, whose version is the storage version;
    /// [`Webhook::converts`] converts them.
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
    #[doc(alias = "CustomResourceExt")]
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

    /// Adds a ClusterRole for users to the [manifests](Self::manifests). Kubernetes aggregates it to the ClusterRoles
    /// of these levels, such as `admin`, `edit` and `view`. The operator itself does not get its permissions.
    ///
    /// ```
    /// # use flyball::Operator;
    /// # use k8s_openapi::api::rbac::v1::PolicyRule;
    /// let rule = PolicyRule { verbs: vec!["get".into()], ..PolicyRule::default() };
    /// let operator = Operator::new("site-operator").aggregated_role("sites-view", &["view"], vec![rule]);
    /// let role = operator.manifests().into_iter().find(|object| object["metadata"]["name"] == "sites-view").unwrap();
    /// assert_eq!(role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"], "true");
    /// ```
    #[doc(alias = "aggregate-to-edit")]
    #[doc(alias = "aggregationRule")]
    pub fn aggregated_role(mut self, name: &str, levels: &[&str], rules: Vec<PolicyRule>) -> Self {
        self.aggregated_roles.push(rbac::aggregated_role(name, levels, &rules));
        self
    }

    /// Adds the admission and conversion webhooks of a kind.
    #[doc(alias = "NewWebhookManagedBy")]
    pub fn webhook<T: Resource + Serialize>(mut self, webhook: Webhook<T>) -> Self {
        self.webhooks.push(webhook.declared());
        self
    }

    /// Adds a policy, which the API server itself enforces, to the [manifests](Self::manifests). The operator does
    /// not install it.
    #[doc(alias = "ValidatingAdmissionPolicy")]
    #[doc(alias = "MutatingAdmissionPolicy")]
    pub fn policy<T: Resource>(mut self, policy: Policy<T>) -> Self {
        self.policies.push(policy.declared());
        self
    }

    /// Sets address, URL and certificates of the [webhooks](Self::webhook).
    #[doc(alias = "WebhookServer")]
    pub fn webhook_server(mut self, server: WebhookServer) -> Self {
        self.webhook_server = server;
        self
    }

    /// Sets the namespace of the operator itself: of its service, its lease and its secret. Defaults to the namespace
    /// of its pod, or of the kubeconfig's context, and in [manifests](Self::manifests) to `default`.
    #[doc(alias = "LeaderElectionNamespace")]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the name of the installation, the operator's name by default: the name of its lease and roles, and the
    /// prefix of its webhook configurations, service and certificates. Two installations in a cluster need different
    /// names. Field manager and reporter of events stay the same.
    pub fn installed_as(mut self, name: impl Into<String>) -> Self {
        self.installed = Some(name.into());
        self
    }

    fn installed_name(&self) -> &str {
        self.installed.as_deref().unwrap_or(&self.name)
    }

    /// Returns the webhooks that were added so far, for calls within the process. They answer once the operator runs.
    pub fn webhooks(&self) -> Webhooks {
        Webhooks::new(&self.webhooks, self.webhook_live.clone())
    }

    /// Restricts the operator to these namespaces; all if empty. Cluster-scoped kinds are not restricted.
    #[doc(alias = "DefaultNamespaces")]
    #[doc(alias = "WATCH_NAMESPACE")]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the clock, the machine's by default. Then all computations run on the threads of the runtime, so that runs
    /// are reproducible.
    pub fn clock(mut self, clock: Clock) -> Self {
        (self.clock, self.has_threads) = (clock, false);
        self
    }

    /// Disables the record of reconciles: the baseline for measuring its cost.
    #[doc(hidden)]
    pub fn without_ledger(mut self) -> Self {
        self.has_ledger = false;
        self
    }

    /// Sets the source of randomness, the machine's by default.
    pub fn rng(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }

    /// Sets the name of this replica in events; the operator's name by default.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Adds custom metrics to `/metrics`; `register` is called at the start of the operator.
    ///
    /// The built-in metrics have the names of controller-runtime, so that its dashboards work. The [four golden
    /// signals](https://sre.google/sre-book/monitoring-distributed-systems/) by controller:
    ///
    /// | Signal | Series |
    /// |---|---|
    /// | latency, from the trigger of a reconcile to its end | `flyball_latency_seconds` |
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
        self.custom_metrics.push(Box::new(register));
        self
    }

    /// Sets address and security of `/metrics`.
    pub fn metrics_server(mut self, server: MetricsServer) -> Self {
        self.metrics_server = server;
        self
    }

    /// Sets address and limits of `/healthz` and `/readyz`.
    #[doc(alias = "AddHealthzCheck")]
    #[doc(alias = "AddReadyzCheck")]
    pub fn health_server(mut self, server: HealthServer) -> Self {
        self.health_server = server;
        self
    }

    /// Sets the time for reconciles and tasks to end on shutdown: 25 seconds by default. The remaining steps take at
    /// most 5 more, so that all fits into the 30 seconds of a pod.
    #[doc(alias = "GracefulShutdownTimeout")]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Enables leader election: one of several replicas is active, the others wait. Without it, all are active.
    ///
    /// [`main`](Self::main) enables it in a pod by default.
    #[doc(alias = "LeaderElectionID")]
    pub fn leader_election(mut self, election: LeaderElection) -> Self {
        self.election = Some(election);
        self
    }

    /// Adds a hook that is called with every error of a reconcile, its controller and its object, for example to
    /// report it elsewhere. A missed deadline is an error too.
    ///
    /// All hooks are called, before the next reconcile, and should be quick; if one panics, the panic is logged.
    /// Panics of reconciles are not reported here but to [`on_panic`](Self::on_panic).
    #[doc(alias = "error_policy")]
    pub fn on_error(mut self, hook: impl Fn(&str, &ObjectKey, &crate::Error) + Send + Sync + 'static) -> Self {
        self.on_error.push(Arc::new(hook));
        self
    }

    /// Adds a hook that is called with controller and object after each reconcile that leaves no failure to retry: it
    /// succeeded, the object is deleted, or the error waits for a change. It is the counterpart of
    /// [`on_error`](Self::on_error).
    pub fn on_success(mut self, hook: impl Fn(&str, &ObjectKey) + Send + Sync + 'static) -> Self {
        self.on_success.push(Arc::new(hook));
        self
    }

    /// Adds a hook that is called with every caught panic of the author's code, in a reconcile, a mapping function, a
    /// predicate, an index, a source or a webhook. It gets the place, which names controller and object as far as
    /// they are known, and the message.
    ///
    /// It should be quick. A panic of a [task](Self::task) ends the operator with an error.
    #[doc(alias = "RecoverPanic")]
    pub fn on_panic(mut self, hook: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.on_panic.push(Arc::new(hook));
        self
    }

    /// Adds a background task.
    #[doc(alias = "Runnable")]
    #[doc(alias = "Add")]
    #[doc(alias = "on.startup")]
    #[doc(alias = "on.cleanup")]
    pub fn task(mut self, task: Task) -> Self {
        self.tasks.push(task);
        self
    }

    /// Returns the RBAC rules that the operator needs: one for each resource, in the order of group and resource,
    /// then those that controllers [add](Controller::allows). Rules for its own namespace only, for leases and
    /// certificates, are in the [manifests](Self::manifests).
    #[doc(alias = "kubebuilder:rbac")]
    pub fn rules(&self) -> Vec<PolicyRule> {
        let mut rules = rbac::rules(&self.grants());
        rules.extend(self.extra_rules());
        rules.extend(self.cluster_rules());
        rules
    }

    fn extra_rules(&self) -> Vec<PolicyRule> {
        self.controllers.iter().flat_map(|controller| controller.rules.clone()).collect()
    }

    /// Returns the cluster-wide rules for webhook configurations, and for reviews of callers of `/metrics`.
    fn cluster_rules(&self) -> Vec<PolicyRule> {
        let mut rules =
            webhook::cluster_rules(self.installed_name(), &self.webhook_server.certificates, &self.webhooks);
        if self.metrics_server.secure {
            rules.extend(guard::rules());
        }
        rules
    }

    /// Returns the objects to install before the operator: its [definitions](Self::crd), roles with its
    /// [rules](Self::rules), the configurations and service of its [webhooks](Self::webhook), and its
    /// [policies](Self::policy). The roles are one `ClusterRole`, or, for an operator that is restricted to
    /// namespaces, a `Role` in each of them and a `ClusterRole` for cluster-scoped kinds; and a `Role` in its own
    /// [namespace](Self::namespace) for the lease of the [leader election](Self::leader_election) and the
    /// certificates of webhooks.
    #[doc(alias = "controller-gen")]
    pub fn manifests(&self) -> Vec<Value> {
        let name = self.installed_name();
        let (namespace, certificates) =
            (self.namespace.as_deref().unwrap_or("default"), &self.webhook_server.certificates);
        let crd = |crd: &CustomResourceDefinition| {
            let mut crd = serde_json::to_value(crd).expect("a CRD is a JSON object");
            crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
            crd["kind"] = "CustomResourceDefinition".into();
            webhook::convert_crd(&mut crd, name, namespace, certificates, &self.webhooks);
            crd
        };
        let roles = rbac::roles(name, &self.grants(), &self.extra_rules(), &self.cluster_rules(), &self.namespaces);
        let election = self
            .election
            .as_ref()
            .map(|election| rbac::election_role(name, namespace, election.lease.as_deref().unwrap_or(name)));
        let port = self.webhook_server.address.map_or(webhook::PORT, |address| address.port());
        let webhooks = webhook::manifests(name, namespace, port, certificates, &self.webhooks);
        let policies = self.policies.iter().flat_map(|policy| policy.manifests(name));
        let reader = self.metrics_server.secure.then(|| guard::reader(name));
        let aggregated = self.aggregated_roles.iter().cloned();
        let roles = roles.into_iter().chain(aggregated);
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
