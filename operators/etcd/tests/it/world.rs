//! The test environment of the operator, with assertions.

use crate::node::Machine;
use etcd_operator::api::etcdbackup_v1beta2::EtcdBackup;
use etcd_operator::api::etcdcluster_v1beta2::{EtcdCluster, EtcdClusterStatus, Phase};
use etcd_operator::api::etcdrestore_v1beta2::EtcdRestore;
use etcd_operator::metrics::ClusterMetrics;
use etcd_operator::model::Model;
use etcd_operator::objects::client_url;
use flyball::{Operator, Rng};
use flyball_cluster::{Cluster, Controllers, Faults, Nodes, Options, Trace, User, simulated_clock};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

pub(crate) const NAME_OF_SAMPLE: &str = "example-etcd-cluster";
const SEED: u64 = 7;

pub(crate) struct World {
    pub(crate) admin: Client,
    pub(crate) clusters: Api<EtcdCluster>,
    pub(crate) pods: Api<Pod>,
    pub(crate) model: Model,
    pub(crate) metrics: ClusterMetrics,
    pub(crate) trace: Trace,
    /// Number of successful calls of a client that reads and writes continuously, and its errors.
    pub(crate) answered: Cell<usize>,
    pub(crate) failures: RefCell<Vec<String>>,
    /// False if the quorum was lost since this was set.
    pub(crate) quorum_kept: Cell<bool>,
    counting: Cell<bool>,
}

/// Creates the operator for all etcd processes of a model.
pub(crate) fn operator(model: &Model, metrics: ClusterMetrics) -> Operator {
    let etcd = Arc::new(model.clone());
    etcd_operator::operator(etcd.clone(), etcd, metrics)
}

/// Runs a scenario without faults.
pub(crate) fn run_scenario(scenario: impl AsyncFnOnce(&World)) {
    run_scenario_with(SEED, Faults::default(), scenario);
}

/// Runs a scenario; returns the trace of the operator's requests to the API server.
pub(crate) fn run_scenario_with(seed: u64, faults: Faults, scenario: impl AsyncFnOnce(&World)) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (clock, rng) = (simulated_clock(), Rng::from_seed(seed));
        let model = Model::new(rng.fork("etcd"));
        let cluster =
            Cluster::new(Options::simulated(clock.clone(), seed)).with_program(Arc::new(Machine::new(model.clone())));
        let (admin, trace, metrics) = (cluster.admin(), Trace::default(), ClusterMetrics::default());
        let client = cluster.simulated_client(
            User::new("operator", &["system:masters"]),
            faults,
            rng.fork("faults"),
            trace.clone(),
        );
        let operator = operator(&model, metrics.clone()).clock(clock).rng(rng.fork("operator"));
        for definition in [EtcdCluster::crd(), EtcdBackup::crd(), EtcdRestore::crd()] {
            Api::all(admin.clone()).create(&PostParams::default(), &definition).await.unwrap();
        }
        Nodes::new("n", 3).add_to(&admin).await.unwrap();
        let world = World {
            clusters: Api::namespaced(admin.clone(), "default"),
            pods: Api::namespaced(admin.clone(), "default"),
            admin,
            model,
            metrics,
            trace,
            answered: Cell::default(),
            failures: RefCell::default(),
            quorum_kept: Cell::new(true),
            counting: Cell::new(false),
        };
        let controllers = Controllers::all();
        tokio::select! {
            biased;
            end = timeout(Duration::from_secs(6 * 3600), scenario(&world)) => end.expect("the scenario ends in time"),
            end = operator.run(client, pending()) => panic!("the operator ended: {end:?}"),
            () = cluster.run(&controllers) => unreachable!("controllers run for ever"),
            () = world.watch() => unreachable!("it watches for ever"),
        }
        format!("{}{:?}", world.trace.text(), world.model.calls())
    })
}

impl World {
    /// Creates a cluster of this size, with additional fields in its spec; waits until it runs.
    pub(crate) async fn create(&self, size: u8, more: Value) {
        let mut spec = json!({"size": size, "version": "3.1.10"});
        spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let cluster = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {"name": NAME_OF_SAMPLE},
            "spec": spec,
        });
        let cluster = serde_json::from_value(cluster).unwrap();
        self.clusters.create(&PostParams::default(), &cluster).await.unwrap();
        self.settled(size.into()).await;
    }

    pub(crate) async fn cluster(&self) -> EtcdCluster {
        self.clusters.get(NAME_OF_SAMPLE).await.unwrap()
    }

    pub(crate) async fn status(&self) -> EtcdClusterStatus {
        self.cluster().await.status.unwrap_or_default()
    }

    pub(crate) async fn patch(&self, patch: Value) {
        let patch = Patch::Merge(json!({"spec": patch}));
        self.clusters.patch(NAME_OF_SAMPLE, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits for up to twenty minutes until a condition holds.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn(&EtcdClusterStatus) -> bool) -> EtcdClusterStatus {
        for _ in 0..4_000 {
            let status = self.status().await;
            if holds(&status).await {
                return status;
            }
            sleep(Duration::from_millis(300)).await;
        }
        let pods: Vec<_> = self.members().await.into_iter().map(|pod| (pod.metadata.name, pod.status)).collect();
        panic!("timeout: {what}: {:?} {pods:?}", self.status().await);
    }

    /// Waits until a cluster runs with this number of members, and no step remains.
    pub(crate) async fn settled(&self, size: usize) -> EtcdClusterStatus {
        let holds = async |status: &EtcdClusterStatus| {
            status.phase == Phase::Running
                && status.members.ready.len() == size
                && status.size == size
                && condition(status, "Available") == "True"
                && condition(status, "Progressing") == "False"
                && status.target_version.is_empty()
                && self.members().await.len() == size
        };
        self.until(&format!("a cluster of {size}"), holds).await
    }

    /// Lists the pods of members.
    pub(crate) async fn members(&self) -> Vec<Pod> {
        let selector = format!("etcd_cluster={NAME_OF_SAMPLE}");
        self.pods.list(&ListParams::default().labels(&selector)).await.unwrap().items
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        self.members().await.iter().map(ResourceExt::name_any).collect()
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        self.pods.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Cordons or uncordons the nodes.
    pub(crate) async fn cordon(&self, closed: bool) {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            let patch = Patch::Merge(json!({"spec": {"unschedulable": closed}}));
            nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Returns the URLs of the endpoints of the client service.
    async fn endpoints(&self) -> Vec<String> {
        let Some(cluster) = self.clusters.get_opt(NAME_OF_SAMPLE).await.unwrap() else { return Vec::new() };
        let is_ready = |pod: &&Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        self.members().await.iter().filter(is_ready).map(|pod| client_url(&cluster, &pod.name_any())).collect()
    }

    pub(crate) async fn put(&self, key: &str, value: &str) {
        self.model.put(&self.endpoints().await, key, value).unwrap();
    }

    pub(crate) async fn get(&self, key: &str) -> Option<String> {
        self.model.get(&self.endpoints().await, key).unwrap()
    }

    /// Starts counting client errors and checking the quorum.
    pub(crate) fn start_counting(&self) {
        self.counting.set(true);
        self.answered.set(0);
        self.failures.borrow_mut().clear();
        self.quorum_kept.set(true);
    }

    /// Asserts that there were no client errors since then, and that the quorum was never lost.
    pub(crate) fn assert_no_client_errors(&self) {
        self.counting.set(false);
        assert!(self.failures.borrow().is_empty(), "{:?}", self.failures.borrow());
        assert!(self.answered.get() > 3, "only {} calls were made", self.answered.get());
        assert!(self.quorum_kept.get(), "the quorum was lost");
    }

    /// Writes and reads as a client four times per second while counting is enabled.
    async fn watch(&self) {
        for number in 0u64.. {
            sleep(Duration::from_millis(250)).await;
            if !self.counting.get() {
                continue;
            }
            self.quorum_kept.set(
                self.quorum_kept.get()
                    && self.model.member_counts().iter().all(|(members, running)| *running > members / 2),
            );
            let (endpoints, value) = (self.endpoints().await, number.to_string());
            let put = self.model.put(&endpoints, "count", &value);
            match put.and_then(|_| self.model.get(&endpoints, "count")) {
                Ok(read) if read.as_ref() == Some(&value) => self.answered.set(self.answered.get() + 1),
                Ok(read) => self.failures.borrow_mut().push(format!("{number}: read {read:?}")),
                Err(error) => self.failures.borrow_mut().push(format!("{number}: {error}: {endpoints:?}")),
            }
        }
    }
}

pub(crate) fn condition<'a>(status: &'a EtcdClusterStatus, kind: &str) -> &'a str {
    let found = status.conditions.iter().find(|condition| condition.kind == kind);
    found.map_or("", |condition| &condition.status)
}
