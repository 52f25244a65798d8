//! Stateful sets: partitions, ordinals, and the claims of their pods.

use crate::workloads::{api, create, pods, run};
use crate::{cluster, eventually};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "s"}}, "spec": {"terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": image}]}})
}

async fn set(client: &Client, more: Value) {
    let claim = json!({"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let mut spec = json!({"replicas": 3, "serviceName": "s", "selector": {"matchLabels": {"app": "s"}},
        "template": template("i:1"), "volumeClaimTemplates": [claim], "podManagementPolicy": "Parallel"});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    create::<StatefulSet>(client, json!({"metadata": {"name": "s"}, "spec": spec})).await;
}

async fn patch(client: &Client, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    api::<StatefulSet>(client).patch("s", &PatchParams::default(), &patch).await.unwrap();
}

async fn names(client: &Client) -> Vec<String> {
    pods(client).await.iter().map(ResourceExt::name_any).collect()
}

async fn claims(client: &Client) -> Vec<String> {
    let claims = api::<PersistentVolumeClaim>(client).list(&ListParams::default()).await.unwrap().items;
    claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect()
}

#[tokio::test(start_paused = true)]
async fn claims_are_retained_by_default() {
    let client = cluster().admin();
    set(&client, json!({})).await;
    eventually("pods", || async { names(&client).await == ["s-0", "s-1", "s-2"] }).await;
    patch(&client, json!({"replicas": 1})).await;
    eventually("one pod", || async { names(&client).await == ["s-0"] }).await;
    api::<StatefulSet>(&client).delete("s", &DeleteParams::background()).await.unwrap();
    eventually("no pods", || async { names(&client).await.is_empty() }).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(claims(&client).await, ["d-s-0", "d-s-1", "d-s-2"]);
}

#[tokio::test(start_paused = true)]
async fn claims_are_deleted_with_surplus_pods_and_the_set() {
    let client = cluster().admin();
    set(&client, json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Delete"}}))
        .await;
    eventually("pods", || async { names(&client).await.len() == 3 }).await;
    run(&client).await;
    let owner =
        || async { api::<PersistentVolumeClaim>(&client).get("d-s-0").await.unwrap().owner_references().to_vec() };
    eventually("owners", || async { owner().await.first().is_some_and(|owner| owner.kind == "StatefulSet") }).await;
    patch(&client, json!({"replicas": 1})).await;
    eventually("one claim", || async { claims(&client).await == ["d-s-0"] }).await;
    patch(&client, json!({"replicas": 2})).await;
    eventually("two pods", || async { names(&client).await == ["s-0", "s-1"] }).await;
    assert_eq!(claims(&client).await, ["d-s-0", "d-s-1"]);
    api::<StatefulSet>(&client).delete("s", &DeleteParams::background()).await.unwrap();
    eventually("no claims", || async { claims(&client).await.is_empty() }).await;
}

#[tokio::test(start_paused = true)]
async fn partition_counts_from_the_first_ordinal() {
    let client = cluster().admin();
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    set(&client, json!({"ordinals": {"start": 5}, "updateStrategy": strategy})).await;
    eventually("pods", || async { names(&client).await == ["s-5", "s-6", "s-7"] }).await;
    run(&client).await;
    patch(&client, json!({"template": template("i:2")})).await;
    for _ in 0..5 {
        sleep(Duration::from_secs(1)).await;
        run(&client).await;
    }
    let images: Vec<_> =
        pods(&client).await.iter().map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()).collect();
    assert_eq!(images, ["i:1", "i:2", "i:2"]);
}
