//! Operators of the recorded catalog, installed by the lifecycle manager on an embedded control plane.

use flyball::Operator;
use flyball_cluster::testing::{Setup, Test};
use flyball_lifecycle::api::{self, ClusterServiceVersion, ClusterServiceVersionPhase as Phase, OperatorGroup};
use flyball_lifecycle::csv;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use std::path::Path;

/// Returns the manager without Subscriptions and catalogs.
pub(crate) fn operator() -> Operator {
    let operator = csv::add_to(Operator::new("lifecycle-manager"));
    api::crds().into_iter().fold(operator, Operator::crd)
}

/// Returns the setup of a test with one node.
pub(crate) fn setup() -> Setup {
    setup_of(operator)
}

pub(crate) fn setup_of(operator: impl Fn() -> Operator + Send + Sync + 'static) -> Setup {
    Test::of(operator)
        .nodes(1)
        .allows_changes_of::<Namespace>()
        .allows_changes_of::<ClusterRole>()
        .allows_changes_of::<ClusterRoleBinding>()
        .allows_changes_of::<CustomResourceDefinition>()
        .allows_changes_of::<api::Operator>()
}

/// Returns the manifests of a bundle, its CRDs first.
pub(crate) fn bundle(name: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/behavior/catalog/bundles").join(name);
    let mut manifests: Vec<Value> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| serde_saphyr::from_str(&std::fs::read_to_string(file.unwrap().path()).unwrap()).unwrap())
        .collect();
    manifests.sort_by_key(|manifest: &Value| (manifest["kind"] != "CustomResourceDefinition", manifest.to_string()));
    manifests
}

/// Applies the CRDs and the ClusterServiceVersion of a bundle, changed by a function.
pub(crate) async fn install_changed(test: &Test, name: &str, change: impl FnOnce(&mut Value)) {
    let mut change = Some(change);
    for mut manifest in bundle(name) {
        match manifest["kind"].as_str() {
            Some("ClusterServiceVersion") => {
                manifest["metadata"]["namespace"] = test.namespace().into();
                change.take().expect("a bundle has one ClusterServiceVersion")(&mut manifest);
            }
            Some("CustomResourceDefinition") => {}
            _ => continue,
        }
        test.apply(&manifest.to_string()).await;
    }
}

/// Applies the CRDs and the ClusterServiceVersion of a bundle.
pub(crate) async fn install(test: &Test, name: &str) {
    install_changed(test, name, |_| ()).await;
}

/// Creates an OperatorGroup for the namespace of the test.
pub(crate) async fn own_group(test: &Test) {
    group(test, "group", json!({"targetNamespaces": [test.namespace()]})).await;
}

pub(crate) async fn group(test: &Test, name: &str, spec: Value) {
    test.apply(
        &json!({
            "apiVersion": "operators.coreos.com/v1",
            "kind": "OperatorGroup",
            "metadata": {"name": name},
            "spec": spec,
        })
        .to_string(),
    )
    .await;
}

pub(crate) async fn namespace(test: &Test, name: &str, labels: Value) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    test.apply(&namespace.to_string()).await;
}

/// Merges a patch into an object.
pub(crate) async fn patch<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Clone + Resource + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

pub(crate) async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + Resource + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Returns phase, reason and message of a ClusterServiceVersion.
pub(crate) async fn state(test: &Test, name: &str) -> String {
    state_in(&test.api(), name).await
}

pub(crate) async fn state_in(api: &Api<ClusterServiceVersion>, name: &str) -> String {
    match api.get_opt(name).await.unwrap() {
        Some(csv) => format!("{:?} {}: {}", csv.status.phase, csv.status.reason, csv.status.message),
        None => "absent".into(),
    }
}

/// The state of an operator that runs.
pub(crate) const SUCCEEDED: &str = "Succeeded InstallSucceeded: install strategy completed with no errors";

pub(crate) async fn until(test: &Test, name: &str, expected: &str) {
    test.eventually(&format!("{name} is {expected}; see its state"), async || state(test, name).await == expected)
        .await;
}

/// Returns the phases and reasons that a ClusterServiceVersion has passed through.
pub(crate) async fn history(test: &Test, name: &str) -> Vec<String> {
    let csv = test.api::<ClusterServiceVersion>().get(name).await.unwrap();
    csv.status.conditions.iter().map(|entry| format!("{:?} {}", entry.phase, entry.reason)).collect()
}

/// Returns the phases that an installation passes through without incident.
pub(crate) fn usual_history() -> Vec<String> {
    [
        (Phase::Pending, "RequirementsUnknown"),
        (Phase::InstallReady, "AllRequirementsMet"),
        (Phase::Installing, "InstallSucceeded"),
        (Phase::Installing, "InstallWaiting"),
        (Phase::Succeeded, "InstallSucceeded"),
    ]
    .map(|(phase, reason)| format!("{phase:?} {reason}"))
    .into()
}

/// Returns the names of the objects of a kind that belong to the operators of the test.
pub(crate) async fn names<K>(api: &Api<K>, part: &str) -> Vec<String>
where
    K: Clone + Resource + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let found = api.list(&kube::api::ListParams::default()).await.unwrap().items;
    found.iter().map(ResourceExt::name_any).filter(|name| name.contains(part)).collect()
}

pub(crate) fn groups(test: &Test) -> Api<OperatorGroup> {
    test.api()
}

pub(crate) fn roles(test: &Test) -> (Api<Role>, Api<RoleBinding>) {
    (test.api(), test.api())
}
