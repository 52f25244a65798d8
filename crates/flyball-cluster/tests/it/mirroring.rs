//! Mirroring of user-created endpoints to slices.

use crate::{cluster, eventually, namespace};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn endpoints_of_a_service_without_selector_are_mirrored() {
    let client = cluster().admin();
    namespace(&client, "ns").await;
    let services = Api::<Service>::namespaced(client.clone(), "ns");
    let service = json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}});
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let all = Api::<Endpoints>::namespaced(client.clone(), "ns");
    let endpoints = json!({
        "metadata": {"name": "db", "labels": {"app": "db"}},
        "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [{"port": 5432}]}],
    });
    let created = all.create(&PostParams::default(), &serde_json::from_value(endpoints).unwrap()).await.unwrap();

    let slices = Api::<EndpointSlice>::namespaced(client.clone(), "ns");
    let list = async || slices.list(&ListParams::default()).await.unwrap().items;
    eventually("a slice", || async { list().await.len() == 1 }).await;
    let slice = list().await.remove(0);
    let labels = json!({
        "app": "db", "kubernetes.io/service-name": "db",
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
    });
    assert_eq!((slice.metadata.generate_name.as_deref(), json!(slice.labels())), (Some("db-"), labels));
    let owner = &slice.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), Some(&owner.uid), owner.controller),
        ("Endpoints", created.metadata.uid.as_ref(), Some(true))
    );
    assert_eq!(
        json!(slice.endpoints),
        json!([
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
        ])
    );
    assert_eq!(json!(slice.ports), json!([{"name": "", "port": 5432, "protocol": "TCP"}]));

    // A change updates the same slice, and a selector ends the mirroring.
    let change = json!({"subsets": [{"addresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 5432}]}]});
    all.patch("db", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    eventually("the other address", || async {
        let found = list().await;
        found.len() == 1
            && found[0].name_any() == slice.name_any()
            && found[0].endpoints.as_ref().is_some_and(|all| all.len() == 1)
    })
    .await;
    let select = json!({"spec": {"selector": {"app": "db"}}});
    services.patch("db", &PatchParams::default(), &Patch::Merge(select)).await.unwrap();
    eventually("the end of the mirror", || async {
        !list().await.iter().any(|known| known.name_any() == slice.name_any())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_with_skip_mirror_label_are_not_mirrored() {
    let client = cluster().admin();
    namespace(&client, "ns").await;
    let service = json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}});
    Api::<Service>::namespaced(client.clone(), "ns")
        .create(&PostParams::default(), &serde_json::from_value(service).unwrap())
        .await
        .unwrap();
    let endpoints = json!({
        "metadata": {"name": "db", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 5432}]}],
    });
    let all = Api::<Endpoints>::namespaced(client.clone(), "ns");
    all.create(&PostParams::default(), &serde_json::from_value(endpoints).unwrap()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let slices = Api::<EndpointSlice>::namespaced(client, "ns").list(&ListParams::default()).await.unwrap();
    assert!(slices.items.is_empty());
}
