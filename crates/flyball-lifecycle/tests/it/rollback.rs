//! Rollbacks by Subscriptions, on embedded control planes.

use crate::fixture::*;
use flyball_cluster::testing::{Setup, Test};
use flyball_lifecycle::api::{
    self, ClusterServiceVersion, InstallPlan, InstallPlanPhase, OperatorCondition, Subscription, SubscriptionState,
};
use flyball_lifecycle::content::{Blobs, Content, PackageBundle};
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::source::{CatalogClient, Loaded, Location, SourceError, read_folder};
use flyball_lifecycle::{Settings, operator};
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
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
    let content = Arc::new(Content::new(Blobs::parse(&read_folder(&folder).unwrap()).unwrap()));
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
        let all = plans.list(&kube::api::ListParams::default()).await.unwrap().items;
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
