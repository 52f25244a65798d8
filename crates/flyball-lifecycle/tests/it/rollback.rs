//! Rollbacks by Subscriptions, on embedded control planes.

use crate::fixture::*;
use flyball_cluster::testing::{Setup, Test};
use flyball_lifecycle::api::{
    self, ClusterServiceVersion, InstallPlan, InstallPlanPhase, OperatorCondition, Subscription, SubscriptionState,
};
use flyball_lifecycle::content::{Blobs, BundleBlob, Content, PackageBundle};
use flyball_lifecycle::manifests::{Annotations, BundleFolder, Manifests};
use flyball_lifecycle::source::{CatalogClient, Loaded, Location, SourceError, read_folder};
use flyball_lifecycle::{Files, Settings, operator};
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// The recorded catalog, at any place.
struct RecordedCatalog(Arc<Content>);

impl CatalogClient for RecordedCatalog {
    fn load<'c>(&'c self, _: &'c Location, _: Option<&'c str>) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
        Box::pin(async move { Ok(Some(Loaded { content: self.0.clone(), revision: "1".into() })) })
    }

    fn manifests<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        _: &'c [String],
    ) -> BoxFuture<'c, Result<Manifests, SourceError>> {
        Box::pin(async move { panic!("the bundle {} has no image", bundle.name()) })
    }
}

pub(crate) fn managed() -> Setup {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/behavior/catalog/fbc");
    managed_with(Content::new(Blobs::parse(&read_folder(&folder).unwrap()).unwrap()))
}

fn managed_with(content: Content) -> Setup {
    let content = Arc::new(content);
    Test::of(move || operator(&Settings::new(Arc::new(RecordedCatalog(content.clone())))))
        .nodes(1)
        .allows_changes_of::<Namespace>()
        .allows_changes_of::<ClusterRole>()
        .allows_changes_of::<ClusterRoleBinding>()
        .allows_changes_of::<CustomResourceDefinition>()
        .allows_changes_of::<ConfigMap>()
        .allows_changes_of::<PriorityClass>()
        .allows_changes_of::<api::Operator>()
}

pub(crate) async fn subscribe(test: &Test, spec: Value) {
    own_group(test).await;
    let source = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": {"name": "demo"},
        "spec": {"sourceType": "grpc", "address": "recorded:50051"},
    });
    test.apply(&source.to_string()).await;
    let mut subscription = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": {"name": "memo"},
        "spec": {"name": "memo", "source": "demo", "sourceNamespace": test.namespace(), "channel": "stable"},
    });
    for (field, value) in spec.as_object().unwrap() {
        subscription["spec"][field] = value.clone();
    }
    test.apply(&subscription.to_string()).await;
}

pub(crate) async fn annotate(test: &Test, name: &str, value: Value) {
    patch(&test.api::<Subscription>(), "memo", json!({"metadata": {"annotations": {name: value}}})).await;
}

pub(crate) async fn versions(test: &Test) -> Vec<String> {
    names(&test.api::<ClusterServiceVersion>(), "memo").await
}

#[tokio::test(start_paused = true)]
async fn subscription_goes_back_stays_and_goes_on() {
    let test = managed().start().await;
    subscribe(&test, json!({"startingCSV": "memo.v1.0.0"})).await;
    annotate(&test, "olm.flyball.dev/versions", "<2.0.0".into()).await;
    until(&test, "memo.v1.1.0", SUCCEEDED).await;
    test.assert_converges().await;
    assert_eq!(versions(&test).await, ["memo.v1.1.0"]);

    annotate(&test, "olm.flyball.dev/rollback", "memo.v1.0.0".into()).await;
    test.eventually("the older version runs alone", async || {
        versions(&test).await == ["memo.v1.0.0"] && state(&test, "memo.v1.0.0").await == SUCCEEDED
    })
    .await;
    test.assert_converges().await;
    let subscription = test.api::<Subscription>().get("memo").await.unwrap();
    assert_eq!(
        (&*subscription.status.installed_csv, subscription.status.state),
        ("memo.v1.0.0", SubscriptionState::AtLatestKnown)
    );
    let definitions: Api<CustomResourceDefinition> = Api::all(test.client());
    assert!(definitions.get("memos.demo.flyball.dev").await.is_ok());

    annotate(&test, "olm.flyball.dev/rollback", Value::Null).await;
    test.eventually("the newer version runs alone", async || {
        versions(&test).await == ["memo.v1.1.0"] && state(&test, "memo.v1.1.0").await == SUCCEEDED
    })
    .await;
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
async fn version_that_the_catalog_lacks_changes_nothing() {
    let test = managed().start().await;
    subscribe(&test, json!({"startingCSV": "memo.v1.0.0"})).await;
    annotate(&test, "olm.flyball.dev/versions", "<1.1.0".into()).await;
    until(&test, "memo.v1.0.0", SUCCEEDED).await;
    annotate(&test, "olm.flyball.dev/rollback", "memo.v0.9.0".into()).await;
    test.eventually("the missing version is named", async || {
        let conditions = test.api::<Subscription>().get("memo").await.unwrap().status.conditions;
        conditions
            .iter()
            .any(|condition| condition.kind == "ResolutionFailed" && condition.message.contains("memo.v0.9.0"))
    })
    .await;
    test.assert_converges().await;
    assert_eq!(
        (versions(&test).await, state(&test, "memo.v1.0.0").await),
        (vec!["memo.v1.0.0".into()], SUCCEEDED.into())
    );
}

#[tokio::test(start_paused = true)]
async fn upgrade_that_has_not_succeeded_is_taken_back() {
    let test = managed().start().await;
    subscribe(&test, json!({"startingCSV": "memo.v1.0.0"})).await;
    annotate(&test, "olm.flyball.dev/versions", "<1.1.0".into()).await;
    until(&test, "memo.v1.0.0", SUCCEEDED).await;
    test.assert_converges().await;
    let conditions = json!([{
        "type": "Upgradeable", "status": "False", "reason": "Busy", "message": "a migration runs",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    patch(&test.api::<OperatorCondition>(), "memo.v1.0.0", json!({"spec": {"conditions": conditions}})).await;
    annotate(&test, "olm.flyball.dev/versions", "<2.0.0".into()).await;
    test.eventually("the upgrade is held back", async || {
        state(&test, "memo.v1.1.0").await.starts_with("Pending OperatorConditionNotUpgradeable")
    })
    .await;
    test.assert_converges().await;
    annotate(&test, "olm.flyball.dev/rollback", "memo.v1.0.0".into()).await;
    delete(&test.api::<ClusterServiceVersion>(), "memo.v1.1.0").await;
    test.eventually("the older version runs alone", async || {
        versions(&test).await == ["memo.v1.0.0"] && state(&test, "memo.v1.0.0").await == SUCCEEDED
    })
    .await;
    test.assert_converges().await;
    let subscription = test.api::<Subscription>().get("memo").await.unwrap();
    assert_eq!(subscription.status.installed_csv, "memo.v1.0.0");
}

#[tokio::test(start_paused = true)]
async fn one_operator_of_a_plan_is_approved() {
    let test = managed().start().await;
    // The catalog comes last, so that both share a plan.
    for name in ["memo", "pool"] {
        let subscription = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": {"name": name},
            "spec": {
                "name": name, "source": "demo", "sourceNamespace": test.namespace(), "channel": "stable",
                "installPlanApproval": "Manual",
            },
        });
        test.apply(&subscription.to_string()).await;
    }
    own_group(&test).await;
    let source = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": {"name": "demo"},
        "spec": {"sourceType": "grpc", "address": "recorded:50051"},
    });
    test.apply(&source.to_string()).await;
    let plans = test.api::<InstallPlan>();
    let waiting = async || -> Vec<Vec<String>> {
        let all = plans.list(&ListParams::default()).await.unwrap().items;
        let waiting = all.into_iter().filter(|plan| plan.status.phase == InstallPlanPhase::RequiresApproval);
        let mut names: Vec<_> = waiting.map(|plan| plan.spec.cluster_service_version_names).collect();
        names.iter_mut().for_each(|names| names.sort());
        names
    };
    test.assert_converges().await;
    // Both may have been planned in turn.
    if waiting().await.len() == 1 && waiting().await[0].len() == 2 {
        annotate(&test, "olm.flyball.dev/approved", "memo.v2.0.0".into()).await;
        until(&test, "memo.v2.0.0", SUCCEEDED).await;
        test.assert_converges().await;
        assert_eq!(waiting().await, [["pool.v1.2.0"]]);
        assert_eq!(state(&test, "pool.v1.2.0").await, "absent");
        let annotations = test.api::<Subscription>().get("memo").await.unwrap().metadata.annotations;
        let is_kept = annotations.unwrap_or_default().contains_key("olm.flyball.dev/approved");
        assert!(!is_kept, "the next approval of this version is another one");
    } else {
        panic!("{:?}", waiting().await);
    }
}

/// Returns a CRD of the group example.com, with these fields.
fn definition(kind: &str, fields: &[&str]) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let fields: serde_json::Map<String, Value> =
        fields.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Returns a catalog with two versions. Only the newer one has the field `color` of memos, and notes.
fn two_versions() -> Content {
    let bundle = |version: u32| {
        let (mut kinds, mut fields) = (vec!["Memo"], vec!["text"]);
        if version == 2 {
            kinds.push("Note");
            fields.push("color");
        }
        let owned: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"name": format!("{}s.example.com", kind.to_lowercase()), "kind": kind, "version": "v1"}))
            .collect();
        let labels = json!({"app": "memo"});
        let pod = json!({"containers": [{"name": "manager", "image": format!("quay.io/example/memo:{version}")}]});
        let deployment = json!({"name": "memo", "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }});
        let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
            .map(|mode| json!({"type": mode, "supported": true}));
        let mut spec = json!({
            "displayName": "Memo", "version": format!("{version}.0.0"), "provider": {"name": "Example"},
            "installModes": modes, "customresourcedefinitions": {"owned": owned},
            "install": {"strategy": "deployment", "spec": {"deployments": [deployment]}},
        });
        if version == 2 {
            spec["replaces"] = "memo.v1.0.0".into();
        }
        let csv = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": format!("memo.v{version}.0.0")}, "spec": spec,
        });
        let annotations = json!({"annotations": Annotations::new("memo", &["stable"], None).to_map()});
        let mut files = Files::default();
        files.insert("manifests/csv.yaml", csv.to_string().into_bytes()).unwrap();
        files.insert("metadata/annotations.yaml", annotations.to_string().into_bytes()).unwrap();
        for kind in kinds {
            let definition = definition(kind, if kind == "Memo" { &fields } else { &["text"] });
            files.insert(format!("manifests/{kind}.yaml").as_str(), definition.to_string().into_bytes()).unwrap();
        }
        BundleBlob::of_folder(&BundleFolder::read(&files).unwrap(), "")
    };
    let mut blobs = Blobs { bundles: vec![bundle(1), bundle(2)], ..Blobs::default() };
    let text = "{schema: olm.package, name: memo, defaultChannel: stable}\n---\n\
                {schema: olm.channel, package: memo, name: stable, entries: [\
                {name: memo.v2.0.0, replaces: memo.v1.0.0}, {name: memo.v1.0.0}]}\n";
    blobs.add("catalog.yaml", text.as_bytes()).unwrap();
    let content = Content::new(blobs);
    assert!(content.problems().is_empty(), "{:?}", content.problems());
    content
}

/// Returns the messages of the plans that are not complete.
async fn unfinished(test: &Test) -> Vec<String> {
    let plans = test.api::<InstallPlan>().list(&ListParams::default()).await.unwrap().items;
    let unfinished = plans.into_iter().filter(|plan| plan.status.phase != InstallPlanPhase::Complete);
    unfinished.map(|plan| plan.status.message).collect()
}

/// Requests the rollback from the newer version while a custom resource exists, and gives it up after its refusal.
async fn is_refused_and_given_up(kind: &str, spec: Value, why: &str) {
    let test = managed_with(two_versions()).start().await;
    subscribe(&test, json!({})).await;
    until(&test, "memo.v2.0.0", SUCCEEDED).await;
    test.assert_converges().await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", kind));
    let objects: Api<DynamicObject> = Api::namespaced_with(test.client(), test.namespace(), &resource);
    let object = json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "one"}, "spec": spec});
    objects.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();

    annotate(&test, "olm.flyball.dev/rollback", "memo.v1.0.0".into()).await;
    test.eventually("the rollback is refused", async || {
        unfinished(&test).await.iter().any(|message| message.contains(why))
    })
    .await;
    assert_eq!(versions(&test).await, ["memo.v2.0.0"]);
    assert_eq!(objects.get("one").await.unwrap().data["spec"], spec);

    annotate(&test, "olm.flyball.dev/rollback", Value::Null).await;
    // Without the cause of the refusal, the plan could be executed.
    objects.delete("one", &Default::default()).await.unwrap();
    test.eventually("the plan is deleted", async || unfinished(&test).await.is_empty()).await;
    test.assert_converges().await;
    assert_eq!(versions(&test).await, ["memo.v2.0.0"]);
    let status = test.api::<Subscription>().get("memo").await.unwrap().status;
    assert_eq!((&*status.current_csv, status.state), ("memo.v2.0.0", SubscriptionState::AtLatestKnown));
}

#[tokio::test(start_paused = true)]
async fn rollback_that_loses_a_field_is_refused_and_can_be_given_up() {
    let why = "the rollback would break stored objects: memos.example.com test/one: spec.color would be lost";
    is_refused_and_given_up("Memo", json!({"text": "a", "color": "red"}), why).await;
}

#[tokio::test(start_paused = true)]
async fn rollback_that_leaves_custom_resources_without_an_operator_is_refused() {
    let why = "notes.example.com has custom resources, for which memo.v1.0.0 has no controller";
    is_refused_and_given_up("Note", json!({"text": "a"}), why).await;
}
