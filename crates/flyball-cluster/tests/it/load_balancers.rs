//! Addresses of services of type `LoadBalancer`.

use crate::workloads::{api, create};
use crate::{cluster, eventually};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

async fn service(client: &Client, name: &str, more: Value) {
    let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    create::<Service>(client, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn address(client: &Client, name: &str) -> Option<String> {
    let service = api::<Service>(client).get(name).await.unwrap();
    let ingress = service.status?.load_balancer?.ingress?;
    assert_eq!(ingress[0].ip_mode.as_deref(), Some("VIP"));
    ingress[0].ip.clone()
}

#[tokio::test(start_paused = true)]
async fn services_get_addresses_once_there_is_a_node() {
    let client = cluster().admin();
    for name in ["a", "b"] {
        service(&client, name, json!({})).await;
    }
    service(&client, "c", json!({"loadBalancerClass": "example.com/own"})).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(address(&client, "a").await, None, "nothing to balance to");

    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let ready = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    nodes.patch_status("n", &PatchParams::default(), &ready).await.unwrap();
    eventually("addresses", || async {
        address(&client, "a").await.is_some() && address(&client, "b").await.is_some()
    })
    .await;
    let (a, b) = (address(&client, "a").await.unwrap(), address(&client, "b").await.unwrap());
    assert!(a != b && a.starts_with("172.18.255.") && b.starts_with("172.18.255."), "{a} {b}");
    assert_eq!(address(&client, "c").await, None);

    let services = api::<Service>(&client);
    services.delete("a", &DeleteParams::default()).await.unwrap();
    eventually("no service", || async { services.get_opt("a").await.unwrap().is_none() }).await;
    service(&client, "d", json!({})).await;
    eventually("the same address", || async { address(&client, "d").await.as_ref() == Some(&a) }).await;

    let patch = Patch::Merge(json!({"spec": {"type": "ClusterIP"}}));
    services.patch("b", &PatchParams::default(), &patch).await.unwrap();
    eventually("no address", || async { address(&client, "b").await.is_none() }).await;
    eventually("no finalizer", || async { services.get("b").await.unwrap().finalizers().is_empty() }).await;
}
