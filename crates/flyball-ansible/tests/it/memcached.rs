//! The sample `samples/memcached-ansible`.

use crate::project::{api, change, condition, operator_of};
use flyball::{Kind, Operator};
use flyball_cluster::Faults;
use flyball_cluster::testing::{Test, explore_crashes};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

const SAMPLE: &str = include_str!("../../../../samples/memcached-ansible/config/samples/cache_v1alpha1_memcached.yaml");

fn operator() -> Operator {
    operator_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/memcached-ansible"))
}

fn memcacheds() -> Kind {
    Kind::new("cache.example.com", "v1alpha1", "Memcached")
}

async fn ready_pods(test: &Test) -> usize {
    let pods = test.api::<Pod>().list(&ListParams::default()).await.unwrap();
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    pods.items.iter().filter(|pod| is_ready(pod)).count()
}

#[tokio::test(start_paused = true)]
async fn ready_pods_follow_the_size() {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    let objects = api(&test, &memcacheds());
    for size in [3, 5, 0, 1] {
        change(&objects, "memcached-sample", json!({"spec": {"size": size}})).await;
        test.assert_converges().await;
        assert_eq!(ready_pods(&test).await, size);
        let object = objects.get("memcached-sample").await.unwrap();
        let running = condition(&object, "Running");
        assert_eq!((&running["status"], &running["reason"]), (&json!("True"), &json!("Successful")), "{running}");
        assert_eq!(running["ansibleResult"]["failures"], 0, "{running}");
        assert_eq!(
            (&running["ansibleResult"]["ok"], &running["ansibleResult"]["changed"]),
            (&json!(1), &json!(0)),
            "{running}"
        );
        assert_eq!(condition(&object, "Successful")["status"], "True");
        assert_eq!(condition(&object, "Failure")["status"], "False");
    }
    test.assert_idempotent().await;
}

#[test]
fn permissions_follow_the_role() {
    let described = operator().describe();
    assert_eq!(
        (described.name.as_str(), described.controllers[0].owns.as_slice()),
        ("memcached-ansible", &["deployments.v1.apps".to_owned()][..])
    );
    assert_eq!(described.definitions.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_within_a_second() {
    let test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    let deployments = test.api::<Deployment>();
    deployments.delete("memcached-sample", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let replicas = async || deployments.get("memcached-sample").await.unwrap().spec.unwrap().replicas;
    assert_eq!(replicas().await, Some(3));
    let drift = Patch::Merge(json!({"spec": {"replicas": 7}}));
    deployments.patch("memcached-sample", &PatchParams::default(), &drift).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(replicas().await, Some(3));
    test.assert_converges().await;
    assert_eq!(ready_pods(&test).await, 3);
}

#[tokio::test(start_paused = true)]
async fn deletion_leaves_nothing_behind() {
    let test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    api(&test, &memcacheds()).delete("memcached-sample", &DeleteParams::default()).await.unwrap();
    let are_deleted = async || {
        let deployments = test.api::<Deployment>().list(&ListParams::default()).await.unwrap();
        deployments.items.is_empty() && test.api::<Pod>().list(&ListParams::default()).await.unwrap().items.is_empty()
    };
    test.eventually("all is gone", are_deleted).await;
}

#[tokio::test(start_paused = true)]
async fn user_text_is_never_a_template() {
    let test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    let image = "x{{ lookup('env', 'HOME') }}";
    change(&api(&test, &memcacheds()), "memcached-sample", json!({"spec": {"image": image}})).await;
    test.assert_converges().await;
    let deployment = test.api::<Deployment>().get("memcached-sample").await.unwrap();
    let deployment: Value = serde_json::to_value(deployment).unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], image);
}

#[tokio::test(start_paused = true)]
async fn run_repeats_by_seed() {
    let play = async || {
        let test = Test::of(operator).seed(7).nodes(1).start().await;
        test.apply(SAMPLE).await;
        test.assert_converges().await;
        test.trace()
    };
    assert!(play().await == play().await, "two runs with the same seed differ");
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing() {
    let crashes = explore_crashes(|| Test::of(operator).nodes(1), async |test| test.apply(SAMPLE).await).await;
    assert!(crashes > 6, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing() {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
}

#[tokio::test(start_paused = true)]
async fn chaos_faults_change_nothing() {
    let faults = Faults {
        conflict: 0.1,
        server_error: 0.1,
        lost_response: 0.1,
        broken_watch: 0.05,
        late: 0.1,
        repeated: 0.1,
        expired: 0.1,
        slow: 0.1,
    };
    for seed in 0..10 {
        let test = Test::of(operator).seed(seed).nodes(1).faults(faults).start().await;
        test.apply(SAMPLE).await;
        test.eventually("three pods are ready", async || ready_pods(&test).await == 3).await;
        let is_reported = async || {
            let object = api(&test, &memcacheds()).get("memcached-sample").await.unwrap();
            condition(&object, "Successful")["status"] == "True" && condition(&object, "Failure")["status"] == "False"
        };
        test.eventually("it is told", is_reported).await;
        assert_eq!(test.api::<Deployment>().list(&ListParams::default()).await.unwrap().items.len(), 1);
    }
}
