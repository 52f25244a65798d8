//! The controllers of the control plane.
//!
//! Each is a client like any other. Their names are those that kube-controller-manager's `--controllers` takes.

mod admission_policy;
mod cluster_role;
mod cron_job;
mod daemon_set;
mod deployment;
mod discovery;
mod disruption_budget;
mod endpoints;
mod garbage_collector;
mod horizontal_pod_autoscaler;
mod job;
mod namespace;
mod node_lifecycle;
mod pod_gc;
mod protection;
mod replica_set;
mod resource_quota;
mod revisions;
mod service_account;
mod service_lb;
mod stateful_set;
mod token;
mod ttl_after_finished;
mod volume_binder;
mod volume_provisioner;

use crate::client::{ControllerClients, client_of};
use crate::metrics::Metrics;
use crate::node::Program;
use crate::workload::MANAGER;
use crate::{node, scheduler};
use flyball::{Operator, Reconcile};
use flyball_core::service_account::user_name;
use flyball_core::{Clock, GroupResource, Rng};
use flyball_server::{Server, User};
use futures_util::future::{BoxFuture, join_all, pending};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A controller of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Controller {
    /// Sets the rules of aggregated cluster roles.
    ClusterRoleAggregation,
    /// Creates jobs at set times.
    CronJob,
    /// Runs a pod of each daemon set on every matching node.
    DaemonSet,
    /// Rolls out deployments.
    Deployment,
    /// Computes the allowed disruptions of disruption budgets.
    Disruption,
    /// Publishes the endpoints of services as `Endpoints`.
    Endpoints,
    /// Publishes the endpoints of services as `EndpointSlice`s.
    EndpointSlice,
    /// Mirrors user-created `Endpoints` to `EndpointSlice`s.
    EndpointSliceMirroring,
    /// Deletes objects whose owners are gone, and implements foreground deletion and orphaning.
    GarbageCollector,
    /// Scales workloads by their [metrics](crate::Metrics).
    HorizontalPodAutoscaler,
    /// Runs the pods of jobs.
    Job,
    /// Replaces the kubelets of simulated nodes: reports their status, and runs their pods.
    Kubelet,
    /// Empties namespaces that are being deleted.
    Namespace,
    /// Taints unhealthy nodes and evicts their pods.
    NodeLifecycle,
    /// Binds claims to volumes.
    PersistentVolumeBinder,
    /// Protects claims that pods use from deletion.
    PersistentVolumeClaimProtection,
    /// Protects volumes that claims use from deletion.
    PersistentVolumeProtection,
    /// Deletes pods whose node has gone.
    PodGarbageCollector,
    /// Maintains the number of pods of replica sets.
    ReplicaSet,
    /// Maintains the number of pods of replication controllers.
    ReplicationController,
    /// Computes the usage of quotas.
    ResourceQuota,
    /// Publishes the certificate of the API server in every namespace.
    RootCaPublisher,
    /// Finds nodes for pods.
    Scheduler,
    /// Creates the `default` service account in every namespace.
    ServiceAccount,
    /// Fills and deletes secrets that hold the tokens of service accounts.
    ServiceAccountToken,
    /// Assigns addresses to services of type `LoadBalancer`.
    ServiceLb,
    /// Manages the pods of stateful sets.
    StatefulSet,
    /// Deletes jobs some time after they have ended.
    TtlAfterFinished,
    /// Type-checks the expressions of admission policies.
    ValidatingAdmissionPolicyStatus,
    /// Provisions and deletes volumes of simulated storage.
    VolumeProvisioner,
}

impl Controller {
    const ALL: [Self; 30] = [
        Self::ClusterRoleAggregation,
        Self::CronJob,
        Self::DaemonSet,
        Self::Deployment,
        Self::Disruption,
        Self::Endpoints,
        Self::EndpointSlice,
        Self::EndpointSliceMirroring,
        Self::GarbageCollector,
        Self::HorizontalPodAutoscaler,
        Self::Job,
        Self::Kubelet,
        Self::Namespace,
        Self::NodeLifecycle,
        Self::PersistentVolumeBinder,
        Self::PersistentVolumeClaimProtection,
        Self::PersistentVolumeProtection,
        Self::PodGarbageCollector,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::ResourceQuota,
        Self::RootCaPublisher,
        Self::Scheduler,
        Self::ServiceAccount,
        Self::ServiceAccountToken,
        Self::ServiceLb,
        Self::StatefulSet,
        Self::TtlAfterFinished,
        Self::ValidatingAdmissionPolicyStatus,
        Self::VolumeProvisioner,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ClusterRoleAggregation => "clusterrole-aggregation-controller",
            Self::CronJob => "cronjob-controller",
            Self::DaemonSet => "daemonset-controller",
            Self::Deployment => "deployment-controller",
            Self::Disruption => "disruption-controller",
            Self::Endpoints => "endpoints-controller",
            Self::EndpointSlice => "endpointslice-controller",
            Self::EndpointSliceMirroring => "endpointslice-mirroring-controller",
            Self::GarbageCollector => "garbage-collector-controller",
            Self::HorizontalPodAutoscaler => "horizontal-pod-autoscaler-controller",
            Self::Job => "job-controller",
            Self::Kubelet => "kubelet",
            Self::Namespace => "namespace-controller",
            Self::NodeLifecycle => "node-lifecycle-controller",
            Self::PersistentVolumeBinder => "persistentvolume-binder-controller",
            Self::PersistentVolumeClaimProtection => "persistentvolumeclaim-protection-controller",
            Self::PersistentVolumeProtection => "persistentvolume-protection-controller",
            Self::PodGarbageCollector => "pod-garbage-collector-controller",
            Self::ReplicaSet => "replicaset-controller",
            Self::ReplicationController => "replicationcontroller-controller",
            Self::ResourceQuota => "resourcequota-controller",
            Self::RootCaPublisher => "root-ca-certificate-publisher-controller",
            Self::Scheduler => "kube-scheduler",
            Self::ServiceAccount => "serviceaccount-controller",
            Self::ServiceAccountToken => "serviceaccount-token-controller",
            Self::ServiceLb => "service-lb-controller",
            Self::StatefulSet => "statefulset-controller",
            Self::TtlAfterFinished => "ttl-after-finished-controller",
            Self::ValidatingAdmissionPolicyStatus => "validatingadmissionpolicy-status-controller",
            Self::VolumeProvisioner => "volume-provisioner",
        }
    }

    /// Returns the user of the controller.
    fn user(self) -> User {
        let name = match self {
            Self::Kubelet => "system:node:simulated".to_owned(),
            Self::Scheduler => "system:kube-scheduler".to_owned(),
            _ => user_name("kube-system", self.name()),
        };
        User::new(&name, &["system:masters"])
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Controller {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, UnknownController> {
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| UnknownController(text.to_owned()))
    }
}

/// Error of parsing the name of a controller.
#[derive(Debug, thiserror::Error)]
#[error("unknown controller {0:?}; the controllers are {names}", names = Controller::ALL.map(Controller::name).join(", "))]
pub struct UnknownController(String);

/// A set of controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(BTreeSet<Controller>);

impl Controllers {
    /// Returns the set of all controllers.
    pub fn all() -> Self {
        Self(Controller::ALL.into())
    }

    /// Returns the empty set.
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Returns the set without one controller.
    pub fn without(mut self, controller: Controller) -> Self {
        self.0.remove(&controller);
        self
    }
}

/// Reads names separated by commas, as kube-controller-manager's `--controllers` does: `*` means all, `-NAME` removes
/// one.
impl FromStr for Controllers {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, UnknownController> {
        let (mut chosen, mut left_out) = (BTreeSet::new(), BTreeSet::new());
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match (name, name.strip_prefix('-')) {
                ("*", _) => chosen.extend(Controller::ALL),
                (_, Some(name)) => drop(left_out.insert(name.parse()?)),
                (name, None) => drop(chosen.insert(name.parse()?)),
            }
        }
        Ok(Self(chosen.difference(&left_out).copied().collect()))
    }
}

impl fmt::Display for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|controller| controller.name()).collect();
        f.write_str(&names.join(","))
    }
}

impl Default for Controllers {
    fn default() -> Self {
        Self::all()
    }
}

impl FromIterator<Controller> for Controllers {
    fn from_iter<T: IntoIterator<Item = Controller>>(controllers: T) -> Self {
        Self(controllers.into_iter().collect())
    }
}

type ControllerFuture = BoxFuture<'static, ()>;

/// One of the controllers that run together, with its user.
struct Member {
    controller: Controller,
    /// The client of all requests but watches.
    client: kube::Client,
}

impl Member {
    /// Sets the name and the client of a controller.
    fn named<R: Reconcile>(&self, controller: flyball::Controller<R>) -> flyball::Controller<R> {
        controller.name(self.controller.name()).client(self.client.clone()).shares_workers()
    }

    /// Sets the name of a part of a controller that has its own queue.
    fn part<R: Reconcile>(&self, part: &str, controller: flyball::Controller<R>) -> flyball::Controller<R> {
        controller.name(format!("{}/{part}", self.controller.name())).client(self.client.clone()).shares_workers()
    }
}

/// Callback with the location and the message of a panic.
pub(crate) type OnPanic = dyn Fn(&str, &str) + Send + Sync;

/// The parts of a cluster that controllers use.
pub(crate) struct Environment<'a> {
    pub(crate) server: &'a Server,
    pub(crate) clock: &'a Clock,
    pub(crate) rng: &'a Rng,
    /// The certificate of the server in PEM, if it has one.
    pub(crate) certificate: Option<&'a str>,
    pub(crate) metrics: &'a Metrics,
    pub(crate) on_panic: Option<Arc<OnPanic>>,
    /// The resources of the garbage collector, `None` for all.
    pub(crate) collected: Option<Arc<BTreeSet<GroupResource>>>,
    /// Creates the program that runs the containers of simulated nodes.
    pub(crate) program: &'a (dyn Fn(&Rng) -> Arc<dyn Program> + Sync),
}

/// Runs controllers until the future is dropped. Nearly all of them are one operator, so that they share watches and
/// caches.
///
/// Boxed so that they are compiled in this crate: the body of an `async fn` is compiled by each crate that awaits it.
pub(crate) fn run<'a>(controllers: &'a Controllers, environment: Environment<'a>) -> BoxFuture<'a, ()> {
    Box::pin(run_all(controllers, environment))
}

async fn run_all(controllers: &Controllers, environment: Environment<'_>) {
    let Environment { server, clock, rng, certificate, metrics, on_panic, collected, program } = environment;
    let mut shared = Operator::new(MANAGER).clock(clock.clone()).rng(rng.fork(MANAGER));
    if let Some(callback) = on_panic {
        shared = shared.on_panic(move |place, text| callback(place, text));
    }
    let mut apart: Vec<ControllerFuture> = Vec::new();
    let clients = ControllerClients::new(server);
    for controller in &controllers.0 {
        let me = Member { controller: *controller, client: clients.client_of(controller.user()) };
        let rng = rng.fork(controller.name());
        shared = match controller {
            Controller::GarbageCollector => {
                let watches = client_of(server, controller.user());
                let collect = garbage_collector::run(watches, me.client, rng, collected.clone());
                apart.push(Box::pin(collect) as ControllerFuture);
                shared
            }
            Controller::ClusterRoleAggregation => shared.controller(me.named(cluster_role::controller())),
            Controller::CronJob => shared.controller(me.named(cron_job::controller())),
            Controller::DaemonSet => shared.controller(me.named(daemon_set::controller())),
            Controller::Deployment => shared.controller(me.named(deployment::controller())),
            Controller::Disruption => shared.controller(me.named(disruption_budget::controller())),
            Controller::Endpoints => shared
                .controller(me.named(endpoints::legacy()))
                .controller(me.part("leftovers", endpoints::leftovers())),
            Controller::EndpointSlice => shared.controller(me.named(endpoints::slices())),
            Controller::EndpointSliceMirroring => shared.controller(me.named(endpoints::mirror())),
            Controller::HorizontalPodAutoscaler => {
                shared.controller(me.named(horizontal_pod_autoscaler::controller(metrics.clone())))
            }
            Controller::Job => {
                shared.controller(me.named(job::controller())).controller(me.part("orphans", job::orphans()))
            }
            Controller::Kubelet => {
                let kubelet = node::Kubelet::new(program(&rng), certificate.is_some());
                shared.controller(me.part("nodes", node::registration())).controller(me.named(kubelet.controller()))
            }
            Controller::Namespace => shared.controller(me.named(namespace::controller())),
            Controller::NodeLifecycle => shared.controller(me.named(node_lifecycle::controller())),
            Controller::PersistentVolumeBinder => shared
                .controller(me.part("claims", volume_binder::claims()))
                .controller(me.part("volumes", volume_binder::volumes())),
            Controller::PersistentVolumeClaimProtection => shared.controller(me.named(protection::claims())),
            Controller::PersistentVolumeProtection => shared.controller(me.named(protection::volumes())),
            Controller::PodGarbageCollector => shared.controller(me.named(pod_gc::pods())),
            Controller::ReplicaSet => shared.controller(me.named(replica_set::controller())),
            Controller::ReplicationController => shared.controller(me.named(replica_set::replication_controllers())),
            Controller::ResourceQuota => shared.controller(me.named(resource_quota::controller())),
            Controller::RootCaPublisher => match certificate {
                Some(certificate) => shared.controller(me.named(service_account::root_ca(certificate.to_owned()))),
                None => shared,
            },
            Controller::Scheduler => {
                apart.push(Box::pin(scheduler::run(client_of(server, controller.user()), clock.clone(), rng)));
                shared
            }
            Controller::ServiceAccount => shared.controller(me.named(service_account::accounts())),
            Controller::ServiceAccountToken => {
                let certificate = certificate.map(str::to_owned);
                shared.controller(me.named(token::controller(server.clone(), certificate)))
            }
            Controller::ServiceLb => shared.controller(me.named(service_lb::controller())),
            Controller::StatefulSet => shared.controller(me.named(stateful_set::controller())),
            Controller::TtlAfterFinished => shared.controller(me.named(ttl_after_finished::controller())),
            Controller::ValidatingAdmissionPolicyStatus => shared.controller(me.named(admission_policy::controller())),
            Controller::VolumeProvisioner => shared
                .controller(me.part("claims", volume_provisioner::claims()))
                .controller(me.part("volumes", volume_provisioner::volumes()))
                .controller(me.part("classes", volume_provisioner::classes())),
        };
    }
    apart.push(run_operator(
        shared,
        client_of(server, User::new("system:kube-controller-manager", &["system:masters"])),
    ));
    join_all(apart).await;
    pending().await
}

fn run_operator(operator: Operator, client: kube::Client) -> ControllerFuture {
    Box::pin(async move {
        let result = operator.run(client, pending()).await;
        result.expect("the operator has a valid name and no listeners");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_controllers_is_parsed() {
        let check = |text: &str, expected: Controllers| {
            let read: Controllers = text.parse().unwrap();
            assert_eq!((&read, read.to_string().parse().unwrap()), (&expected, expected.clone()), "{text}");
        };
        check("*", Controllers::all());
        check("", Controllers::none());
        check("*,-job-controller", Controllers::all().without(Controller::Job));
        check("kubelet, kube-scheduler", [Controller::Kubelet, Controller::Scheduler].into_iter().collect());
        check("-kubelet,kubelet", Controllers::none());
        assert!("*,-jobs".parse::<Controllers>().unwrap_err().to_string().contains("job-controller"));
    }
}
