//! Bundles with a ClusterRole of a fixed name, installed in two namespaces.

use crate::behavior::catalog::{ADDRESS, Server};
use crate::fixture::{SUCCEEDED, bundle, delete, namespace, own_group, patch, state_in};
use flyball_cluster::Faults;
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{self, ClusterServiceVersion, InstallPlan, InstallPlanPhase, Subscription};
use flyball_lifecycle::content::{Blobs, Content};
use flyball_lifecycle::{Settings, operator};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use std::sync::Arc;

const OTHER: &str = "other";
/// Delays that let requests overlap in many ways.
const SLOW: Faults = Faults { slow: 0.5, ..Faults::NONE };
const ROLE: &str = "memo-metrics-reader";

/// Returns a bundle of the recorded catalog, with a role as kubebuilder's projects have one.
fn with_role(name: &str, api: &str, verbs: &[&str]) -> Value {
    with_role_and_objects(name, api, verbs, bundle(name))
}

/// Returns a bundle with these objects and the role.
fn with_role_and_objects(name: &str, api: &str, verbs: &[&str], objects: Vec<Value>) -> Value {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ROLE},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": verbs}],
    });
    let (package, version) = name.split_once(".v").unwrap();
    let mut properties = vec![
        json!({"type": "olm.package", "value": {"packageName": package, "version": version}}),
        json!({"type": "olm.gvk", "value": {"group": "demo.flyball.dev", "version": "v1", "kind": api}}),
    ];
    for object in objects.into_iter().chain([role]) {
        let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, object.to_string());
        properties.push(json!({"type": "olm.bundle.object", "value": {"data": data}}));
    }
    json!({"schema": "olm.bundle", "name": name, "package": package, "image": "", "properties": properties})
}

/// Returns a catalog with two packages, whose ClusterRoles have the same name.
fn content() -> Content {
    let package = |name: &str| json!({"schema": "olm.package", "name": name, "defaultChannel": "stable"});
    let channel = |package: &str, entries: Value| {
        let schema = "olm.channel";
        json!({"schema": schema, "package": package, "name": "stable", "entries": entries})
    };
    let renamed = |object: Value| object.to_string().replace("1.1.0", "1.2.0").parse().unwrap();
    let next = bundle("memo.v1.1.0").into_iter().map(renamed).collect();
    let documents = [
        package("memo"),
        channel("memo", json!([{"name": "memo.v1.0.0"}, {"name": "memo.v1.1.0", "replaces": "memo.v1.0.0"}])),
        with_role("memo.v1.0.0", "Memo", &["get"]),
        with_role("memo.v1.1.0", "Memo", &["get", "head"]),
        json!({"schema": "olm.channel", "package": "memo", "name": "less",
            "entries": [{"name": "memo.v1.0.0"}, {"name": "memo.v1.2.0", "replaces": "memo.v1.0.0"}]}),
        with_role_and_objects("memo.v1.2.0", "Memo", &["head"], next),
        package("worn"),
        channel("worn", json!([{"name": "worn.v1.0.0"}])),
        with_role("worn.v1.0.0", "Rag", &["get", "post"]),
    ];
    let mut blobs = Blobs::default();
    let text: Vec<String> = documents.iter().map(Value::to_string).collect();
    blobs.add("catalog.yaml", text.join("\n---\n").as_bytes()).unwrap();
    Content::new(blobs)
}

/// Starts the manager with the catalog, and an OperatorGroup in each of the two namespaces.
async fn start_with(seed: u64, faults: Faults) -> Test {
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
        .seed(seed)
        .faults(faults)
        .start()
        .await;
    own_group(&test).await;
    let source = json!({"sourceType": "grpc", "address": ADDRESS});
    create(&test, "test", "operators.coreos.com/v1alpha1", "CatalogSource", "demo", source).await;
    namespace(&test, OTHER, json!({})).await;
    let group = json!({"targetNamespaces": [OTHER]});
    create(&test, OTHER, "operators.coreos.com/v1", "OperatorGroup", "group", group).await;
    test
}

/// Starts the manager, and installs the first version in both namespaces.
async fn start_installed(seed: u64, faults: Faults) -> Test {
    let test = start_with(seed, faults).await;
    for namespace in ["test", OTHER] {
        subscribe(&test, namespace, "memo").await;
        install(&test, namespace, "memo.v1.0.0").await;
    }
    test
}

async fn start() -> Test {
    start_installed(1, Faults::NONE).await
}

/// Subscribes to the first version of a package, with manual approval.
async fn subscribe(test: &Test, namespace: &str, package: &str) {
    let spec = json!({
        "name": package, "channel": "stable", "startingCSV": format!("{package}.v1.0.0"),
        "installPlanApproval": "Manual", "source": "demo", "sourceNamespace": "test",
    });
    create(test, namespace, "operators.coreos.com/v1alpha1", "Subscription", package, spec).await;
}

async fn create(test: &Test, namespace: &str, version: &str, kind: &str, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": namespace});
    test.apply(&json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}).to_string()).await;
}

/// Approves the plan for a version, and returns its name.
async fn approve(test: &Test, namespace: &str, csv: &str) -> String {
    let plans: Api<InstallPlan> = Api::namespaced(test.client(), namespace);
    let find = async || {
        let all = plans.list(&ListParams::default()).await.unwrap().items;
        let waits = |plan: &InstallPlan| plan.status.phase == InstallPlanPhase::RequiresApproval;
        all.into_iter().find(|plan| plan.spec.cluster_service_version_names == [csv] && waits(plan))
    };
    test.eventually(&format!("{csv} is planned in {namespace}"), async || find().await.is_some()).await;
    let plan = find().await.unwrap().metadata.name.unwrap();
    patch(&plans, &plan, json!({"spec": {"approved": true}})).await;
    plan
}

async fn until_runs(test: &Test, namespace: &str, csv: &str) {
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(test.client(), namespace);
    let runs = async || state_in(&csvs, csv).await == SUCCEEDED;
    test.eventually(&format!("{csv} runs in {namespace}"), runs).await;
}

/// Approves the plan for a version, and waits until it runs.
async fn install(test: &Test, namespace: &str, csv: &str) {
    approve(test, namespace, csv).await;
    until_runs(test, namespace, csv).await;
}

/// Begins to uninstall a version.
async fn remove(test: &Test, namespace: &str, csv: &str) {
    let subscriptions = Api::<Subscription>::namespaced(test.client(), namespace);
    if subscriptions.get_opt("memo").await.unwrap().is_some() {
        delete(&subscriptions, "memo").await;
    }
    delete(&Api::<ClusterServiceVersion>::namespaced(test.client(), namespace), csv).await;
}

async fn until_gone(test: &Test, namespace: &str, csv: &str) {
    let csvs = Api::<ClusterServiceVersion>::namespaced(test.client(), namespace);
    let is_gone = async || csvs.get_opt(csv).await.unwrap().is_none();
    test.eventually(&format!("{csv} is gone from {namespace}"), is_gone).await;
    test.assert_converges().await;
}

async fn uninstall(test: &Test, namespace: &str, csv: &str) {
    remove(test, namespace, csv).await;
    until_gone(test, namespace, csv).await;
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

#[tokio::test(start_paused = true)]
async fn shared_role_loses_a_permission_when_nobody_needs_it() {
    let test = start().await;
    let verbs = async || {
        let rules = Api::<ClusterRole>::all(test.client()).get(ROLE).await.unwrap().rules.unwrap();
        rules.into_iter().flat_map(|rule| rule.verbs).collect::<Vec<String>>()
    };
    for (namespace, expected) in [(OTHER, &["head", "get"][..]), ("test", &["head"])] {
        let subscriptions = Api::<Subscription>::namespaced(test.client(), namespace);
        patch(&subscriptions, "memo", json!({"spec": {"channel": "less"}})).await;
        install(&test, namespace, "memo.v1.2.0").await;
        test.assert_converges().await;
        assert_eq!(verbs().await, expected, "{namespace}");
    }
    uninstall(&test, OTHER, "memo.v1.2.0").await;
    uninstall(&test, "test", "memo.v1.2.0").await;
    assert_eq!(role(&test).await, None);
}

#[tokio::test(start_paused = true)]
async fn shared_role_loses_a_permission_after_upgrades_at_the_same_time() {
    for seed in 1..=4 {
        let test = start_installed(seed, if seed == 1 { Faults::NONE } else { SLOW }).await;
        for namespace in ["test", OTHER] {
            let subscriptions = Api::<Subscription>::namespaced(test.client(), namespace);
            patch(&subscriptions, "memo", json!({"spec": {"channel": "less"}})).await;
        }
        tokio::join!(approve(&test, "test", "memo.v1.2.0"), approve(&test, OTHER, "memo.v1.2.0"));
        for namespace in ["test", OTHER] {
            until_runs(&test, namespace, "memo.v1.2.0").await;
        }
        for namespace in ["test", OTHER] {
            until_gone(&test, namespace, "memo.v1.0.0").await;
        }
        let (owner, verbs) = role(&test).await.unwrap();
        assert_eq!(verbs, ["head"], "seed {seed}: no version needs the other permission, {owner}");
        uninstall(&test, OTHER, "memo.v1.2.0").await;
        assert_eq!(role(&test).await.unwrap(), ("test/memo.v1.2.0".to_owned(), vec!["head".to_owned()]));
        uninstall(&test, "test", "memo.v1.2.0").await;
        assert_eq!(role(&test).await, None);
    }
}

/// Binds a service account of the second namespace to the permission to install, with these verbs for the role.
async fn bind_installer(test: &Test, verbs: &[&str]) {
    let (version, name) = ("rbac.authorization.k8s.io/v1", "installer");
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let rules = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": all}, {"nonResourceURLs": ["/metrics"], "verbs": verbs},
    ]);
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": OTHER}}),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": OTHER}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        }),
    ] {
        test.apply(&object.to_string()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn limited_account_grants_no_permission_of_another_installation() {
    let test = start_with(1, Faults::NONE).await;
    subscribe(&test, "test", "memo").await;
    install(&test, "test", "memo.v1.0.0").await;
    bind_installer(&test, &["head"]).await;
    let groups = Api::<api::OperatorGroup>::namespaced(test.client(), OTHER);
    patch(&groups, "group", json!({"spec": {"serviceAccountName": "installer"}})).await;
    let spec = json!({
        "name": "memo", "channel": "less", "startingCSV": "memo.v1.2.0", "installPlanApproval": "Manual",
        "source": "demo", "sourceNamespace": "test",
    });
    create(&test, OTHER, "operators.coreos.com/v1alpha1", "Subscription", "memo", spec).await;
    let plan = approve(&test, OTHER, "memo.v1.2.0").await;
    let plans: Api<InstallPlan> = Api::namespaced(test.client(), OTHER);
    let status = async || plans.get(&plan).await.unwrap().status;
    test.eventually("the plan fails", async || status().await.phase == InstallPlanPhase::Failed).await;
    let message = status().await.message;
    let expected = "ClusterRole memo-metrics-reader is shared with ClusterServiceVersion test/memo.v1.0.0, and the \
                    service account of the OperatorGroup may not write it with the permissions of both: ";
    assert!(message.starts_with(expected), "{message}");
    let role_object = Api::<ClusterRole>::all(test.client()).get(ROLE).await.unwrap();
    let annotations = role_object.metadata.annotations.unwrap_or_default();
    assert!(annotations.values().all(|user| !user.starts_with("other/")), "{annotations:?}");
    assert_eq!(role(&test).await.unwrap().1, ["get"]);
    // The remedy in the message.
    bind_installer(&test, &["head", "get"]).await;
    until_runs(&test, OTHER, "memo.v1.2.0").await;
    let rules = Api::<ClusterRole>::all(test.client()).get(ROLE).await.unwrap().rules.unwrap();
    let verbs: Vec<String> = rules.into_iter().flat_map(|rule| rule.verbs).collect();
    assert_eq!(verbs, ["head", "get"]);
    let _ = test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn role_is_deleted_if_all_users_are_deleted_at_once() {
    for seed in 1..=4 {
        let test = start_installed(seed, if seed == 1 { Faults::NONE } else { SLOW }).await;
        test.assert_converges().await;
        tokio::join!(remove(&test, "test", "memo.v1.0.0"), remove(&test, OTHER, "memo.v1.0.0"));
        until_gone(&test, "test", "memo.v1.0.0").await;
        until_gone(&test, OTHER, "memo.v1.0.0").await;
        assert_eq!(role(&test).await, None, "seed {seed}");
    }
}

/// The deletion of a new owner may have looked for its objects just before it got this one.
#[tokio::test(start_paused = true)]
async fn role_of_an_owner_that_is_gone_is_passed_on_by_its_users() {
    let test = start().await;
    let roles = Api::<ClusterRole>::all(test.client());
    let set_owner = async |name: &str| patch(&roles, ROLE, json!({"metadata": {"labels": {"olm.owner": name}}})).await;
    set_owner("memo.v0.9.0").await;
    uninstall(&test, "test", "memo.v1.0.0").await;
    assert_eq!(role(&test).await.unwrap().0, "other/memo.v1.0.0");
    set_owner("memo.v0.9.0").await;
    uninstall(&test, OTHER, "memo.v1.0.0").await;
    assert_eq!(role(&test).await, None);
}

#[tokio::test(start_paused = true)]
async fn role_stays_if_another_installation_takes_it_over_during_the_deletion_of_its_owner() {
    for seed in 6..=10 {
        let test = start_with(seed, SLOW).await;
        subscribe(&test, "test", "memo").await;
        install(&test, "test", "memo.v1.0.0").await;
        subscribe(&test, OTHER, "memo").await;
        tokio::join!(approve(&test, OTHER, "memo.v1.0.0"), remove(&test, "test", "memo.v1.0.0"));
        until_runs(&test, OTHER, "memo.v1.0.0").await;
        until_gone(&test, "test", "memo.v1.0.0").await;
        let expected = ("other/memo.v1.0.0".to_owned(), vec!["get".to_owned()]);
        assert_eq!(role(&test).await, Some(expected), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_package_with_another_role_of_the_same_name_is_not_installed() {
    let test = start_with(1, Faults::NONE).await;
    subscribe(&test, "test", "memo").await;
    install(&test, "test", "memo.v1.0.0").await;
    test.assert_converges().await;
    let before = role(&test).await.unwrap();
    assert_eq!(before, ("test/memo.v1.0.0".to_owned(), vec!["get".to_owned()]));
    subscribe(&test, OTHER, "worn").await;
    let plan = approve(&test, OTHER, "worn.v1.0.0").await;
    let plans: Api<InstallPlan> = Api::namespaced(test.client(), OTHER);
    let status = async || plans.get(&plan).await.unwrap().status;
    test.eventually("the plan fails", async || status().await.phase == InstallPlanPhase::Failed).await;
    assert_eq!(
        status().await.message,
        "ClusterRole memo-metrics-reader belongs to ClusterServiceVersion test/memo.v1.0.0, which worn.v1.0.0 does not \
         replace, and differs from that of its bundle: uninstall that operator, or do not install this one"
    );
    assert_eq!(role(&test).await.unwrap(), before);
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(test.client(), OTHER);
    assert!(csvs.get_opt("worn.v1.0.0").await.unwrap().is_none());
    // The remedy in the message.
    uninstall(&test, "test", "memo.v1.0.0").await;
    until_runs(&test, OTHER, "worn.v1.0.0").await;
    assert_eq!(role(&test).await.unwrap(), ("other/worn.v1.0.0".to_owned(), vec!["get".to_owned(), "post".to_owned()]));
}
