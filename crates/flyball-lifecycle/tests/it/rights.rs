//! Rights: what an operator gets, and what a namespace administrator cannot get through the manager.

use crate::fixture::*;
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::{CatalogSource, ClusterServiceVersion, InstallPlan, OperatorCondition, OperatorGroup};
use flyball_lifecycle::content::PackageBundle;
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::source::{CatalogClient, Loaded, Location, SourceError, Sources};
use flyball_lifecycle::{Settings, operator as operator_of};
use futures_util::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(texts(resources)),
        verbs: texts(verbs),
        ..PolicyRule::default()
    }
}

/// A ClusterServiceVersion that asks for all rights.
fn greedy() -> Value {
    let mut csv = bundle("memo.v1.0.0").pop().unwrap();
    csv["metadata"]["namespace"] = Value::Null;
    csv["spec"]["customresourcedefinitions"] = json!({});
    csv["spec"]["install"]["spec"]["clusterPermissions"] = json!([{
        "serviceAccountName": "memo-controller",
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    }]);
    csv
}

async fn create<K>(client: &Client, namespace: &str, object: Value) -> Result<K, kube::Error>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
}

fn forbidden<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> String {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => status.message,
        other => panic!("expected a refusal, and got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn namespace_admin_cannot_gain_rights_by_objects_of_the_manager() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v1.0.0").await;
    test.assert_converges().await;
    let admin = test.account("tenant", &[rule("operators.coreos.com", &["*"], &["*"])]).await;
    let namespace = test.namespace();

    let mut csv = greedy();
    csv["metadata"]["name"] = "greedy".into();
    let why = forbidden(create::<ClusterServiceVersion>(&admin, namespace, csv).await);
    assert!(why.contains("only users who may grant any permission may write it"), "{why}");
    let own: Api<ClusterServiceVersion> = Api::namespaced(admin.clone(), namespace);
    let more = Patch::Merge(json!({"spec": {"install": greedy()["spec"]["install"]}}));
    forbidden(own.patch("memo.v1.0.0", &PatchParams::default(), &more).await);
    let group = json!({"metadata": {"name": "all"}, "spec": {}});
    forbidden(create::<OperatorGroup>(&admin, namespace, group).await);
    let groups: Api<OperatorGroup> = Api::namespaced(admin.clone(), namespace);
    let all = Patch::Merge(json!({"spec": {"targetNamespaces": null}}));
    forbidden(groups.patch("group", &PatchParams::default(), &all).await);
    let catalog = json!({"metadata": {"name": "own"}, "spec": {"sourceType": "grpc", "address": "127.0.0.1:1"}});
    forbidden(create::<CatalogSource>(&admin, namespace, catalog).await);
    let image = json!({"metadata": {"name": "own"}, "spec": {"sourceType": "grpc", "image": "127.0.0.1:1/x/y:z"}});
    forbidden(create::<CatalogSource>(&admin, namespace, image).await);
    let plan = json!({
        "metadata": {"name": "own"},
        "spec": {"approval": "Automatic", "approved": true, "clusterServiceVersionNames": ["greedy"]},
    });
    forbidden(create::<InstallPlan>(&admin, namespace, plan.clone()).await);

    // The manager decides by its own annotations and labels, and by the status.
    let provided = json!({"metadata": {"annotations": {"olm.providedAPIs": "Pool.v1.demo.flyball.dev"}}});
    forbidden(groups.patch("group", &PatchParams::default(), &Patch::Merge(provided)).await);
    let targets = Patch::Merge(json!({"status": {"namespaces": [""], "lastUpdated": "2026-01-01T00:00:00Z"}}));
    forbidden(groups.patch_status("group", &PatchParams::default(), &targets).await);
    let copy = Patch::Merge(json!({"metadata": {"labels": {"olm.copiedFrom": "other"}}}));
    forbidden(own.patch("memo.v1.0.0", &PatchParams::default(), &copy).await);
    let phase = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    forbidden(own.patch_status("memo.v1.0.0", &PatchParams::default(), &phase).await);

    // Other annotations, approval and deletion are allowed.
    let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "mine"}}}));
    own.patch("memo.v1.0.0", &PatchParams::default(), &note).await.unwrap();
    let mut waiting = plan;
    waiting["spec"]["approved"] = false.into();
    create::<InstallPlan>(&test.client(), namespace, waiting).await.unwrap();
    let plans: Api<InstallPlan> = Api::namespaced(admin.clone(), namespace);
    let others = Patch::Merge(json!({"spec": {"clusterServiceVersionNames": ["x"]}}));
    forbidden(plans.patch("own", &PatchParams::default(), &others).await);
    let unchecked = json!({"metadata": {"annotations": {"olm.flyball.dev/crd-upgrade-safety": "None"}}});
    forbidden(plans.patch("own", &PatchParams::default(), &Patch::Merge(unchecked)).await);
    let steps = Patch::Merge(json!({"status": {"catalogSources": [], "phase": "Installing", "plan": [{
        "resolving": "x", "status": "Unknown",
        "resource": {
            "sourceName": "x", "sourceNamespace": "x", "group": "rbac.authorization.k8s.io", "version": "v1",
            "kind": "ClusterRoleBinding", "name": "x", "manifest": "{}",
        },
    }]}}));
    forbidden(plans.patch_status("own", &PatchParams::default(), &steps).await);
    let approve = Patch::Merge(json!({"spec": {"approved": true}}));
    plans.patch("own", &PatchParams::default(), &approve).await.unwrap();
    own.delete("memo.v1.0.0", &Default::default()).await.unwrap();
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v1.0.0").await, "absent");
    let cluster_roles: Api<ClusterRole> = Api::all(test.client());
    assert_eq!(names(&cluster_roles, "greedy").await, [""; 0]);
}

/// The data of a ConfigMap with a catalog whose only package is [`greedy`].
fn greedy_catalog() -> Value {
    let channel = json!({"name": "stable", "currentCSV": "memo.v1.0.0"});
    let package = json!({"packageName": "memo", "channels": [channel], "defaultChannel": "stable"});
    json!({"packages": json!([package]).to_string(), "clusterServiceVersions": json!([greedy()]).to_string()})
}

#[tokio::test(start_paused = true)]
async fn tenant_cannot_write_the_catalog_of_an_administrator() {
    let make = || operator_of(&Settings::new(Arc::new(Sources::default())));
    let test = setup_of(make).start().await;
    let tenant = test.account("tenant", &[rule("", &["configmaps"], &["*"])]).await;
    let (namespace, label) = (test.namespace(), "olm.flyball.dev/catalog");
    let source = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": {"name": "packages"},
        "spec": {"sourceType": "configmap", "configMap": "packages"},
    });
    test.apply(&source.to_string()).await;
    let status = async || test.api::<CatalogSource>().get("packages").await.unwrap().status;
    let map = |labels: Value| json!({"metadata": {"name": "packages", "labels": labels}, "data": greedy_catalog()});
    let labeled = json!({label: "true"});

    let why = forbidden(create::<ConfigMap>(&tenant, namespace, map(labeled.clone())).await);
    assert!(why.contains("only users who may grant any permission may write it"), "{why}");
    create::<ConfigMap>(&tenant, namespace, map(Value::Null)).await.unwrap();
    test.eventually("it is refused", async || status().await.reason == "UntrustedContent").await;
    let message = status().await.message;
    assert!(message.contains(&format!("kubectl label configmap packages -n {namespace} {label}=true")), "{message}");
    let own: Api<ConfigMap> = Api::namespaced(tenant, namespace);
    let params = PatchParams::default();
    forbidden(own.patch("packages", &params, &Patch::Merge(json!({"metadata": {"labels": labeled}}))).await);

    patch(&test.api::<ConfigMap>(), "packages", json!({"metadata": {"labels": labeled}})).await;
    let is_ready = async || {
        let status = status().await;
        status.reason.is_empty() && status.connection_state.is_some_and(|state| state.last_observed_state == "READY")
    };
    test.eventually("it is loaded", is_ready).await;
    for change in [
        json!({"data": {"packages": "[]"}}),
        json!({"binaryData": {"x": "eA=="}}),
        json!({"metadata": {"labels": {label: null}}}),
        json!({"metadata": {"labels": {label: "other"}}}),
    ] {
        forbidden(own.patch("packages", &params, &Patch::Merge(change)).await);
    }
    let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "mine"}}}));
    own.patch("packages", &params, &note).await.unwrap();
    create::<ConfigMap>(&test.client(), namespace, json!({"metadata": {"name": "other"}})).await.unwrap();
    own.patch("other", &params, &Patch::Merge(json!({"data": {"a": "b"}}))).await.unwrap();

    // A ConfigMap of the same name that takes its place is none of the administrator's.
    own.delete("packages", &Default::default()).await.unwrap();
    forbidden(own.create(&PostParams::default(), &serde_json::from_value(map(labeled)).unwrap()).await);
    create::<ConfigMap>(&own.into_client(), namespace, map(Value::Null)).await.unwrap();
    test.eventually("it is refused again", async || status().await.reason == "UntrustedContent").await;
}

/// Catalogs that record where they were loaded from, and have no content.
#[derive(Clone, Default)]
struct Visited(Arc<Mutex<Vec<String>>>);

impl CatalogClient for Visited {
    fn load<'c>(
        &'c self,
        location: &'c Location,
        _: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
        self.0.lock().push(location.to_string());
        Box::pin(async { Ok(Some(Loaded { content: Arc::default(), revision: String::new() })) })
    }

    fn check<'c>(&'c self, location: &'c Location) -> BoxFuture<'c, Result<(), SourceError>> {
        self.0.lock().push(location.to_string());
        Box::pin(async { Ok(()) })
    }

    fn manifests<'c>(&'c self, _: &'c PackageBundle, _: &'c [String]) -> BoxFuture<'c, Result<Manifests, SourceError>> {
        panic!("the catalogs are empty")
    }
}

#[tokio::test(start_paused = true)]
async fn tenant_chooses_no_server_of_a_catalog() {
    let visited = Visited::default();
    let catalogs = visited.clone();
    let test = setup_of(move || operator_of(&Settings::new(Arc::new(catalogs.clone())))).start().await;
    let (namespace, label) = (test.namespace(), "olm.flyball.dev/catalog");
    let (service, registry) = (format!("catalog.{namespace}.svc:50051"), format!("registry.{namespace}:5000/x/y:z"));
    let tenant = test.account("tenant", &[rule("operators.coreos.com", &["*"], &["*"])]).await;
    for (name, spec) in [
        ("service", json!({"sourceType": "grpc", "address": service})),
        ("registry", json!({"sourceType": "grpc", "image": registry})),
        ("elsewhere", json!({"sourceType": "grpc", "address": "catalog.example.com:50051"})),
        ("pinned", json!({"sourceType": "grpc", "image": format!("{registry}@sha256:{}", "0".repeat(64))})),
    ] {
        let source = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": {"name": name},
            "spec": spec,
        });
        test.apply(&source.to_string()).await;
    }
    let status = async |name: &str| test.api::<CatalogSource>().get(name).await.unwrap().status;
    let is_refused = async |name: &str| status(name).await.reason == "UntrustedContent";
    test.eventually("the servers of the tenant are refused", async || {
        is_refused("service").await && is_refused("registry").await
    })
    .await;
    let is_ready = async |name: &str| status(name).await.conditions.iter().any(|of| of.status == "True");
    test.eventually("others are loaded", async || is_ready("elsewhere").await && is_ready("pinned").await).await;
    let own = [service.clone(), format!("image {registry}")];
    let is_of_tenant = |place: &String| own.iter().any(|own| place.ends_with(own));
    assert!(!visited.0.lock().iter().any(is_of_tenant), "{:?}", visited.0.lock());
    let message = status("service").await.message;
    assert!(message.contains(&format!("kubectl label catalogsource service -n {namespace} {label}=true")), "{message}");

    let sources: Api<CatalogSource> = Api::namespaced(tenant, namespace);
    let params = PatchParams::default();
    for change in [
        json!({"metadata": {"labels": {label: "true"}}}),
        json!({"spec": {"address": "127.0.0.1:1"}}),
        json!({"spec": {"address": null, "image": "127.0.0.1:1/x/y:z"}}),
        json!({"spec": {"secrets": ["other"]}}),
    ] {
        forbidden(sources.patch("service", &params, &Patch::Merge(change)).await);
    }
    let registry_service = json!({"status": {"registryService": {"serviceName": "other"}}});
    forbidden(sources.patch_status("service", &params, &Patch::Merge(registry_service)).await);

    patch(&test.api::<CatalogSource>(), "service", json!({"metadata": {"labels": {label: "true"}}})).await;
    test.eventually("an administrator permits it", async || is_ready("service").await).await;
    assert!(visited.0.lock().iter().any(is_of_tenant));
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_being_deleted_can_only_lose_their_finalizers() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v1.0.0").await;
    test.assert_converges().await;
    let admin = test.account("tenant", &[rule("operators.coreos.com", &["*"], &["*"])]).await;
    let params = PatchParams::default();
    let finalizers = |names: Value| Patch::Merge(json!({"metadata": {"finalizers": names}}));

    let csvs: Api<ClusterServiceVersion> = Api::namespaced(admin.clone(), test.namespace());
    let held = json!(["operators.coreos.com/csv-cleanup", "example.com/hold"]);
    csvs.patch("memo.v1.0.0", &params, &finalizers(held)).await.unwrap();
    csvs.delete("memo.v1.0.0", &Default::default()).await.unwrap();
    test.assert_converges().await;
    let more = Patch::Merge(json!({"spec": {"install": greedy()["spec"]["install"]}}));
    forbidden(csvs.patch("memo.v1.0.0", &params, &more).await);
    csvs.patch("memo.v1.0.0", &params, &finalizers(Value::Null)).await.unwrap();
    assert_eq!(state(&test, "memo.v1.0.0").await, "absent");

    let groups: Api<OperatorGroup> = Api::namespaced(admin.clone(), test.namespace());
    groups.patch("group", &params, &finalizers(json!(["example.com/hold"]))).await.unwrap();
    groups.delete("group", &Default::default()).await.unwrap();
    forbidden(groups.patch("group", &params, &Patch::Merge(json!({"spec": {"targetNamespaces": null}}))).await);
    let provided = json!({"metadata": {"annotations": {"olm.providedAPIs": "Other.v1.demo.flyball.dev"}}});
    forbidden(groups.patch("group", &params, &Patch::Merge(provided)).await);
    let status = json!({"status": {"namespaces": [""], "lastUpdated": "2026-01-01T00:00:00Z"}});
    forbidden(groups.patch_status("group", &params, &Patch::Merge(status)).await);
    groups.patch("group", &params, &finalizers(Value::Null)).await.unwrap();
    assert!(groups.get_opt("group").await.unwrap().is_none());

    let waiting = json!({
        "metadata": {"name": "own", "finalizers": ["example.com/hold"]},
        "spec": {"approval": "Manual", "approved": false, "clusterServiceVersionNames": ["memo.v1.0.0"]},
    });
    create::<InstallPlan>(&test.client(), test.namespace(), waiting).await.unwrap();
    let plans: Api<InstallPlan> = Api::namespaced(admin, test.namespace());
    plans.delete("own", &Default::default()).await.unwrap();
    let others = Patch::Merge(json!({"spec": {"clusterServiceVersionNames": ["greedy"]}}));
    forbidden(plans.patch("own", &params, &others).await);
    plans.patch("own", &params, &finalizers(Value::Null)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn service_account_of_the_group_limits_what_is_installed() {
    let test = setup().start().await;
    let namespace = test.namespace().to_owned();
    let rules = [
        rule("", &["serviceaccounts"], &["create", "get", "patch"]),
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], &["create", "get", "patch"]),
        rule("apps", &["deployments"], &["create", "get", "patch"]),
        rule("", &["configmaps"], &["get", "list", "watch"]),
    ];
    test.account("installer", &rules).await;
    group(&test, "group", json!({"targetNamespaces": [namespace], "serviceAccountName": "installer"})).await;
    install_changed(&test, "memo.v1.0.0", |csv| {
        *csv = greedy();
        csv["metadata"]["namespace"] = namespace.clone().into();
    })
    .await;
    test.expect_errors("cannot grant");
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert_eq!(
        state(&test, "memo.v1.0.0").await,
        "Pending RequirementsNotMet: one or more requirements couldn't be found"
    );
    let cluster_roles: Api<ClusterRole> = Api::all(test.client());
    assert_eq!(names(&cluster_roles, "memo.v1.0.0-").await, [""; 0], "the account may not create ClusterRoles");
    assert_eq!(names(&test.api::<Role>(), "memo-control").await, [""; 0], "or roles with rights that it lacks");
    assert_eq!(names(&test.api::<Deployment>(), "").await, [""; 0]);

    // With modest rights the same operator is installed, on behalf of the account.
    let modest = json!({"spec": {"install": {"spec": {
        "clusterPermissions": [],
        "permissions": [{"serviceAccountName": "memo-controller", "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        ]}],
    }}}});
    patch(&test.api::<ClusterServiceVersion>(), "memo.v1.0.0", modest).await;
    until(&test, "memo.v1.0.0", SUCCEEDED).await;
    assert_eq!(names(&test.api::<Role>(), "memo-control").await.len(), 1);
    let _ = test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn operator_has_only_the_rights_of_its_bundle() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v2.0.0").await;
    test.assert_converges().await;
    let bindings: Api<DynamicObject> = Api::all_with(
        test.client(),
        &flyball::Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding").cluster_scoped().api_resource(),
    );
    let account = json!({"kind": "ServiceAccount", "name": "memo-controller", "namespace": test.namespace()});
    let mut granted = Vec::new();
    for binding in bindings.list(&ListParams::default()).await.unwrap() {
        if binding.data["subjects"].as_array().into_iter().flatten().any(|subject| *subject == account) {
            let role = binding.data["roleRef"]["name"].as_str().unwrap().to_owned();
            let rules = Api::<ClusterRole>::all(test.client()).get(&role).await.unwrap().rules.unwrap();
            granted.extend(rules);
        }
    }
    assert_eq!(granted, [rule("", &["nodes"], &["get", "list"])]);
}

#[tokio::test(start_paused = true)]
async fn operator_may_report_its_own_condition_only() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v1.0.0").await;
    install(&test, "pool.v1.0.0").await;
    test.assert_converges().await;
    // The account of the operator, with nothing but the rights that it has already.
    let operator = test.account("memo-controller", &[]).await;
    let conditions: Api<OperatorCondition> = Api::namespaced(operator, test.namespace());
    let busy = Patch::Merge(json!({"spec": {"conditions": [{
        "type": "Upgradeable", "status": "False", "reason": "Busy", "message": "a migration runs",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}}));
    conditions.patch("memo.v1.0.0", &PatchParams::default(), &busy).await.unwrap();
    forbidden(conditions.patch("pool.v1.0.0", &PatchParams::default(), &busy).await);
    forbidden(conditions.delete("memo.v1.0.0", &Default::default()).await);
    test.assert_converges().await;
    let reported = test.api::<OperatorCondition>().get("memo.v1.0.0").await.unwrap();
    assert_eq!(reported.status.conditions[0].observed_generation, reported.metadata.generation);
}

/// Binds the service account of the group to rights in the whole cluster.
async fn bind_installer(test: &Test, rules: Value) {
    let (version, name) = ("rbac.authorization.k8s.io/v1", "installer-of-all");
    let subject = json!({"kind": "ServiceAccount", "name": "installer", "namespace": test.namespace()});
    let role = json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    });
    test.apply(&role.to_string()).await;
    test.apply(&binding.to_string()).await;
}

#[tokio::test(start_paused = true)]
async fn service_account_of_the_group_limits_roles_for_users() {
    let test = setup().start().await;
    let all = |group: &str, resources: &[&str]| rule(group, resources, &["*"]);
    let rules = [
        all("", &["serviceaccounts", "configmaps"]),
        all("apps", &["deployments"]),
        all("demo.flyball.dev", &["*"]),
        all("rbac.authorization.k8s.io", &["roles", "rolebindings"]),
    ];
    test.account("installer", &rules).await;
    group(&test, "group", json!({"targetNamespaces": [test.namespace()], "serviceAccountName": "installer"})).await;
    install(&test, "memo.v1.0.0").await;
    test.expect_errors("memos.demo.flyball.dev-v1-");
    until(&test, "memo.v1.0.0", SUCCEEDED).await;
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    assert_eq!(state(&test, "memo.v1.0.0").await, SUCCEEDED, "the operator runs without them");
    let roles: Api<ClusterRole> = Api::all(test.client());
    assert_eq!(names(&roles, "memos.demo.flyball.dev-v1-").await, [""; 0], "they give rights in all namespaces");
    bind_installer(&test, json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])).await;
    test.eventually("the roles exist", async || names(&roles, "memos.demo.flyball.dev-v1-").await.len() == 4).await;
    let _ = test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn service_account_of_the_group_limits_conversions() {
    let test = setup()
        .allows_changes_in("kube-system")
        .allows_changes_of::<MutatingWebhookConfiguration>()
        .allows_changes_of::<ValidatingWebhookConfiguration>()
        .start()
        .await;
    test.account("installer", &[]).await;
    let groups = ["", "apps", "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "demo.flyball.dev"];
    let rules = json!([{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}]);
    bind_installer(&test, rules).await;
    group(&test, "group", json!({"serviceAccountName": "installer"})).await;
    install(&test, "hooked.v1.0.0").await;
    test.eventually("the conversion is refused", async || {
        state(&test, "hooked.v1.0.0").await.starts_with("Failed InstallComponentFailedNoRetry: ")
    })
    .await;
    let why = state(&test, "hooked.v1.0.0").await;
    assert!(why.contains("CRD hooks.demo.flyball.dev on behalf of system:serviceaccount:test:installer"), "{why}");
    let definitions: Api<CustomResourceDefinition> = Api::all(test.client());
    let conversion =
        async || definitions.get("hooks.demo.flyball.dev").await.unwrap().spec.conversion.unwrap().strategy;
    assert_eq!(conversion().await, "None", "it applies to the objects of all namespaces");
    let more = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    bind_installer(&test, more).await;
    until(&test, "hooked.v1.0.0", SUCCEEDED).await;
    assert_eq!(conversion().await, "Webhook");
    let _ = test.expect_denials();
}

#[tokio::test(start_paused = true)]
async fn operator_condition_takes_over_no_role_of_its_name() {
    let test = setup().start().await;
    let tenant = test.account("tenant", &[rule("operators.coreos.com", &["operatorconditions"], &["*"])]).await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "readers"}, "rules": rules});
    create::<Role>(&test.client(), test.namespace(), role).await.unwrap();
    let binding = json!({
        "metadata": {"name": "bound"}, "subjects": [{"kind": "User", "name": "somebody"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "readers"},
    });
    create::<RoleBinding>(&test.client(), test.namespace(), binding).await.unwrap();
    let spec = json!({"serviceAccounts": ["default"], "conditions": []});
    for name in ["readers", "bound", "free"] {
        let condition = json!({"metadata": {"name": name}, "spec": spec});
        create::<OperatorCondition>(&tenant, test.namespace(), condition).await.unwrap();
    }
    test.assert_converges().await;
    let roles = test.api::<Role>();
    assert_eq!(json!(roles.get("readers").await.unwrap().rules), rules);
    assert_eq!(names(&roles, "").await, ["free", "readers", "tenant"]);
    assert_eq!(names(&test.api::<RoleBinding>(), "").await, ["bound", "free", "tenant"]);
    let conditions: Api<OperatorCondition> = Api::namespaced(tenant, test.namespace());
    conditions.delete("readers", &Default::default()).await.unwrap();
    conditions.delete("free", &Default::default()).await.unwrap();
    test.assert_converges().await;
    assert_eq!(names(&roles, "").await, ["readers", "tenant"], "only its own role goes with an OperatorCondition");
}
