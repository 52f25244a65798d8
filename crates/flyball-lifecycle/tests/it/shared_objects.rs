//! A bundle with a ClusterRole of a fixed name, installed in two namespaces.

use crate::behavior::catalog::{ADDRESS, Server};
use crate::fixture::{SUCCEEDED, bundle, delete, namespace, own_group, patch, state_in};
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{self, ClusterServiceVersion, InstallPlan, Subscription};
use flyball_lifecycle::content::{Blobs, Content};
use flyball_lifecycle::{Settings, operator};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use std::sync::Arc;

const OTHER: &str = "other";
const ROLE: &str = "memo-metrics-reader";

/// Returns a bundle of the recorded catalog, with a role as kubebuilder's projects have one.
fn with_role(name: &str, version: &str, verbs: &[&str]) -> Value {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ROLE},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": verbs}],
    });
    let mut properties = vec![
        json!({"type": "olm.package", "value": {"packageName": "memo", "version": version}}),
        json!({"type": "olm.gvk", "value": {"group": "demo.flyball.dev", "version": "v1", "kind": "Memo"}}),
    ];
    for object in bundle(name).into_iter().chain([role]) {
        let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, object.to_string());
        properties.push(json!({"type": "olm.bundle.object", "value": {"data": data}}));
    }
    json!({"schema": "olm.bundle", "name": name, "package": "memo", "image": "", "properties": properties})
}

fn content() -> Content {
    let entries = json!([{"name": "memo.v1.0.0"}, {"name": "memo.v1.1.0", "replaces": "memo.v1.0.0"}]);
    let documents = [
        json!({"schema": "olm.package", "name": "memo", "defaultChannel": "stable"}),
        json!({"schema": "olm.channel", "package": "memo", "name": "stable", "entries": entries}),
        with_role("memo.v1.0.0", "1.0.0", &["get"]),
        with_role("memo.v1.1.0", "1.1.0", &["get", "head"]),
    ];
    let mut blobs = Blobs::default();
    let text: Vec<String> = documents.iter().map(Value::to_string).collect();
    blobs.add("catalog.yaml", text.join("\n---\n").as_bytes()).unwrap();
    Content::new(blobs)
}

async fn start() -> Test {
    let content = Arc::new(content());
    let make = move || {
        let server = Server::of((*content).clone());
        operator(&Settings { global_namespace: "test".to_owned(), ..Settings::new(Arc::new(server)) })
    };
    let test = Test::of(make)
        .nodes(1)
        .allows_changes_of::<Namespace>()
        .allows_changes_of::<ClusterRole>()
        .allows_changes_of::<ClusterRoleBinding>()
        .allows_changes_of::<CustomResourceDefinition>()
        .allows_changes_of::<api::Operator>()
        .allows_changes_in(OTHER)
        .start()
        .await;
    own_group(&test).await;
    let source = json!({"sourceType": "grpc", "address": ADDRESS});
    create(&test, "test", "operators.coreos.com/v1alpha1", "CatalogSource", "demo", source).await;
    namespace(&test, OTHER, json!({})).await;
    let group = json!({"targetNamespaces": [OTHER]});
    create(&test, OTHER, "operators.coreos.com/v1", "OperatorGroup", "group", group).await;
    for namespace in ["test", OTHER] {
        let spec = json!({
            "name": "memo", "channel": "stable", "startingCSV": "memo.v1.0.0", "installPlanApproval": "Manual",
            "source": "demo", "sourceNamespace": "test",
        });
        create(&test, namespace, "operators.coreos.com/v1alpha1", "Subscription", "memo", spec).await;
        install(&test, namespace, "memo.v1.0.0").await;
    }
    test
}

async fn create(test: &Test, namespace: &str, version: &str, kind: &str, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": namespace});
    test.apply(&json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}).to_string()).await;
}

/// Approves the plan for a version, and waits until it runs.
async fn install(test: &Test, namespace: &str, csv: &str) {
    let plans: Api<InstallPlan> = Api::namespaced(test.client(), namespace);
    let find = async || {
        let all = plans.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|plan| plan.spec.cluster_service_version_names == [csv])
    };
    test.eventually(&format!("{csv} is planned in {namespace}"), async || find().await.is_some()).await;
    patch(&plans, &find().await.unwrap().metadata.name.unwrap(), json!({"spec": {"approved": true}})).await;
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(test.client(), namespace);
    let runs = async || state_in(&csvs, csv).await == SUCCEEDED;
    test.eventually(&format!("{csv} runs in {namespace}"), runs).await;
}

async fn uninstall(test: &Test, namespace: &str, csv: &str) {
    delete(&Api::<Subscription>::namespaced(test.client(), namespace), "memo").await;
    let csvs = Api::<ClusterServiceVersion>::namespaced(test.client(), namespace);
    delete(&csvs, csv).await;
    let is_gone = async || csvs.get_opt(csv).await.unwrap().is_none();
    test.eventually(&format!("{csv} is gone from {namespace}"), is_gone).await;
    test.assert_converges().await;
}

/// Returns owner and verbs of the role.
async fn role(test: &Test) -> Option<(String, Vec<String>)> {
    let role = Api::<ClusterRole>::all(test.client()).get_opt(ROLE).await.unwrap()?;
    let labels = role.metadata.labels.unwrap();
    let owner = format!("{}/{}", labels["olm.owner.namespace"], labels["olm.owner"]);
    Some((owner, role.rules.unwrap()[0].verbs.clone()))
}

#[tokio::test(start_paused = true)]
async fn role_is_shared_and_deleted_with_its_last_user() {
    let test = start().await;
    test.assert_converges().await;
    assert_eq!(role(&test).await.unwrap(), ("test/memo.v1.0.0".to_owned(), vec!["get".to_owned()]));
    uninstall(&test, "test", "memo.v1.0.0").await;
    assert_eq!(role(&test).await.unwrap().0, "other/memo.v1.0.0", "the other installation needs it");
    uninstall(&test, OTHER, "memo.v1.0.0").await;
    assert_eq!(role(&test).await, None);
}

#[tokio::test(start_paused = true)]
async fn upgrade_of_one_installation_changes_the_shared_role() {
    let test = start().await;
    install(&test, OTHER, "memo.v1.1.0").await;
    let newest = vec!["get".to_owned(), "head".to_owned()];
    assert_eq!(role(&test).await.unwrap(), ("other/memo.v1.1.0".to_owned(), newest.clone()));
    uninstall(&test, OTHER, "memo.v1.1.0").await;
    assert_eq!(role(&test).await.unwrap().0, "test/memo.v1.0.0");
    install(&test, "test", "memo.v1.1.0").await;
    uninstall(&test, "test", "memo.v1.1.0").await;
    assert_eq!(role(&test).await, None);
}
