//! One CRD of operators in two namespaces: the InstallPlan of one keeps what that of the other recorded.

use crate::fixture::{SUCCEEDED, delete, namespace, patch, state_in};
use crate::subscriptions::{begin, setup, subscribe};
use flyball_cluster::Faults;
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{ClusterServiceVersion, InstallPlan, InstallPlanPhase, Subscription};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use serde_json::json;

const OTHER: &str = "other";
const DEFINITION: &str = "memos.demo.flyball.dev";
/// Delays that let the requests of two plans overlap in many ways.
const SLOW: Faults = Faults { slow: 0.5, ..Faults::NONE };

/// Creates the second namespace, with a Subscription of its own.
async fn begin_elsewhere(test: &Test, approval: &str, first: &str) {
    namespace(test, OTHER, json!({})).await;
    let metadata = |name: &str| json!({"name": name, "namespace": OTHER});
    let spec = json!({
        "name": "memo", "channel": "stable", "startingCSV": first, "installPlanApproval": approval, "source": "demo",
        "sourceNamespace": test.namespace(),
    });
    for object in [
        json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": metadata("group"),
            "spec": {"targetNamespaces": [OTHER]},
        }),
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": metadata("memo"),
            "spec": spec,
        }),
    ] {
        test.apply(&object.to_string()).await;
    }
}

fn csvs(test: &Test, namespace: &str) -> Api<ClusterServiceVersion> {
    Api::namespaced(test.client(), namespace)
}

/// Returns the ClusterServiceVersions that the CRD was installed with.
async fn users(test: &Test) -> Vec<String> {
    let definition = Api::<CustomResourceDefinition>::all(test.client()).get(DEFINITION).await.unwrap();
    let annotations = definition.metadata.annotations.unwrap_or_default().into_iter();
    let mut users: Vec<String> = annotations
        .filter(|(name, _)| name.starts_with("operatorframework.io/installed-alongside-"))
        .map(|(_, user)| user)
        .collect();
    users.sort();
    users
}

/// Approves the plans for a version in both namespaces at the same time.
async fn approve_both(test: &Test, name: &str) {
    let mut waiting = Vec::new();
    for namespace in [test.namespace(), OTHER] {
        let plans: Api<InstallPlan> = Api::namespaced(test.client(), namespace);
        let find = async || {
            let all = plans.list(&ListParams::default()).await.unwrap().items;
            let is_for = |plan: &InstallPlan| plan.spec.cluster_service_version_names == [name];
            all.into_iter().find(|plan| is_for(plan) && plan.status.phase == InstallPlanPhase::RequiresApproval)
        };
        test.eventually(&format!("a plan for {name} waits in {namespace}"), async || find().await.is_some()).await;
        waiting.push((plans.clone(), find().await.unwrap().metadata.name.unwrap()));
    }
    for (plans, plan) in waiting {
        patch(&plans, &plan, json!({"spec": {"approved": true}})).await;
    }
}

#[tokio::test(start_paused = true)]
async fn plans_of_two_namespaces_upgrade_one_definition_at_the_same_time() {
    for seed in 1..=3 {
        let faults = if seed == 1 { Faults::NONE } else { SLOW };
        let test = setup().allows_changes_in(OTHER).seed(seed).faults(faults).start().await;
        begin(&test).await;
        begin_elsewhere(&test, "Manual", "memo.v1.0.0").await;
        let manual = json!({"channel": "stable", "startingCSV": "memo.v1.0.0", "installPlanApproval": "Manual"});
        subscribe(&test, "memo", manual).await;
        for version in ["memo.v1.0.0", "memo.v1.1.0", "memo.v2.0.0"] {
            approve_both(&test, version).await;
            for namespace in [test.namespace(), OTHER] {
                let csvs = csvs(&test, namespace);
                let runs = async || state_in(&csvs, version).await == SUCCEEDED;
                test.eventually(&format!("{version} runs in {namespace}, seed {seed}"), runs).await;
            }
            let users = users(&test).await;
            for namespace in [test.namespace(), OTHER] {
                let user = format!("{namespace}/{version}");
                assert!(users.contains(&user), "{user} is lost, seed {seed}: {users:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn definition_loses_the_operators_that_are_gone() {
    let test = setup().allows_changes_in(OTHER).start().await;
    begin(&test).await;
    begin_elsewhere(&test, "Automatic", "memo.v1.1.0").await;
    let other: Api<ClusterServiceVersion> = csvs(&test, OTHER);
    test.eventually("it runs elsewhere", async || state_in(&other, "memo.v2.0.0").await == SUCCEEDED).await;
    test.assert_converges().await;
    let subscriptions: Api<Subscription> = Api::namespaced(test.client(), OTHER);
    delete(&subscriptions, "memo").await;
    delete(&other, "memo.v2.0.0").await;
    test.assert_converges().await;
    subscribe(&test, "memo", json!({"channel": "stable", "startingCSV": "memo.v2.0.0"})).await;
    let own = csvs(&test, test.namespace());
    test.eventually("it runs here", async || state_in(&own, "memo.v2.0.0").await == SUCCEEDED).await;
    test.assert_converges().await;
    let users = users(&test).await;
    assert!(users.iter().all(|user| user.starts_with("test/")), "{users:?}");
}
