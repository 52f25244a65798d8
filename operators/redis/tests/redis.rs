//! `Redis` on a control plane that runs in the test itself: see `flyball_cluster::testing`.

use flyball_cluster::testing::{Setup, Test, explore_crashes};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use redis::api::redis_v1alpha1::{Redis, RedisSpec};
use redis::operator;
use serde_json::json;
use std::time::Duration;

const SAMPLE: &str = include_str!("../config/samples/cache_v1alpha1_redis.yaml");

/// The sample on a cluster with a node, which has pods become ready.
fn cluster() -> Setup {
    Test::of(operator).nodes(1)
}

/// Returns the pods that are there, in the order of their names.
async fn pods(test: &Test) -> kube::Result<Vec<String>> {
    let found = test.api::<Pod>().list(&ListParams::default()).await?;
    Ok(found.items.into_iter().filter_map(|pod| pod.metadata.name).collect())
}

#[tokio::test(start_paused = true)]
async fn its_status_lists_as_many_pods_as_it_has() -> kube::Result<()> {
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
async fn a_pod_that_goes_comes_back() -> kube::Result<()> {
    let test = cluster().start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    test.api::<Pod>().delete("redis-cache-1", &Default::default()).await?;
    test.assert_converges().await;
    assert_eq!(pods(&test).await?, ["redis-cache-0", "redis-cache-1", "redis-cache-2"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_breaks_the_rules_is_refused() {
    let test = cluster().start().await;
    let invalid = Redis::new("invalid", RedisSpec { size: 11, image: String::new() });
    let refused = test.api::<Redis>().create(&PostParams::default(), &invalid).await.expect_err("it breaks two rules");
    let refused = refused.to_string();
    assert!(refused.contains("spec.size") && refused.contains("spec.image"), "{refused}");
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
