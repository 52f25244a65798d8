//! Daemon sets on nodes that are added, changed and removed.

use crate::workloads::{api, create, pods, set_status};
use crate::{cluster, eventually};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;

/// Creates a node without taints and limits.
async fn node(client: &Client, name: &str, labels: Value) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    taint(client, name, json!(null)).await;
}

async fn taint(client: &Client, name: &str, taints: Value) {
    let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
    Api::<Node>::all(client.clone()).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn daemon(client: &Client, strategy: Value) {
    let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {
        "nodeSelector": {"pool": "a"}, "containers": [{"name": "c", "image": "i:1"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "d"}}, "template": template, "updateStrategy": strategy});
    create::<DaemonSet>(client, json!({"metadata": {"name": "d"}, "spec": spec})).await;
}

async fn set_image(client: &Client, image: &str) {
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    api::<DaemonSet>(client).patch("d", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

/// Binds pods to the nodes of their affinity, and runs them.
async fn run(client: &Client) {
    for pod in pods(client).await {
        let affinity = pod.spec.as_ref().unwrap().affinity.as_ref().unwrap().node_affinity.as_ref().unwrap();
        let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref().unwrap().node_selector_terms;
        let node = terms[0].match_fields.as_ref().unwrap()[0].values.as_ref().unwrap()[0].clone();
        let name = pod.name_any();
        if pod.spec.as_ref().unwrap().node_name.is_none() {
            let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
            let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
            let request = http::Request::post(path).header("content-type", "application/json");
            client.request::<Value>(request.body(binding.to_string().into_bytes()).unwrap()).await.unwrap();
        }
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        set_status(client, &pod, ready).await;
    }
}

/// Deletes terminating pods.
async fn reap(client: &Client) {
    for pod in api::<Pod>(client).list(&ListParams::default()).await.unwrap() {
        if pod.metadata.deletion_timestamp.is_some() {
            api::<Pod>(client).delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
        }
    }
}

async fn images(client: &Client) -> BTreeMap<String, usize> {
    let mut images = BTreeMap::new();
    for pod in pods(client).await {
        *images.entry(pod.spec.unwrap().containers[0].image.clone().unwrap()).or_default() += 1;
    }
    images
}

async fn status(client: &Client) -> [i32; 5] {
    let status = api::<DaemonSet>(client).get("d").await.unwrap().status.unwrap();
    let available = status.number_available.unwrap_or(0);
    let updated = status.updated_number_scheduled.unwrap_or(0);
    [status.desired_number_scheduled, status.current_number_scheduled, status.number_misscheduled, available, updated]
}

#[tokio::test(start_paused = true)]
async fn daemon_pods_run_on_matching_nodes() {
    let client = cluster().admin();
    for name in ["n1", "n2"] {
        node(&client, name, json!({"pool": "a"})).await;
    }
    node(&client, "n3", json!({})).await;
    daemon(&client, json!(null)).await;
    eventually("two pods", || async { pods(&client).await.len() == 2 }).await;
    run(&client).await;
    eventually("available", || async { status(&client).await == [2, 2, 0, 2, 2] }).await;
    // A taint with `NoSchedule` affects new pods only.
    taint(&client, "n1", json!([{"key": "k", "effect": "NoSchedule"}])).await;
    eventually("a misplaced pod", || async { status(&client).await == [1, 1, 1, 1, 1] }).await;
    taint(&client, "n1", json!([{"key": "k", "effect": "NoExecute"}])).await;
    eventually("one pod less", || async { pods(&client).await.len() == 1 }).await;
    reap(&client).await;
    taint(&client, "n1", json!(null)).await;
    eventually("two pods again", || async { pods(&client).await.len() == 2 }).await;
    // Failed pods are replaced, with increasing back-off.
    run(&client).await;
    let failed = pods(&client).await.remove(0);
    set_status(&client, &failed, json!({"phase": "Failed"})).await;
    let is_gone = || async { !pods(&client).await.iter().any(|pod| pod.metadata.uid == failed.metadata.uid) };
    eventually("no failed pod", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn rolling_update_respects_max_unavailable() {
    let client = cluster().admin();
    for n in 0..4 {
        node(&client, &format!("n{n}"), json!({"pool": "a"})).await;
    }
    daemon(&client, json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}})).await;
    eventually("four pods", || async { pods(&client).await.len() == 4 }).await;
    run(&client).await;
    sleep(Duration::from_secs(1)).await;
    set_image(&client, "i:2").await;
    for _ in 0..6 {
        sleep(Duration::from_secs(1)).await;
        assert!(pods(&client).await.len() >= 2, "at most two are missing");
        reap(&client).await;
        sleep(Duration::from_secs(1)).await;
        run(&client).await;
    }
    assert_eq!(images(&client).await, [("i:2".to_owned(), 4)].into());
    assert_eq!(status(&client).await, [4, 4, 0, 4, 4]);
    let revisions = api::<ControllerRevision>(&client).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(revisions.iter().map(|revision| revision.revision).collect::<Vec<_>>().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn surge_creates_the_new_pod_before_deleting_the_old_one() {
    let client = cluster().admin();
    for n in 0..3 {
        node(&client, &format!("n{n}"), json!({"pool": "a"})).await;
    }
    let rolling = json!({"maxSurge": 1, "maxUnavailable": 0});
    daemon(&client, json!({"type": "RollingUpdate", "rollingUpdate": rolling})).await;
    eventually("three pods", || async { pods(&client).await.len() == 3 }).await;
    run(&client).await;
    sleep(Duration::from_secs(1)).await;
    set_image(&client, "i:2").await;
    for _ in 0..8 {
        sleep(Duration::from_secs(1)).await;
        let count = pods(&client).await.len();
        assert!((3..=4).contains(&count), "{count} pods");
        run(&client).await;
        reap(&client).await;
    }
    assert_eq!(images(&client).await, [("i:2".to_owned(), 3)].into());
}

#[tokio::test(start_paused = true)]
async fn on_delete_strategy_replaces_no_pods() {
    let client = cluster().admin();
    node(&client, "n", json!({"pool": "a"})).await;
    daemon(&client, json!({"type": "OnDelete"})).await;
    eventually("a pod", || async { pods(&client).await.len() == 1 }).await;
    run(&client).await;
    set_image(&client, "i:2").await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(images(&client).await, [("i:1".to_owned(), 1)].into());
    let pod = pods(&client).await.remove(0);
    api::<Pod>(&client).delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
    eventually("the new image", || async { images(&client).await == [("i:2".to_owned(), 1)].into() }).await;
}
