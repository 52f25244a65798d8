//! Chaos tests: if the operator is killed at any request, or is unavailable, clusters and data reach the same state.

use crate::node::Machine;
use crate::world::{NAME_OF_SAMPLE, operator};
use etcd_operator::api::etcdcluster_v1beta2::EtcdCluster;
use etcd_operator::model::Model;
use etcd_operator::objects::client_url;
use flyball::Rng;
use flyball_cluster::Controller;
use flyball_cluster::testing::{Setup, Test, explore_crashes};
use std::cell::RefCell;
use std::time::Duration;

const CLUSTER: &str = "
apiVersion: etcd.database.coreos.com/v1beta2
kind: EtcdCluster
metadata: {name: example-etcd-cluster}
spec: {size: 3, version: 3.1.10}
";
const BACKUP: &str = "
apiVersion: etcd.database.coreos.com/v1beta2
kind: EtcdBackup
metadata: {name: monday}
spec: {etcdCluster: {name: example-etcd-cluster}}
";
const RESTORE: &str = "
apiVersion: etcd.database.coreos.com/v1beta2
kind: EtcdRestore
metadata: {name: undo}
spec: {etcdCluster: {name: example-etcd-cluster}, backup: monday}
";

/// The controllers that pods need to run; others would only slow down the test.
const CONTROLLERS: [Controller; 5] = [
    Controller::GarbageCollector,
    Controller::Kubelet,
    Controller::NodeLifecycle,
    Controller::Scheduler,
    Controller::ServiceAccount,
];

/// The network of the current run.
struct Network(RefCell<Model>);

impl Network {
    fn new() -> Self {
        Self(RefCell::new(Model::new(Rng::from_seed(1))))
    }

    /// Starts a run with an empty network.
    fn setup(&self) -> Setup {
        let model = Model::new(Rng::from_seed(1));
        self.0.replace(model.clone());
        let machine = Machine::new(model.clone());
        Test::of(move || operator(&model, Default::default()))
            .nodes(1)
            .controllers(CONTROLLERS.into_iter().collect())
            .program(machine)
    }

    fn model(&self) -> Model {
        self.0.borrow().clone()
    }

    /// Returns the URLs of the healthy members.
    async fn endpoints(&self, test: &Test) -> Vec<String> {
        let cluster = test.api::<EtcdCluster>().get(NAME_OF_SAMPLE).await.unwrap();
        let ready = cluster.status.clone().unwrap_or_default().members.ready;
        ready.iter().map(|name| client_url(&cluster, name)).collect()
    }

    async fn put(&self, test: &Test, value: &str) {
        self.model().put(&self.endpoints(test).await, "foo", value).unwrap();
    }

    async fn get(&self, test: &Test) -> Option<String> {
        self.model().get(&self.endpoints(test).await, "foo").unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing_during_creation() {
    let network = Network::new();
    let crashes = explore_crashes(
        || network.setup(),
        async |test| {
            test.apply(&CLUSTER.replace("size: 3", "size: 2")).await;
            test.assert_converges().await;
            network.put(test, "bar").await;
            (network.get(test).await, network.model().member_counts())
        },
    )
    .await;
    assert!(crashes >= 40, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing_during_backup_and_restore() {
    let network = Network::new();
    let crashes = explore_crashes(
        || network.setup(),
        async |test| {
            test.apply(&CLUSTER.replace("size: 3", "size: 1")).await;
            test.assert_converges().await;
            network.put(test, "bar").await;
            test.apply(BACKUP).await;
            test.apply(RESTORE).await;
            test.assert_converges().await;
            let model = network.model();
            (network.get(test).await, model.member_counts(), model.snapshots().len())
        },
    )
    .await;
    assert!(crashes >= 40, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing() {
    let network = Network::new();
    let mut test = network.setup().start().await;
    test.apply(CLUSTER).await;
    test.assert_converges().await;
    network.put(&test, "bar").await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
    assert_eq!((network.get(&test).await.as_deref(), network.model().member_counts()), (Some("bar"), vec![(3, 3)]));
}
