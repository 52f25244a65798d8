//! InstallPlans: their checks before the first step, and their number.

use crate::behavior::catalog::ADDRESS;
use crate::fixture::{SUCCEEDED, bundle, delete, group, namespace, patch, until};
use crate::subscriptions::{apply, begin, plans, setup, subscribe};
use flyball_cluster::testing::{Permission, Test};
use flyball_lifecycle::api::{InstallPlan, InstallPlanPhase, Subscription};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

/// Creates an InstallPlan with annotations and these objects as its steps.
async fn plan_of(test: &Test, name: &str, annotations: Value, objects: &[Value]) {
    let step = |object: &Value| {
        let api_version = object["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        json!({"resolving": "made.v1", "status": "Unknown", "resource": {
            "sourceName": "demo", "sourceNamespace": "demo", "group": group, "version": version,
            "kind": object["kind"], "name": object["metadata"]["name"], "manifest": object.to_string(),
        }})
    };
    let steps: Vec<Value> = objects.iter().map(step).collect();
    let spec = json!({"approval": "Automatic", "approved": true, "clusterServiceVersionNames": ["made.v1"]});
    apply(test, "InstallPlan", name, spec).await;
    patch(&test.api::<InstallPlan>(), name, json!({"metadata": {"annotations": annotations}})).await;
    let status = json!({"status": {"catalogSources": [], "phase": "Installing", "plan": steps}});
    let plans = test.api::<InstallPlan>();
    plans.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Waits until a plan is refused for a reason, and deletes it.
async fn until_refused(test: &Test, name: &str, why: &str) -> String {
    let plans = test.api::<InstallPlan>();
    let message = async || plans.get(name).await.unwrap().status.message;
    test.eventually(&format!("plan {name} is refused: {why}"), async || message().await.contains(why)).await;
    let message = message().await;
    delete(&plans, name).await;
    message
}

async fn until_complete(test: &Test, name: &str) {
    let plans = test.api::<InstallPlan>();
    test.eventually(&format!("plan {name} is complete"), async || {
        plans.get(name).await.unwrap().status.phase == InstallPlanPhase::Complete
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn cluster_objects_of_nobody_are_not_taken_over() {
    let test = setup().start().await;
    begin(&test).await;
    let role = |verb: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}],
        })
    };
    let crd = bundle("memo.v1.0.0").remove(0);
    test.apply(&role("get").to_string()).await;
    test.apply(&crd.to_string()).await;
    let why = "exists, was not installed by the lifecycle manager, and differs from that of bundle made.v1";
    plan_of(&test, "role", json!({}), &[role("*")]).await;
    until_refused(&test, "role", &format!("ClusterRole reader {why}")).await;
    let roles: Api<ClusterRole> = Api::all(test.client());
    assert_eq!(roles.get("reader").await.unwrap().rules.unwrap()[0].verbs, ["get"]);
    let mut other = crd.clone();
    other["spec"]["names"]["shortNames"] = json!(["mm"]);
    plan_of(&test, "crd", json!({}), &[other]).await;
    until_refused(&test, "crd", &format!("CustomResourceDefinition memos.demo.flyball.dev {why}")).await;
    // What does not differ is adopted.
    plan_of(&test, "same", json!({}), &[crd, role("get")]).await;
    until_complete(&test, "same").await;
    assert_eq!(roles.get("reader").await.unwrap().metadata.labels.unwrap()["olm.owner"], "made.v1");
}

#[tokio::test(start_paused = true)]
async fn cluster_objects_of_another_operator_stay() {
    let test = setup().allows_changes_of::<PriorityClass>().allows_changes_of::<ConfigMap>().start().await;
    group(&test, "group", json!({})).await;
    apply(&test, "CatalogSource", "demo", json!({"sourceType": "grpc", "address": ADDRESS})).await;
    subscribe(&test, "pool", json!({"channel": "stable"})).await;
    until(&test, "pool.v1.2.0", SUCCEEDED).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "pool-reader"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    });
    // While there are Subscriptions, plans of others are deleted.
    delete(&test.api::<Subscription>(), "pool").await;
    test.assert_converges().await;
    plan_of(&test, "role", json!({}), &[role]).await;
    let why = "ClusterRole pool-reader belongs to ClusterServiceVersion test/pool.v1.2.0, which made.v1 does not \
               replace, and differs";
    until_refused(&test, "role", why).await;
    let role = Api::<ClusterRole>::all(test.client()).get("pool-reader").await.unwrap();
    assert_eq!(role.metadata.labels.unwrap()["olm.owner"], "pool.v1.2.0");
    assert_eq!(role.rules.unwrap()[0].verbs, ["get", "list"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_changed_if_a_later_step_would_be_refused() {
    let test = setup().start().await;
    begin(&test).await;
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    plan_of(&test, "maps", json!({}), &[map("good"), map("Not_Good")]).await;
    until_refused(&test, "maps", "ConfigMap Not_Good: ").await;
    assert!(test.api::<ConfigMap>().get_opt("good").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn definitions_are_checked_and_objects_elsewhere_are_not_shown() {
    let test = setup().start().await;
    begin(&test).await;
    let crd = |name: &str| bundle(name).remove(0);
    plan_of(&test, "first", json!({}), &[crd("memo.v1.0.0")]).await;
    until_complete(&test, "first").await;
    // Only a ClusterExtension can ask for no check.
    let unchecked = json!({"olm.flyball.dev/crd-upgrade-safety": "None"});
    plan_of(&test, "unchecked", unchecked, &[crd("memo.v3.0.0")]).await;
    until_refused(&test, "unchecked", "removes version v1 that is listed as a stored version").await;

    namespace(&test, "other", json!({})).await;
    test.assert_converges().await;
    let note = json!({
        "apiVersion": "demo.flyball.dev/v1", "kind": "Memo", "metadata": {"name": "diary", "namespace": "other"},
        "spec": {"text": "a long text of others"},
    });
    test.apply(&note.to_string()).await;
    plan_of(&test, "strict", json!({}), &[crd("memo.v1.9.0")]).await;
    let why =
        "1 of demo.flyball.dev/v1, Kind=Memo outside of namespace \"test\": updated validation is too restrictive";
    let message = until_refused(&test, "strict", why).await;
    assert!(message.contains("spec.text"), "{message}");
    assert!(!message.contains("diary") && !message.contains("long text"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn plan_that_a_user_created_names_the_remedy() {
    let test = setup().start().await;
    let spec = json!({"approval": "Manual", "approved": false, "clusterServiceVersionNames": ["memo.v1.0.0"]});
    apply(&test, "InstallPlan", "own", spec).await;
    test.assert_converges().await;
    patch(&test.api::<InstallPlan>(), "own", json!({"spec": {"approved": true}})).await;
    test.assert_converges().await;
    let status = test.api::<InstallPlan>().get("own").await.unwrap().status;
    assert_eq!((status.phase, status.conditions[0].reason.as_str()), (InstallPlanPhase::None, "NoSteps"));
    assert!(status.message.contains("create a Subscription"), "{}", status.message);
}

#[tokio::test(start_paused = true)]
async fn five_plans_are_kept() {
    let test = setup().start().await;
    begin(&test).await;
    subscribe(&test, "memo", json!({"channel": "stable", "startingCSV": "memo.v1.0.0"})).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    patch(&test.api::<Subscription>(), "memo", json!({"spec": {"channel": "candidate"}})).await;
    until(&test, "memo.v2.1.0", SUCCEEDED).await;
    subscribe(&test, "worn", json!({"channel": "old", "startingCSV": "worn.v1.0.0"})).await;
    until(&test, "worn.v1.1.0", SUCCEEDED).await;
    test.assert_converges().await;
    let generations: Vec<i64> = plans(&test).await.iter().map(|plan| plan.spec.generation).collect();
    assert_eq!(generations, [2, 3, 4, 5, 6]);
}

/// Installs an operator beside other Subscriptions with a large spec, and returns the requests for Subscriptions.
async fn reads_beside(others: usize) -> (u64, u64) {
    let test = setup().start().await;
    begin(&test).await;
    for at in 0..others {
        let values: Vec<Value> =
            (0..50).map(|n| json!({"name": format!("V{n}"), "value": "x".repeat(1_000)})).collect();
        subscribe(&test, &format!("absent-{at}"), json!({"channel": "stable", "config": {"env": values}})).await;
    }
    test.assert_converges().await;
    let before = test.requests();
    subscribe(&test, "memo", json!({"channel": "stable"})).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    let counts = test.requests().since(&before).counts;
    let of = |verb: &str| {
        let is_it = |of: &&Permission| of.verb == verb && of.resource == "subscriptions";
        counts.iter().filter(|(of, _)| is_it(of)).map(|(_, count)| *count).sum::<u64>()
    };
    (of("list"), of("get"))
}

#[tokio::test(start_paused = true)]
async fn cost_of_a_plan_does_not_depend_on_other_subscriptions() {
    let alone = reads_beside(0).await;
    assert_eq!(alone.0, 0, "no step lists all Subscriptions");
    assert!(alone.1 > 2, "each step confirms its own one: {alone:?}");
    assert_eq!(reads_beside(20).await, alone);
}
