//! Replica sets: creations, deletions and their order, following the unit tests of Kubernetes.

use crate::workloads::{api, create, pods, set_status, template};
use crate::{cluster, eventually, namespace};
use flyball_cluster::{Cluster, Controller, Options, simulated_clock};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController, ResourceQuota};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

async fn set(client: &Client, replicas: i32) {
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("i")});
    create::<ReplicaSet>(client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
}

async fn scale(client: &Client, replicas: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api::<ReplicaSet>(client).patch("web", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn missing_pods_are_created_with_an_owner() {
    let client = cluster().admin();
    set(&client, 3).await;
    eventually("three pods", || async { pods(&client).await.len() == 3 }).await;
    let owner = api::<ReplicaSet>(&client).get("web").await.unwrap().uid().unwrap();
    for pod in pods(&client).await {
        let [reference] = pod.owner_references() else { panic!("one owner") };
        assert_eq!(
            (&reference.uid, reference.controller, reference.block_owner_deletion),
            (&owner, Some(true), Some(true))
        );
    }
    // Failed pods do not count.
    let failed = pods(&client).await.remove(0);
    set_status(&client, &failed, json!({"phase": "Failed"})).await;
    eventually("one more", || async { pods(&client).await.len() == 4 }).await;
    let status = api::<ReplicaSet>(&client).get("web").await.unwrap().status.unwrap();
    assert_eq!((status.replicas, status.ready_replicas), (3, None));
}

/// Creates a pod that differs in some properties from the one that is deleted last.
async fn pod(client: &Client, name: &str, node: Option<&str>, cost: Option<&str>, status: Value) {
    let annotations = cost.map(|cost| json!({"controller.kubernetes.io/pod-deletion-cost": cost}));
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
    let metadata = json!({"name": name, "labels": {"app": "web"}, "annotations": annotations});
    create::<Pod>(client, json!({"metadata": metadata, "spec": spec})).await;
    let pod = api::<Pod>(client).get(name).await.unwrap();
    set_status(client, &pod, status).await;
}

fn ready(since: &str, restarts: i32) -> Value {
    json!({
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": restarts}],
    })
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_in_rank_order() {
    // The nodes do not exist, so no other controllers run.
    let cluster = Cluster::new(Options::simulated(simulated_clock(), 1));
    let (client, controllers) = (cluster.admin(), [Controller::ReplicaSet, Controller::ServiceAccount]);
    tokio::spawn(async move { cluster.run(&controllers.into_iter().collect()).await });
    sleep(Duration::from_secs(1)).await;
    let long = "2025-01-01T00:00:00Z";
    let bound = Some("alone");
    // In the order of deletion. The names of pods that were created earlier state the only difference.
    pod(&client, "b-pending", bound, None, json!({"phase": "Pending"})).await;
    pod(&client, "d-not-ready", Some("d"), None, json!({"phase": "Running"})).await;
    pod(&client, "e-cheap", Some("e"), Some("-5"), ready(long, 0)).await;
    pod(&client, "f-in-a-crowd", Some("crowd"), None, ready(long, 0)).await;
    pod(&client, "l-dear-in-a-crowd", Some("crowd"), Some("1000"), ready(long, 0)).await;
    pod(&client, "m-dear-in-a-crowd", Some("crowd"), Some("1000"), ready(long, 0)).await;
    pod(&client, "g-ready-lately", Some("g"), None, ready("2025-12-31T23:59:59Z", 0)).await;
    pod(&client, "h-restarted", Some("h"), None, ready(long, 3)).await;
    pod(&client, "k-old", Some("k"), None, ready(long, 0)).await;
    sleep(Duration::from_secs(3600)).await;
    pod(&client, "a-unassigned", None, None, json!({"phase": "Running"})).await;
    pod(&client, "c-unknown", Some("c"), None, json!({"phase": "Unknown"})).await;
    pod(&client, "i-young", Some("i"), None, ready(long, 0)).await;
    set(&client, 12).await;
    let adopted = || async { pods(&client).await.iter().all(|pod| !pod.owner_references().is_empty()) };
    eventually("adoption", adopted).await;
    let mut order = Vec::new();
    for remaining in (2..12).rev() {
        let before: Vec<String> = pods(&client).await.iter().map(ResourceExt::name_any).collect();
        scale(&client, remaining).await;
        eventually("one less", || async { pods(&client).await.len() == usize::try_from(remaining).unwrap() }).await;
        let after: Vec<String> = pods(&client).await.iter().map(ResourceExt::name_any).collect();
        order.extend(before.into_iter().filter(|name| !after.contains(name)));
    }
    let initials: String = order.iter().map(|name| &name[..1]).collect();
    assert_eq!(initials, "abcdefghik", "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn rejected_creation_is_not_repeated_for_each_pod() {
    let client = cluster().admin();
    create::<ResourceQuota>(&client, json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}})).await;
    let counted =
        || async { api::<ResourceQuota>(&client).get("q").await.unwrap().status.unwrap_or_default().hard.is_some() };
    eventually("a quota", counted).await;
    set(&client, 100).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(pods(&client).await.len(), 0);
    let events: Vec<_> =
        api::<k8s_openapi::api::core::v1::Event>(&client).list(&ListParams::default()).await.unwrap().items;
    let refused: Vec<_> = events.iter().filter(|event| event.reason.as_deref() == Some("FailedCreate")).collect();
    // One event for each attempt, of which each is a single request.
    assert!(refused.len() <= 9, "{}", refused.len());
}

#[tokio::test(start_paused = true)]
async fn replication_controller_behaves_as_a_replica_set() {
    let client = cluster().admin();
    let spec = json!({"replicas": 2, "selector": {"app": "web"}, "template": template("i")});
    create::<ReplicationController>(&client, json!({"metadata": {"name": "rc"}, "spec": spec})).await;
    let status = || async { api::<ReplicationController>(&client).get("rc").await.unwrap().status.unwrap_or_default() };
    eventually("two pods", || async { status().await.replicas == 2 }).await;
    assert_eq!(pods(&client).await.len(), 2);
    assert_eq!(status().await.observed_generation, Some(1));
    let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
    api::<ReplicationController>(&client).patch("rc", &PatchParams::default(), &patch).await.unwrap();
    eventually("one pod", || async { pods(&client).await.len() == 1 }).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_namespaces_do_not_count() {
    let client = cluster().admin();
    set(&client, 2).await;
    eventually("two pods", || async { pods(&client).await.len() == 2 }).await;
    let uid = api::<ReplicaSet>(&client).get("web").await.unwrap().uid();
    namespace(&client, "other").await;
    // The garbage collector cannot resolve this owner, and leaves the pods alone.
    let owner = json!({"apiVersion": "absent.io/v1", "kind": "Absent", "name": "a", "uid": uid, "controller": true});
    for number in 0..4 {
        let metadata =
            json!({"name": format!("p{number}"), "labels": {"app": "web"}, "ownerReferences": [owner.clone()]});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let others: Api<Pod> = Api::namespaced(client.clone(), "other");
        others.create(&PostParams::default(), &pod).await.unwrap();
    }
    scale(&client, 3).await;
    eventually("three pods", || async { pods(&client).await.len() == 3 }).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(pods(&client).await.len(), 3);
}
