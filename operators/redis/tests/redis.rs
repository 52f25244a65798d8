//! Tests of `Redis` on a control plane in the test process, see `flyball_cluster::testing`.

use flyball_cluster::testing::{Setup, Test, explore_crashes};
use flyball_explore::{Budget, Explorer};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use redis::api::redis_v1alpha1::{Redis, RedisSpec};
use redis::operator;
use serde_json::json;
use std::time::Duration;

const SAMPLE: &str = include_str!("../config/samples/cache_v1alpha1_redis.yaml");

/// Returns a control plane with a node, on which pods become ready.
fn cluster() -> Setup {
    Test::of(operator).nodes(1)
}

/// Returns the names of all pods, sorted.
async fn pods(test: &Test) -> kube::Result<Vec<String>> {
    let found = test.api::<Pod>().list(&ListParams::default()).await?;
    Ok(found.items.into_iter().filter_map(|pod| pod.metadata.name).collect())
}

#[tokio::test(start_paused = true)]
async fn status_lists_all_pods() -> kube::Result<()> {
    let mut test = cluster().start().await;
    test.apply(SAMPLE).await;
    for size in [3, 4, 1] {
        let patch = json!({"spec": {"size": size}});
        test.api::<Redis>().patch("redis-cache", &PatchParams::default(), &Patch::Merge(patch)).await?;
        test.assert_converges().await;
        let status = test.api::<Redis>().get("redis-cache").await?.status.unwrap_or_default();
        assert_eq!(status.pods, pods(&test).await?);
        assert_eq!((status.ready, status.pods.len()), (size, usize::try_from(size).unwrap_or_default()));
        assert_eq!(status.conditions[0].status, "True");
    }
    test.assert_idempotent().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_is_recreated() -> kube::Result<()> {
    let test = cluster().start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    test.api::<Pod>().delete("redis-cache-1", &Default::default()).await?;
    test.assert_converges().await;
    assert_eq!(pods(&test).await?, ["redis-cache-0", "redis-cache-1", "redis-cache-2"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn invalid_objects_are_rejected() {
    let test = cluster().start().await;
    let invalid = Redis::new("invalid", RedisSpec { size: 11, image: String::new() });
    let error = test.api::<Redis>().create(&PostParams::default(), &invalid).await.expect_err("two fields are invalid");
    let error = error.to_string();
    assert!(error.contains("spec.size") && error.contains("spec.image"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing() {
    explore_crashes(cluster, async |test| test.apply(SAMPLE).await).await;
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing() {
    let mut test = cluster().start().await;
    test.apply(SAMPLE).await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
}

#[test]
fn explore_faults_change_nothing() {
    Explorer::of(operator).sample(SAMPLE).budget(Budget::schedules(60)).run().assert_clean();
}
