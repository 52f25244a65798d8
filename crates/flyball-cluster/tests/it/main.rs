//! The server and the runtime together, in process, in one thread and under paused time.

mod collection;
mod determinism;
mod namespaces;
mod roles;

use flyball_cluster::{Cluster, Controllers, Options, simulated_clock};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A cluster whose controllers run until the test is over.
fn cluster() -> Cluster {
    let cluster = Cluster::new(Options::simulated(simulated_clock(), 1));
    let running = cluster.clone();
    tokio::spawn(async move { running.run(&Controllers::all()).await });
    cluster
}

async fn namespace(client: &Client, name: &str) {
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
}

/// Makes a config map owned by others, each given with whether it blocks their deletion; gives its UID.
async fn config_map(client: &Client, name: &str, owners: &[(&str, &str, bool)]) -> String {
    let owners: Vec<_> = owners
        .iter()
        .map(|(name, uid, blocks)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": blocks})
        })
        .collect();
    let object: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}})).unwrap();
    let made: ConfigMap =
        Api::namespaced(client.clone(), "default").create(&PostParams::default(), &object).await.unwrap();
    made.metadata.uid.unwrap()
}

/// Waits until something holds, for a minute of simulated time.
async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let wait = async {
        while !holds().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("{what} does not come to pass"));
}
