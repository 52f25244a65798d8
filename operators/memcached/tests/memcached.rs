//! Tests of `Memcached` on a control plane in the test process, see `flyball_cluster::testing`.

use flyball_cluster::testing::{Test, explore_crashes};
use flyball_explore::{Budget, Explorer};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use memcached::api::memcached_v1alpha1::Memcached;
use memcached::operator;
use serde_json::json;
use std::time::Duration;

const SAMPLE: &str = include_str!("../config/samples/cache_v1alpha1_memcached.yaml");

#[tokio::test(start_paused = true)]
async fn status_lists_all_pods() -> kube::Result<()> {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    // A pod without the label, which must not be listed.
    test.apply("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}").await;
    for size in [3, 5, 0, 1] {
        let patch = json!({"spec": {"size": size}});
        test.api::<Memcached>().patch("memcached-sample", &PatchParams::default(), &Patch::Merge(patch)).await?;
        test.assert_converges().await;
        let pods = test.api::<Pod>().list(&ListParams::default().labels("app.kubernetes.io/name=memcached")).await?;
        let pods: Vec<String> = pods.items.into_iter().filter_map(|pod| pod.metadata.name).collect();
        let status = test.api::<Memcached>().get("memcached-sample").await?.status.unwrap_or_default();
        assert_eq!((&status.nodes, status.nodes.len()), (&pods, size));
        assert_eq!(status.conditions[0].message, format!("{size} of {size} pods are ready"));
        assert_eq!(status.conditions[0].status, "True");
    }
    test.assert_idempotent().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_leaves_the_status() -> kube::Result<()> {
    let test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    let nodes = async || -> kube::Result<Vec<String>> {
        Ok(test.api::<Memcached>().get("memcached-sample").await?.status.unwrap_or_default().nodes)
    };
    let before = nodes().await?;
    test.api::<Pod>().delete(&before[0], &Default::default()).await?;
    test.assert_converges().await;
    let after = nodes().await?;
    assert!(after.len() == 3 && !after.contains(&before[0]), "{before:?} {after:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing() {
    explore_crashes(|| Test::of(operator).nodes(1), async |test| test.apply(SAMPLE).await).await;
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing() {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
}

#[test]
fn explore_faults_change_nothing() {
    Explorer::of(operator).sample(SAMPLE).budget(Budget::schedules(100)).run().assert_clean();
}
