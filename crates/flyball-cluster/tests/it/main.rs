//! The server and the runtime together, in process, in one thread and under paused time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod application;
mod architecture;
mod autoscaling;
mod caches;
mod cleanup;
mod collection;
mod conformance;
mod cron_jobs;
mod daemon_sets;
mod determinism;
mod durable;
mod dynamic_kinds;
mod events;
mod expectations;
mod extremes;
mod fairness;
mod jobs;
mod leader_election;
mod ledger;
mod load_balancers;
mod metrics;
mod mirroring;
mod namespaces;
mod nodes;
mod policies;
mod replica_sets;
mod roles;
mod samples;
mod stateful_sets;
mod terminating;
mod testing;
mod tokens;
mod vm_groups;
mod volumes;
mod webhooks;
mod workloads;

use flyball_cluster::{Cluster, Controllers, Options, simulated_clock};
use flyball_core::Clock;
use flyball_server::Caller;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A cluster whose controllers run until the test is over.
fn cluster() -> Cluster {
    cluster_at(simulated_clock())
}

fn cluster_at(clock: Clock) -> Cluster {
    cluster_of(Options::simulated(clock, 1))
}

fn cluster_of(options: Options) -> Cluster {
    let cluster = Cluster::new(options).with_certificate("a certificate");
    let running = cluster.clone();
    tokio::spawn(async move { running.run(&Controllers::all()).await });
    cluster
}

async fn namespace(client: &Client, name: &str) {
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
}

/// Creates a config map with owners, each with its `blockOwnerDeletion`; returns its UID.
async fn config_map(client: &Client, name: &str, owners: &[(&str, &str, bool)]) -> String {
    let owners: Vec<_> = owners
        .iter()
        .map(|(name, uid, blocks)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": blocks})
        })
        .collect();
    let object: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}})).unwrap();
    let map: ConfigMap =
        Api::namespaced(client.clone(), "default").create(&PostParams::default(), &object).await.unwrap();
    map.metadata.uid.unwrap()
}

/// Waits for a condition, for up to a minute of simulated time.
async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let wait = async {
        while !holds().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("{what} does not come to pass"));
}

/// Maximum simulated time for which a step polls for effects of controllers.
const MAX_WAIT: Duration = Duration::from_secs(90);

#[test]
fn recorded_responses_are_reproduced() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let server = async |clock: Clock, webhooks: Arc<dyn Caller>| {
        cluster_of(Options { webhooks, ..Options::simulated(clock, 1) }).server().clone()
    };
    conformance::check(&folder, MAX_WAIT, server);
}
