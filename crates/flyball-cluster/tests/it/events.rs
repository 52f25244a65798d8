//! The lifetime of events.

use crate::cluster;
use crate::workloads::{api, create};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

async fn note(client: &Client, name: &str) {
    let object = json!({"kind": "ConfigMap", "namespace": "default", "name": "a"});
    let event = json!({"metadata": {"name": name}, "involvedObject": object, "reason": "Tested", "type": "Normal"});
    create::<Event>(client, event).await;
}

async fn names(client: &Client) -> Vec<String> {
    let events = api::<Event>(client).list(&ListParams::default().fields("reason=Tested")).await.unwrap();
    events.iter().map(ResourceExt::name_any).collect()
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn events_are_deleted_an_hour_after_their_last_write() {
    let cluster = cluster();
    let client = cluster.admin();
    note(&client, "old").await;
    note(&client, "repeated").await;
    sleep(30 * MINUTE).await;
    note(&client, "new").await;
    let again = Patch::Merge(json!({"count": 2}));
    api::<Event>(&client).patch("repeated", &PatchParams::default(), &again).await.unwrap();
    sleep(29 * MINUTE).await;
    assert_eq!(names(&client).await, ["new", "old", "repeated"]);
    sleep(2 * MINUTE).await;
    assert_eq!(names(&client).await, ["new", "repeated"]);
    sleep(30 * MINUTE).await;
    assert_eq!(names(&client).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn events_of_a_fork_expire_by_its_own_time() {
    let original = cluster();
    note(&original.admin(), "old").await;
    // Without controllers, nothing deletes it.
    let fork = original.fork(flyball_cluster::Options::simulated(flyball_cluster::simulated_clock(), 2));
    sleep(120 * MINUTE).await;
    assert_eq!((names(&original.admin()).await.len(), names(&fork.admin()).await.len()), (0, 1));
    let running = fork.clone();
    tokio::spawn(async move { running.run(&flyball_cluster::Controllers::none()).await });
    sleep(2 * MINUTE).await;
    assert_eq!(names(&fork.admin()).await, [""; 0]);
}
