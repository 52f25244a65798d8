//! The small sample operators, each with the lifecycle of one object.

use demovolume::api::demovolume_v1::DemoVolume;
use demovolume::controllers::demovolume::controller;
use flyball::Operator;
use flyball_cluster::testing::{Test, explore_crashes};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;
use visitors::api::visitorsapp_v1::VisitorsApp;
use visitors::controllers::visitorsapp;

/// A class whose volumes do not wait for a pod.
const CLASS: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: at-once, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}
provisioner: flyball.dev/simulated
";

/// Changes an object as a user would.
async fn change<K>(api: &Api<K>, name: &str, patch: Value) -> K
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn demo_volume_has_a_bound_claim_of_its_size() {
    let operator = || Operator::new("sample").crd(DemoVolume::crd()).controller(controller());
    let mut test = Test::of(operator).nodes(1).start().await;
    sleep(Duration::from_secs(5)).await; // the newest default class applies
    test.apply(CLASS).await;
    let (volumes, claims) = (test.api::<DemoVolume>(), test.api::<PersistentVolumeClaim>());
    let volume = |name: &str, size: i64| json!({"metadata": {"name": name}, "spec": {"name": "films", "size": size}});
    let create =
        async |volume: Value| volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await;
    create(volume("v", 3)).await.unwrap();
    let bound = async || {
        let status = volumes.get("v").await.unwrap().status.unwrap_or_default();
        status.claim == "Bound" && status.name == "films"
    };
    test.eventually("a bound claim", bound).await;
    let claim = claims.get("v").await.unwrap();
    assert_eq!(claim.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0, "3Gi");
    test.assert_idempotent().await;

    claims.delete("v", &DeleteParams::default()).await.unwrap();
    test.eventually("another claim", async || {
        claims.get_opt("v").await.unwrap().is_some_and(|another| another.uid() != claim.uid()) && bound().await
    })
    .await;

    assert!(create(volume("w", 0)).await.unwrap_err().to_string().contains("spec.size"));
    volumes.delete("v", &DeleteParams::default()).await.unwrap();
    test.eventually("nothing", async || claims.list(&ListParams::default()).await.unwrap().items.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn visitors_site_starts_in_order_and_rolls_and_scales() {
    let mut test = Test::of(visitors).nodes(1).start().await;
    let (sites, deployments) = (test.api::<VisitorsApp>(), test.api::<Deployment>());
    let site = json!({"metadata": {"name": "s"}, "spec": {"size": 1, "title": "Hello"}});
    sites.create(&PostParams::default(), &serde_json::from_value(site).unwrap()).await.unwrap();

    test.eventually("a ready site", async || ready(&sites).await).await;
    // Services are not changed after their creation, so their versions have the order of creation.
    let services = async || test.api::<Service>().list(&ListParams::default()).await.unwrap().items;
    let version_of = |service: &Service| service.resource_version().and_then(|version| version.parse::<u64>().ok());
    let mut order = services().await;
    order.sort_by_key(version_of);
    let order: Vec<String> = order.iter().map(ResourceExt::name_any).collect();
    assert_eq!(order, ["s-mysql", "s-backend", "s-frontend"]);

    let generation = async |name: &str| deployments.get(name).await.unwrap().metadata.generation;
    let (backend, frontend) = (generation("s-backend").await, generation("s-frontend").await);
    change(&sites, "s", json!({"spec": {"title": "Welcome"}})).await;
    let rolled = async || generation("s-frontend").await > frontend && ready(&sites).await;
    test.eventually("a new frontend", rolled).await;
    assert_eq!(generation("s-backend").await, backend, "the title is the frontend's alone");

    change(&sites, "s", json!({"spec": {"size": 3}})).await;
    test.eventually("three backends", async || {
        let status = deployments.get("s-backend").await.unwrap().status.unwrap();
        status.available_replicas == Some(3) && ready(&sites).await
    })
    .await;
    let secret = test.api::<Secret>().get("s-mysql-auth").await.unwrap();
    assert_eq!(secret.data.unwrap()["password"].0, b"not a secret");
    test.assert_idempotent().await;

    sites.delete("s", &DeleteParams::default()).await.unwrap();
    let services = async || test.api::<Service>().list(&ListParams::default()).await.unwrap().items;
    test.eventually("nothing", async || {
        deployments.list(&ListParams::default()).await.unwrap().items.is_empty() && services().await.is_empty()
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

const SITE: &str = "
apiVersion: example.com/v1
kind: VisitorsApp
metadata: {name: s}
spec: {size: 1, title: Hello}
";

fn visitors() -> Operator {
    let sites = visitorsapp::controller(|| "not a secret".into());
    Operator::new("sample").crd(VisitorsApp::crd()).controller(sites)
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing_of_a_visitors_site() {
    let crashes = explore_crashes(|| Test::of(visitors).nodes(1), async |test| test.apply(SITE).await).await;
    assert!(crashes >= 20, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing_of_a_visitors_site() {
    let mut test = Test::of(visitors).nodes(1).start().await;
    test.apply(SITE).await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
}
