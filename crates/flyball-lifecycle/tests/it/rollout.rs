//! Progressive rollouts: a Subscription follows another one, and probes hold an upgrade back.

use crate::fixture::{SUCCEEDED, namespace, patch, state_in};
use crate::subscriptions::{begin, condition, setup};
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{ClusterServiceVersion, Subscription};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::time::Duration;

const STAGING: &str = "staging";

/// Creates a Subscription with annotations, which starts with the first version.
async fn subscribe(test: &Test, namespace: &str, annotations: Value) {
    let subscription = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
        "metadata": {"name": "memo", "namespace": namespace, "annotations": annotations},
        "spec": {
            "name": "memo", "channel": "stable", "startingCSV": "memo.v1.0.0", "source": "demo",
            "sourceNamespace": test.namespace(),
        },
    });
    test.apply(&subscription.to_string()).await;
}

/// Creates a namespace with a Subscription.
async fn begin_staging(test: &Test, annotations: Value) {
    namespace(test, STAGING, json!({})).await;
    let group = json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
        "metadata": {"name": "group", "namespace": STAGING}, "spec": {"targetNamespaces": [STAGING]},
    });
    test.apply(&group.to_string()).await;
    subscribe(test, STAGING, annotations).await;
}

async fn annotate(test: &Test, namespace: &str, annotations: Value) {
    let subscriptions: Api<Subscription> = Api::namespaced(test.client(), namespace);
    patch(&subscriptions, "memo", json!({"metadata": {"annotations": annotations}})).await;
}

async fn until_held(test: &Test, reason: &str, message: &str) {
    test.eventually(&format!("it is held back: {reason}: {message}"), async || {
        let held = condition(test, "memo", "RolloutHeld").await;
        held.is_some_and(|(found, text)| found == reason && text.contains(message))
    })
    .await;
}

async fn until_runs(test: &Test, namespace: &str, version: &str) {
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(test.client(), namespace);
    test.eventually(&format!("{version} runs in {namespace}"), async || state_in(&csvs, version).await == SUCCEEDED)
        .await;
}

async fn is_absent(test: &Test, version: &str) -> bool {
    state_in(&test.api(), version).await == "absent"
}

#[tokio::test(start_paused = true)]
async fn follower_installs_what_its_leader_has_run_for_a_time() {
    let test = setup().allows_changes_in(STAGING).start().await;
    begin(&test).await;
    // The leader does not permit followers yet.
    begin_staging(&test, json!({"olm.flyball.dev/versions": "<1.1.0"})).await;
    until_runs(&test, STAGING, "memo.v1.0.0").await;
    let wait = json!({"olm.flyball.dev/rollout-after": "staging/memo", "olm.flyball.dev/rollout-soak": "30m"});
    subscribe(&test, test.namespace(), wait).await;
    until_held(&test, "LeaderNotReady", "does not exist, or does not permit followers in namespace test").await;
    let leads = json!({"olm.flyball.dev/rollout-leads": "a, test"});
    annotate(&test, STAGING, leads).await;
    until_held(&test, "LeaderNotReady", "has not yet run memo.v1.0.0 for the time").await;
    assert!(is_absent(&test, "memo.v1.0.0").await);
    until_runs(&test, test.namespace(), "memo.v1.0.0").await;
    until_held(&test, "NewerVersionsWait", "versions after 1.0.0 wait until Subscription staging/memo runs them").await;

    let began = tokio::time::Instant::now();
    annotate(&test, STAGING, json!({"olm.flyball.dev/versions": "<2.0.0"})).await;
    until_runs(&test, STAGING, "memo.v1.1.0").await;
    until_runs(&test, test.namespace(), "memo.v1.1.0").await;
    assert!(began.elapsed() >= Duration::from_secs(30 * 60), "{:?}", began.elapsed());
    test.assert_converges().await;
    assert!(is_absent(&test, "memo.v2.0.0").await, "the leader does not run it");

    // Without the annotations, nothing is held back.
    annotate(&test, STAGING, json!({"olm.flyball.dev/versions": null})).await;
    until_runs(&test, STAGING, "memo.v2.0.0").await;
    annotate(&test, test.namespace(), json!({"olm.flyball.dev/rollout-after": null})).await;
    until_runs(&test, test.namespace(), "memo.v2.0.0").await;
    assert_eq!(condition(&test, "memo", "RolloutHeld").await, None);
}

/// Lets the CRD accept conditions, until the next version is installed.
async fn accept_conditions(test: &Test) {
    let definitions: Api<CustomResourceDefinition> = Api::all(test.client());
    let mut definition = definitions.get("memos.demo.flyball.dev").await.unwrap();
    let schema = definition.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
    let status = schema.properties.as_mut().unwrap().get_mut("status").unwrap();
    status.x_kubernetes_preserve_unknown_fields = Some(true);
    definitions.replace("memos.demo.flyball.dev", &PostParams::default(), &definition).await.unwrap();
}

/// Creates a custom resource, or sets its condition.
async fn note(test: &Test, ready: &str) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("demo.flyball.dev", "v1", "Memo"));
    let memos: Api<DynamicObject> = Api::namespaced_with(test.client(), test.namespace(), &resource);
    let memo = json!({"apiVersion": "demo.flyball.dev/v1", "kind": "Memo", "metadata": {"name": "note"}, "spec": {}});
    test.apply(&memo.to_string()).await;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
    memos.patch_status("note", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn probe_that_fails_holds_the_next_upgrade_back() {
    let test = setup().start().await;
    begin(&test).await;
    let probes = |value: &str| json!({"olm.flyball.dev/rollout-probes": value, "olm.flyball.dev/versions": "<1.1.0"});
    subscribe(&test, test.namespace(), probes("memos.demo.flyball.dev=Ready")).await;
    until_runs(&test, test.namespace(), "memo.v1.0.0").await;
    accept_conditions(&test).await;
    note(&test, "False").await;
    let all = json!({"olm.flyball.dev/versions": null});
    annotate(&test, test.namespace(), all).await;
    until_held(&test, "ProbeFailed", "memo.v1.0.0: 1 of 1 memos.demo.flyball.dev do not have condition Ready").await;
    annotate(&test, test.namespace(), json!({"olm.flyball.dev/rollout-probes": "memos=Ready"})).await;
    until_held(&test, "InvalidRollout", "expected PLURAL.GROUP=CONDITION, not \"memos=Ready\"").await;
    annotate(&test, test.namespace(), json!({"olm.flyball.dev/rollout-probes": "others.a.b=Ready"})).await;
    until_held(&test, "ProbeFailed", "does not provide others.a.b").await;
    test.assert_converges().await;
    assert!(is_absent(&test, "memo.v1.1.0").await && is_absent(&test, "memo.v2.0.0").await);

    note(&test, "True").await;
    annotate(&test, test.namespace(), json!({"olm.flyball.dev/rollout-probes": "memos.demo.flyball.dev=Ready"})).await;
    until_runs(&test, test.namespace(), "memo.v1.1.0").await;
    // The CRD of this version drops the condition.
    until_held(&test, "ProbeFailed", "memo.v1.1.0: 1 of 1 memos.demo.flyball.dev do not have condition Ready").await;
    annotate(&test, test.namespace(), json!({"olm.flyball.dev/rollout-probes": null})).await;
    until_runs(&test, test.namespace(), "memo.v2.0.0").await;
    assert_eq!(condition(&test, "memo", "RolloutHeld").await, None);
}
