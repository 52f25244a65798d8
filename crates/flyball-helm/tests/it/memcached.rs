//! The sample `samples/memcached-helm`, unchanged.

use crate::project::{api, condition, history, operator, patch};
use flyball::Operator;
use flyball_cluster::testing::{Test, explore_crashes};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/memcached-helm");
const SAMPLE: &str = include_str!("../../../../samples/memcached-helm/config/samples/cache_v1alpha1_memcached.yaml");
const NAME: &str = "memcached-sample";

fn sample() -> Operator {
    operator(Path::new(DIRECTORY))
}

fn memcacheds(test: &Test) -> Api<DynamicObject> {
    api(test, "cache.example.com", "v1alpha1", "Memcached")
}

async fn ready_pods(test: &Test) -> usize {
    let selected = ListParams::default().labels("app.kubernetes.io/instance=memcached-sample");
    let pods = test.api::<Pod>().list(&selected).await.expect("they can be listed");
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    pods.items.iter().filter(|pod| is_ready(pod)).count()
}

#[test]
fn permissions_follow_the_chart() {
    let operator = sample();
    let resources: Vec<String> =
        operator.rules().into_iter().flat_map(|rule| rule.resources.unwrap_or_default()).collect();
    let expected = [
        "secrets",
        "serviceaccounts",
        "services",
        "statefulsets",
        "memcacheds",
        "memcacheds/finalizers",
        "memcacheds/status",
        "events",
        "poddisruptionbudgets",
    ];
    assert_eq!(resources, expected);
    let description = operator.describe();
    assert_eq!((&*description.name, description.controllers.len()), ("memcached-helm", 1));
    assert_eq!(description.definitions[0].versions[0].name, "v1alpha1");
}

#[tokio::test(start_paused = true)]
async fn memcached_becomes_a_release_with_ready_pods() -> kube::Result<()> {
    let mut test = Test::of(sample).nodes(3).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    assert_eq!(ready_pods(&test).await, 3);
    let deployed = condition(&memcacheds(&test), NAME, "Deployed").await;
    assert!(
        deployed.starts_with("True InstallSuccessful: 3 pods of memcached 1.6.39 answer at memcached-sample."),
        "{deployed}"
    );
    let set = test.api::<StatefulSet>().get(NAME).await?.spec.expect("it has one");
    let container = &set.template.spec.expect("it has one").containers[0];
    assert_eq!(container.image.as_deref(), Some("memcached:1.6.39-alpine"));
    assert_eq!(container.args.as_deref().unwrap_or_default()[0], "--memory-limit=128");
    let resources = serde_json::to_value(&container.resources).unwrap_or_default();
    assert_eq!(resources, json!({"requests": {"cpu": "50m", "memory": "160Mi"}, "limits": {"memory": "160Mi"}}));
    assert_eq!(test.api::<Service>().get(NAME).await?.spec.and_then(|spec| spec.cluster_ip).as_deref(), Some("None"));
    assert!(test.api::<ServiceAccount>().get_opt(NAME).await?.is_some());
    assert!(test.api::<PodDisruptionBudget>().get_opt(NAME).await?.is_some());

    patch(&memcacheds(&test), NAME, json!({"spec": {"replicaCount": 5, "podDisruptionBudget": {"enabled": false}}}))
        .await;
    test.assert_converges().await;
    assert_eq!(
        (ready_pods(&test).await, history(&test, NAME).await),
        (5, vec!["1 superseded".into(), "2 deployed".into()])
    );
    assert!(test.api::<PodDisruptionBudget>().get_opt(NAME).await?.is_none());

    test.api::<Service>().delete(NAME, &DeleteParams::default()).await?;
    sleep(Duration::from_secs(1)).await;
    assert!(test.api::<Service>().get_opt(NAME).await?.is_some());
    test.assert_idempotent().await;

    patch(&memcacheds(&test), NAME, json!({"spec": {"image": 5}})).await;
    test.assert_converges().await;
    let failed = condition(&memcacheds(&test), NAME, "Irreconcilable").await;
    assert!(failed.starts_with("True ReconcileError: ") && failed.contains("image"), "{failed}");
    assert_eq!(ready_pods(&test).await, 5);

    memcacheds(&test).delete(NAME, &DeleteParams::default()).await?;
    test.assert_converges().await;
    let remaining: Vec<String> = test.state().await.into_keys().filter(|name| name.contains("memcached")).collect();
    assert_eq!(remaining, Vec::<String>::new());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn declared_permissions_are_used() {
    let mut test = Test::of(sample).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    for name in ["services", "statefulsets", "serviceaccounts"] {
        let resource = kube::api::ApiResource::from_gvk(&match name {
            "statefulsets" => kube::api::GroupVersionKind::gvk("apps", "v1", "StatefulSet"),
            "services" => kube::api::GroupVersionKind::gvk("", "v1", "Service"),
            _ => kube::api::GroupVersionKind::gvk("", "v1", "ServiceAccount"),
        });
        let objects: Api<DynamicObject> = Api::namespaced_with(test.client(), test.namespace(), &resource);
        patch(&objects, NAME, json!({"metadata": {"labels": {"app.kubernetes.io/version": "odd"}}})).await;
    }
    test.assert_idempotent().await;
    memcacheds(&test).delete(NAME, &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    let unused: Vec<String> = test.unused_permissions().iter().map(ToString::to_string).collect();
    // The API server requires these permissions if an applied object does not exist yet, if an object blocks the
    // deletion of its owner, and for reads past the cache. Events report overrides and failures.
    let is_told = |unused: &&String| {
        !["create ", "get ", "memcacheds/finalizers", "events"].iter().any(|known| unused.contains(known))
    };
    let unused: Vec<&String> = unused.iter().filter(is_told).collect();
    assert_eq!(unused, Vec::<&String>::new());
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing() {
    explore_crashes(
        || Test::of(sample).nodes(1),
        async |test| {
            test.apply(SAMPLE).await;
            test.assert_converges().await;
            patch(
                &memcacheds(test),
                NAME,
                json!({"spec": {"replicaCount": 2, "podDisruptionBudget": {"enabled": false}}}),
            )
            .await;
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing() {
    let mut test = Test::of(sample).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
}
