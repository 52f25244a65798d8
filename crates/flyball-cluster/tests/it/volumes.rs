//! Dynamically provisioned volumes and their lifecycle.

use crate::workloads::{api, create};
use crate::{cluster, eventually};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

async fn class(client: &Client, name: &str, more: Value) {
    let mut class = json!({"metadata": {"name": name}, "provisioner": "flyball.dev/simulated"});
    class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let class: StorageClass = serde_json::from_value(class).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &class).await.unwrap();
}

async fn claim(client: &Client, name: &str, class: Value) {
    let spec = json!({"storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "3Gi"}}});
    create::<PersistentVolumeClaim>(client, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn phase(client: &Client, name: &str) -> String {
    api::<PersistentVolumeClaim>(client).get(name).await.unwrap().status.unwrap().phase.unwrap()
}

async fn volumes(client: &Client) -> Vec<PersistentVolume> {
    Api::all(client.clone()).list(&ListParams::default()).await.unwrap().items
}

#[tokio::test(start_paused = true)]
async fn claim_gets_a_volume_of_its_size_that_is_deleted_with_it() {
    let client = cluster().admin();
    class(&client, "fast", json!({})).await;
    claim(&client, "c", json!("fast")).await;
    eventually("a volume", || async { phase(&client, "c").await == "Bound" }).await;
    let volume = volumes(&client).await.remove(0);
    let spec = volume.spec.as_ref().unwrap();
    assert_eq!(spec.capacity.as_ref().unwrap()["storage"].0, "3Gi");
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
    let status = api::<PersistentVolumeClaim>(&client).get("c").await.unwrap().status.unwrap();
    assert_eq!(status.capacity.unwrap()["storage"].0, "3Gi");
    api::<PersistentVolumeClaim>(&client).delete("c", &DeleteParams::default()).await.unwrap();
    eventually("no volume", || async { volumes(&client).await.is_empty() }).await;
}

#[tokio::test(start_paused = true)]
async fn retained_volume_is_kept() {
    let client = cluster().admin();
    class(&client, "kept", json!({"reclaimPolicy": "Retain"})).await;
    claim(&client, "c", json!("kept")).await;
    eventually("a volume", || async { phase(&client, "c").await == "Bound" }).await;
    api::<PersistentVolumeClaim>(&client).delete("c", &DeleteParams::default()).await.unwrap();
    let released = || async {
        let status = volumes(&client).await.remove(0).status;
        status.unwrap().phase.as_deref() == Some("Released")
    };
    eventually("released", released).await;
    sleep(Duration::from_secs(30)).await;
    assert!(released().await);
}

#[tokio::test(start_paused = true)]
async fn claim_waits_for_its_first_consumer() {
    let client = cluster().admin();
    class(&client, "late", json!({"volumeBindingMode": "WaitForFirstConsumer"})).await;
    claim(&client, "c", json!("late")).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(phase(&client, "c").await, "Pending");
    let events = api::<Event>(&client).list(&ListParams::default()).await.unwrap().items;
    let texts: Vec<&str> = events.iter().filter_map(|event| event.message.as_deref()).collect();
    assert_eq!(texts, ["waiting for first consumer to be created before binding"]);
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
    create::<Pod>(&client, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    eventually("a volume", || async { phase(&client, "c").await == "Bound" }).await;
}

#[tokio::test(start_paused = true)]
async fn simulated_nodes_create_a_default_class() {
    let client = cluster().admin();
    claim(&client, "c", json!(null)).await;
    sleep(Duration::from_secs(5)).await;
    let classes: Api<StorageClass> = Api::all(client.clone());
    assert!(classes.list(&ListParams::default()).await.unwrap().items.is_empty());
    let node = json!({"metadata": {"name": "n", "annotations": {"flyball.dev/node": "simulated"}}});
    let node: Node = serde_json::from_value(node).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
    eventually("a class", || async { classes.get_opt("standard").await.unwrap().is_some() }).await;
    let class = classes.get("standard").await.unwrap();
    assert_eq!(class.annotations()["storageclass.kubernetes.io/is-default-class"], "true");
    // The claim was created before the class, and still gets it.
    let of =
        || async { api::<PersistentVolumeClaim>(&client).get("c").await.unwrap().spec.unwrap().storage_class_name };
    eventually("the default class", || async { of().await.as_deref() == Some("standard") }).await;
}

#[tokio::test(start_paused = true)]
async fn claims_of_other_provisioners_get_no_simulated_volume() {
    let client = cluster().admin();
    class(&client, "other", json!({"provisioner": "example.com/driver"})).await;
    let spec = json!({"storageClassName": "other", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "3Gi"}}});
    let annotations = json!({"volume.kubernetes.io/storage-provisioner": "flyball.dev/simulated"});
    create::<PersistentVolumeClaim>(
        &client,
        json!({"metadata": {"name": "c", "annotations": annotations}, "spec": spec}),
    )
    .await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!((phase(&client, "c").await.as_str(), volumes(&client).await.len()), ("Pending", 0));
}

/// Creates a volume of a class without a provisioner.
async fn volume(client: &Client, name: &str, size: &str, claim: Value) {
    let spec = json!({"storageClassName": "manual", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
        "claimRef": claim, "hostPath": {"path": "/data"}});
    let volume: PersistentVolume = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &volume).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_claims_bind_to_new_volumes() {
    let client = cluster().admin();
    for name in ["a", "b"] {
        claim(&client, name, json!("manual")).await;
    }
    sleep(Duration::from_secs(5)).await;
    volume(&client, "small", "1Gi", json!(null)).await;
    volume(&client, "reserved", "4Gi", json!({"namespace": "default", "name": "b"})).await;
    eventually("the reserved volume", || async { phase(&client, "b").await == "Bound" }).await;
    assert_eq!(phase(&client, "a").await, "Pending");
    volume(&client, "large", "8Gi", json!(null)).await;
    eventually("a free volume", || async { phase(&client, "a").await == "Bound" }).await;
    let volume_of =
        async |name: &str| api::<PersistentVolumeClaim>(&client).get(name).await.unwrap().spec.unwrap().volume_name;
    assert_eq!((volume_of("a").await.as_deref(), volume_of("b").await.as_deref()), (Some("large"), Some("reserved")));
}
