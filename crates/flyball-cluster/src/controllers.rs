//! The controllers of the control plane.
//!
//! Each is a client like any other. Their names are those that kube-controller-manager's `--controllers` takes.

mod cluster_role;
mod deployment;
mod discovery;
mod disruption_budget;
mod endpoints;
pub(crate) mod events;
mod garbage_collector;
mod job;
mod namespace;
mod node_lifecycle;
pub(crate) mod owners;
mod pod_gc;
pub(crate) mod pods;
mod protection;
mod replica_set;
mod resource_quota;
mod revisions;
mod service_account;
mod stateful_set;
mod volume_binder;

pub(crate) use owners::Selector;

use crate::Cluster;
use crate::{node, scheduler};
use flyball::Operator;
use flyball_core::{Clock, Rng};
use flyball_server::User;
use futures_util::future::{join_all, pending};
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::str::FromStr;

/// Who sets the fields that controllers set: the program that they are part of elsewhere.
const MANAGER: &str = "kube-controller-manager";

/// A controller of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Controller {
    /// Gives aggregated cluster roles their rules.
    ClusterRoleAggregation,
    /// Rolls out deployments.
    Deployment,
    /// Counts what disruption budgets allow.
    Disruption,
    /// Publishes the endpoints of services, in the older form.
    Endpoints,
    /// Publishes the endpoints of services.
    EndpointSlice,
    /// Deletes what has lost its owner, and carries out foreground deletion and orphaning.
    GarbageCollector,
    /// Runs the pods of jobs.
    Job,
    /// Stands in for the kubelets of simulated nodes: tells how they are, and runs their pods.
    Kubelet,
    /// Empties namespaces that are being deleted.
    Namespace,
    /// Keeps pods away from nodes of which nothing good is heard.
    NodeLifecycle,
    /// Binds claims to volumes.
    PersistentVolumeBinder,
    /// Keeps claims that pods use.
    PersistentVolumeClaimProtection,
    /// Keeps volumes that claims use.
    PersistentVolumeProtection,
    /// Deletes pods whose node has gone.
    PodGarbageCollector,
    /// Keeps as many pods as replica sets ask for.
    ReplicaSet,
    /// Counts what is used of quotas.
    ResourceQuota,
    /// Publishes the certificate by which clients know the server in every namespace.
    RootCaPublisher,
    /// Finds nodes for pods.
    Scheduler,
    /// Puts the `default` service account into every namespace.
    ServiceAccount,
    /// Keeps the pods of stateful sets.
    StatefulSet,
}

impl Controller {
    const ALL: [Self; 20] = [
        Self::ClusterRoleAggregation,
        Self::Deployment,
        Self::Disruption,
        Self::Endpoints,
        Self::EndpointSlice,
        Self::GarbageCollector,
        Self::Job,
        Self::Kubelet,
        Self::Namespace,
        Self::NodeLifecycle,
        Self::PersistentVolumeBinder,
        Self::PersistentVolumeClaimProtection,
        Self::PersistentVolumeProtection,
        Self::PodGarbageCollector,
        Self::ReplicaSet,
        Self::ResourceQuota,
        Self::RootCaPublisher,
        Self::Scheduler,
        Self::ServiceAccount,
        Self::StatefulSet,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ClusterRoleAggregation => "clusterrole-aggregation-controller",
            Self::Deployment => "deployment-controller",
            Self::Disruption => "disruption-controller",
            Self::Endpoints => "endpoints-controller",
            Self::EndpointSlice => "endpointslice-controller",
            Self::GarbageCollector => "garbage-collector-controller",
            Self::Job => "job-controller",
            Self::Kubelet => "kubelet",
            Self::Namespace => "namespace-controller",
            Self::NodeLifecycle => "node-lifecycle-controller",
            Self::PersistentVolumeBinder => "persistentvolume-binder-controller",
            Self::PersistentVolumeClaimProtection => "persistentvolumeclaim-protection-controller",
            Self::PersistentVolumeProtection => "persistentvolume-protection-controller",
            Self::PodGarbageCollector => "pod-garbage-collector-controller",
            Self::ReplicaSet => "replicaset-controller",
            Self::ResourceQuota => "resourcequota-controller",
            Self::RootCaPublisher => "root-ca-certificate-publisher-controller",
            Self::Scheduler => "kube-scheduler",
            Self::ServiceAccount => "serviceaccount-controller",
            Self::StatefulSet => "statefulset-controller",
        }
    }

    /// The user that the controller is, to the API server.
    fn user(self) -> User {
        let name = match self {
            Self::Kubelet => "system:node:simulated".to_owned(),
            Self::Scheduler => "system:kube-scheduler".to_owned(),
            _ => format!("system:serviceaccount:kube-system:{}", self.name()),
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

/// There is no controller of this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no controller {0:?}; there are {names}", names = Controller::ALL.map(Controller::name).join(", "))]
pub struct UnknownController(String);

/// A set of controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(BTreeSet<Controller>);

impl Controllers {
    /// All that there are.
    pub fn all() -> Self {
        Self(Controller::ALL.into())
    }

    /// None.
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// The same without one.
    pub fn without(mut self, controller: Controller) -> Self {
        self.0.remove(&controller);
        self
    }
}

/// Reads names separated by commas, as kube-controller-manager's `--controllers` does: `*` stands for all, `-NAME` takes one
/// out.
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

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs controllers until the future is dropped.
pub(crate) async fn run(cluster: &Cluster, controllers: &Controllers, clock: &Clock, rng: &Rng) {
    let running = controllers.0.iter().map(|controller| {
        let (client, rng) = (cluster.client(controller.user()), rng.fork(controller.name()));
        let operator = Operator::new(controller.name()).field_manager(MANAGER).clock(clock.clone()).rng(rng.clone());
        let operator = match controller {
            Controller::GarbageCollector => return Box::pin(garbage_collector::run(client, rng)) as Running,
            Controller::ClusterRoleAggregation => operator.controller(cluster_role::controller()),
            Controller::Deployment => operator.controller(deployment::controller()),
            Controller::Disruption => operator.controller(disruption_budget::controller()),
            Controller::Endpoints => operator.controller(endpoints::legacy()).controller(endpoints::leftovers()),
            Controller::EndpointSlice => operator.controller(endpoints::slices()),
            Controller::Job => operator.controller(job::controller()).controller(job::orphans()),
            Controller::Kubelet => {
                let kubelet = node::Kubelet::new(cluster.program(&rng), cluster.certificate().is_some());
                operator.field_manager("kubelet").controller(node::registration()).controller(kubelet.controller())
            }
            Controller::Namespace => operator.controller(namespace::controller()),
            Controller::NodeLifecycle => operator.controller(node_lifecycle::controller()),
            Controller::PersistentVolumeBinder => {
                operator.controller(volume_binder::claims()).controller(volume_binder::volumes())
            }
            Controller::PersistentVolumeClaimProtection => operator.controller(protection::claims()),
            Controller::PersistentVolumeProtection => operator.controller(protection::volumes()),
            Controller::PodGarbageCollector => operator.controller(pod_gc::pods()),
            Controller::ReplicaSet => operator.controller(replica_set::controller()),
            Controller::ResourceQuota => operator.controller(resource_quota::controller()),
            Controller::RootCaPublisher => match cluster.certificate() {
                Some(certificate) => operator.controller(service_account::root_ca(certificate.to_owned())),
                None => return Box::pin(pending()) as Running,
            },
            Controller::Scheduler => return Box::pin(scheduler::run(client, clock.clone(), rng)) as Running,
            Controller::ServiceAccount => operator.controller(service_account::accounts()),
            Controller::StatefulSet => operator.controller(stateful_set::controller()),
        };
        Box::pin(async move {
            let ended = operator.run(client, pending()).await;
            ended.expect("the operator has a good name and listens nowhere");
        })
    });
    join_all(running).await;
    pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_controllers_is_read() {
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
