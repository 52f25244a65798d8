//! The small sample operators, each in the life of one of its objects.

use crate::workloads::{api, create};
use crate::{cluster, eventually};
use demovolume::operator::DemoVolumes;
use demovolume::resource::DemoVolume;
use flyball::{Controller, Operator, Reconcile};
use flyball_cluster::{Cluster, Nodes, User};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;
use visitors::operator::Visitors;
use visitors::resource::VisitorsApp;

/// Starts an operator, and a node for what it makes.
async fn start<R: Reconcile>(cluster: &Cluster, crd: CustomResourceDefinition, controller: Controller<R>) -> Client {
    let admin = cluster.admin();
    Api::all(admin.clone()).create(&PostParams::default(), &crd).await.unwrap();
    Nodes::new("n", 1).add_to(&admin).await.unwrap();
    let client = cluster.client(User::new("operator", &["system:masters"]));
    tokio::spawn(async move { Operator::new("sample").controller(controller).run(client, pending()).await });
    admin
}

/// Changes an object as a user would.
async fn change<K>(api: &Api<K>, name: &str, patch: Value) -> K
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_demo_volume_has_a_bound_claim_of_its_size() {
    let cluster = cluster();
    let admin = start(&cluster, DemoVolume::crd(), DemoVolumes.controller()).await;
    let class = json!({
        "metadata": {"name": "at-once", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "flyball.dev/simulated",
    });
    let class: StorageClass = serde_json::from_value(class).unwrap();
    sleep(Duration::from_secs(5)).await; // the newest default class is the one that counts
    Api::all(admin.clone()).create(&PostParams::default(), &class).await.unwrap();
    let (volumes, claims) = (api::<DemoVolume>(&admin), api::<PersistentVolumeClaim>(&admin));
    create::<DemoVolume>(&admin, json!({"metadata": {"name": "v"}, "spec": {"name": "films", "size": 3}})).await;
    let bound = || async {
        let status = volumes.get("v").await.unwrap().status.unwrap_or_default();
        status.claim == "Bound" && status.name == "films"
    };
    eventually("a bound claim", bound).await;
    let claim = claims.get("v").await.unwrap();
    assert_eq!(claim.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0, "3Gi");

    // All is as it should be, so nothing is written.
    let version = volumes.get("v").await.unwrap().resource_version();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(volumes.get("v").await.unwrap().resource_version(), version);

    claims.delete("v", &DeleteParams::default()).await.unwrap();
    eventually("another claim", || async {
        claims.get_opt("v").await.unwrap().is_some_and(|another| another.uid() != claim.uid()) && bound().await
    })
    .await;

    let too_small = json!({"metadata": {"name": "w"}, "spec": {"name": "none", "size": 0}});
    let refused = volumes.create(&PostParams::default(), &serde_json::from_value(too_small).unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("spec.size"));
    volumes.delete("v", &DeleteParams::default()).await.unwrap();
    eventually("nothing", || async { claims.list(&ListParams::default()).await.unwrap().items.is_empty() }).await;
}

#[tokio::test(start_paused = true)]
async fn a_visitors_site_comes_in_order_rolls_and_scales() {
    let cluster = cluster();
    let controller = Visitors::new(|| "not a secret".into()).controller();
    let admin = start(&cluster, VisitorsApp::crd(), controller).await;
    let (sites, deployments) = (api::<VisitorsApp>(&admin), api::<Deployment>(&admin));
    create::<VisitorsApp>(&admin, json!({"metadata": {"name": "s"}, "spec": {"size": 1, "title": "Hello"}})).await;

    eventually("a ready site", || async { ready(&sites).await }).await;
    // Nobody changes services once they are made, so their versions tell in which order that was.
    let services = || async { api::<Service>(&admin).list(&ListParams::default()).await.unwrap().items };
    let made = |service: &Service| service.resource_version().and_then(|version| version.parse::<u64>().ok());
    let mut order = services().await;
    order.sort_by_key(made);
    let order: Vec<String> = order.iter().map(ResourceExt::name_any).filter(|name| name.starts_with("s-")).collect();
    assert_eq!(order, ["s-mysql", "s-backend", "s-frontend"]);

    let generation = |name: &'static str| {
        let deployments = deployments.clone();
        async move { deployments.get(name).await.unwrap().metadata.generation }
    };
    let (backend, frontend) = (generation("s-backend").await, generation("s-frontend").await);
    change(&sites, "s", json!({"spec": {"title": "Welcome"}})).await;
    eventually("a new frontend", || async { generation("s-frontend").await > frontend && ready(&sites).await }).await;
    assert_eq!(generation("s-backend").await, backend, "the title is the frontend's alone");

    change(&sites, "s", json!({"spec": {"size": 3}})).await;
    eventually("three backends", || async {
        let status = deployments.get("s-backend").await.unwrap().status.unwrap();
        status.available_replicas == Some(3) && ready(&sites).await
    })
    .await;
    let password = || async { api::<Secret>(&admin).get("s-mysql-auth").await.unwrap().data.unwrap() };
    assert_eq!(password().await["password"].0, b"not a secret");

    sites.delete("s", &DeleteParams::default()).await.unwrap();
    eventually("nothing", || async {
        deployments.list(&ListParams::default()).await.unwrap().items.is_empty()
            && services().await.iter().all(|service| service.name_any() == "kubernetes")
    })
    .await;
}

async fn ready(sites: &Api<VisitorsApp>) -> bool {
    let site = sites.get("s").await.unwrap();
    let conditions = site.status.into_iter().flat_map(|status| status.conditions);
    conditions
        .into_iter()
        .any(|condition| condition.status == "True" && condition.observed_generation == site.metadata.generation)
}
