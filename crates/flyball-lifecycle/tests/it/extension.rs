//! ClusterExtensions on embedded control planes, over the recorded catalog.

use crate::fixture::*;
use crate::rollback::managed;
use flyball_cluster::Nodes;
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{ClusterExtension, ClusterServiceVersion, InstallPlan, InstallPlanPhase, OperatorGroup};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::{Value, json};

const V1: &str = "olm.operatorframework.io/v1";

async fn catalog(test: &Test) {
    let catalog = json!({
        "apiVersion": V1, "kind": "ClusterCatalog", "metadata": {"name": "demo", "labels": {"team": "red"}},
        "spec": {"source": {"type": "Image", "image": {"ref": "quay.io/demo/catalog:latest"}}},
    });
    test.apply(&catalog.to_string()).await;
}

async fn extend(test: &Test, package: &str, filter: Value) {
    let mut catalog = json!({"packageName": package});
    catalog.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
    let extension = json!({
        "apiVersion": V1, "kind": "ClusterExtension", "metadata": {"name": package},
        "spec": {
            "namespace": test.namespace(),
            "serviceAccount": {"name": "ignored"},
            "source": {"sourceType": "Catalog", "catalog": catalog},
            "config": {"configType": "Inline", "inline": {"watchNamespace": test.namespace()}},
        },
    });
    test.apply(&extension.to_string()).await;
}

fn extensions(test: &Test) -> Api<ClusterExtension> {
    Api::all(test.client())
}

/// Returns reason and message of a condition.
async fn condition(test: &Test, name: &str, kind: &str) -> String {
    let status = extensions(test).get(name).await.unwrap().status;
    let found = status.conditions.into_iter().find(|condition| condition.kind == kind);
    found.map_or_else(String::new, |of| format!("{} {}: {}", of.status, of.reason, of.message))
}

async fn until_installed(test: &Test, name: &str, bundle: &str) {
    let expected =
        (format!("True Succeeded: Installed bundle {bundle}"), "True Succeeded: Desired state reached".to_owned());
    test.eventually(&format!("{bundle} is installed"), async || {
        (condition(test, name, "Installed").await, condition(test, name, "Progressing").await) == expected
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn extension_is_installed_upgraded_and_removed() {
    let test = managed().allows_changes_of::<ClusterExtension>().start().await;
    extend(&test, "memo", json!({"version": "1.0.0"})).await;
    test.eventually("the missing catalog is named", async || {
        condition(&test, "memo", "Progressing").await.contains("no ClusterCatalog is available")
    })
    .await;
    catalog(&test).await;
    until_installed(&test, "memo", "memo.v1.0.0").await;
    let installed = extensions(&test).get("memo").await.unwrap().status.install.unwrap().bundle;
    assert_eq!((&*installed.name, &*installed.version), ("memo.v1.0.0", "1.0.0"));

    extend(&test, "memo", json!({"version": "1.x", "channels": ["stable"]})).await;
    until_installed(&test, "memo", "memo.v1.1.0").await;
    extend(&test, "memo", json!({"version": "1.0.0", "channels": ["stable"]})).await;
    test.eventually("the way back is named", async || {
        condition(&test, "memo", "Progressing").await.contains("upgradeConstraintPolicy: SelfCertified")
    })
    .await;
    let back = json!({"version": "1.0.0", "channels": ["stable"], "upgradeConstraintPolicy": "SelfCertified"});
    extend(&test, "memo", back).await;
    until_installed(&test, "memo", "memo.v1.0.0").await;
    test.assert_converges().await;
    assert_eq!(names(&test.api::<ClusterServiceVersion>(), "").await, ["memo.v1.0.0"]);

    delete(&extensions(&test), "memo").await;
    test.eventually("it is gone", async || extensions(&test).get_opt("memo").await.unwrap().is_none()).await;
    test.assert_converges().await;
    assert_eq!(names(&test.api::<ClusterServiceVersion>(), "").await, [""; 0]);
    assert_eq!(names(&test.api::<OperatorGroup>(), "").await, [""; 0]);
    let definitions: Api<CustomResourceDefinition> = Api::all(test.client());
    assert!(definitions.get_opt("memos.demo.flyball.dev").await.unwrap().is_none(), "its CRDs are removed");
}

#[tokio::test(start_paused = true)]
async fn bundle_with_dependencies_is_refused() {
    let test = managed().start().await;
    catalog(&test).await;
    extend(&test, "front", json!({})).await;
    let refused = "False Blocked: bundle \"front.v1.0.0\" has a dependency declared via property \"olm.gvk.required\", \
                   which ClusterExtensions do not install: use a Subscription";
    test.eventually("it is refused", async || condition(&test, "front", "Progressing").await == refused).await;
    extend(&test, "front", json!({"selector": {"matchLabels": {"team": "blue"}}})).await;
    test.eventually("the selector excludes the catalog", async || {
        condition(&test, "front", "Progressing").await.contains("no ClusterCatalog is available")
    })
    .await;
    assert_eq!(names(&test.api::<ClusterServiceVersion>(), "").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn definition_that_another_operator_needs_stays() {
    let test = managed().allows_changes_of::<ClusterExtension>().allows_changes_in("other").start().await;
    catalog(&test).await;
    extend(&test, "memo", json!({"version": "1.0.0"})).await;
    until_installed(&test, "memo", "memo.v1.0.0").await;
    namespace(&test, "other", json!({})).await;
    let mut csv = bundle("memo.v1.0.0").pop().unwrap();
    csv["metadata"]["namespace"] = "other".into();
    test.apply(&csv.to_string()).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(test.client());
    let annotations = json!({
        "operatorframework.io/installed-alongside-1": "other/memo.v1.0.0",
        "operatorframework.io/installed-alongside-2": "other/memo.v0.9.0",
    });
    patch(&definitions, "memos.demo.flyball.dev", json!({"metadata": {"annotations": annotations}})).await;
    test.assert_converges().await;

    delete(&extensions(&test), "memo").await;
    test.eventually("it is gone", async || extensions(&test).get_opt("memo").await.unwrap().is_none()).await;
    test.assert_converges().await;
    assert_eq!(names(&test.api::<ClusterServiceVersion>(), "").await, [""; 0]);
    let definition = definitions.get("memos.demo.flyball.dev").await.unwrap();
    assert!(definition.metadata.deletion_timestamp.is_none(), "its custom resources are those of others as well");
}

/// Installs memo.v1.0.0, and waits until the upgrade to memo.v1.9.0 has failed: its CRD rejects a custom resource.
async fn fail_upgrade(test: &Test) {
    catalog(test).await;
    extend(test, "memo", json!({"version": "1.0.0"})).await;
    until_installed(test, "memo", "memo.v1.0.0").await;
    let (spec, metadata) = (json!({"text": "a long text"}), json!({"name": "note"}));
    let note = json!({"apiVersion": "demo.flyball.dev/v1", "kind": "Memo", "metadata": metadata, "spec": spec});
    test.apply(&note.to_string()).await;
    extend(test, "memo", json!({"version": "1.9.0", "channels": ["strict"]})).await;
    test.eventually("the plan fails", async || {
        let plans = test.api::<InstallPlan>().list(&kube::api::ListParams::default()).await.unwrap().items;
        plans.iter().any(|plan| plan.status.phase == InstallPlanPhase::Failed)
    })
    .await;
    assert!(condition(test, "memo", "Progressing").await.starts_with("True Retrying: memo.v1.9.0: "));
    assert_eq!(condition(test, "memo", "Installed").await, "True Succeeded: Installed bundle memo.v1.0.0");
}

#[tokio::test(start_paused = true)]
async fn failed_plan_is_withdrawn_for_another_version() {
    let test = managed().allows_changes_of::<ClusterExtension>().start().await;
    fail_upgrade(&test).await;
    extend(&test, "memo", json!({"version": "1.1.0", "channels": ["stable"]})).await;
    until_installed(&test, "memo", "memo.v1.1.0").await;
    test.assert_converges().await;
    assert_eq!(names(&test.api::<ClusterServiceVersion>(), "").await, ["memo.v1.1.0"]);
}

#[tokio::test(start_paused = true)]
async fn failed_plan_is_withdrawn_for_other_checks() {
    let test = managed().allows_changes_of::<ClusterExtension>().start().await;
    fail_upgrade(&test).await;
    let install = json!({"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}});
    patch(&extensions(&test), "memo", json!({"spec": {"install": install}})).await;
    until_installed(&test, "memo", "memo.v1.9.0").await;
}

#[tokio::test(start_paused = true)]
async fn version_that_fails_is_replaced() {
    let test = managed().allows_changes_of::<ClusterExtension>().nodes(0).start().await;
    catalog(&test).await;
    extend(&test, "memo", json!({"version": "1.0.0"})).await;
    test.eventually("it has failed", async || {
        test.api::<ClusterServiceVersion>().get_opt("memo.v1.0.0").await.unwrap().is_some()
            && history(&test, "memo.v1.0.0").await.contains(&"Failed InstallCheckFailed".to_owned())
    })
    .await;
    extend(&test, "memo", json!({"version": "1.1.0", "channels": ["stable"]})).await;
    test.eventually("it is being replaced", async || {
        names(&test.api::<ClusterServiceVersion>(), "").await == ["memo.v1.0.0", "memo.v1.1.0"]
            && state(&test, "memo.v1.0.0").await.starts_with("Replacing BeingReplaced")
    })
    .await;
    Nodes::new("late", 1).add_to(&test.client()).await.unwrap();
    until_installed(&test, "memo", "memo.v1.1.0").await;
    test.assert_converges().await;
    assert_eq!(names(&test.api::<ClusterServiceVersion>(), "").await, ["memo.v1.1.0"]);
}
