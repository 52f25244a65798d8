//! Tests of `Foo` on a control plane in the test process, see `flyball_cluster::testing`.

use flyball_cluster::testing::{Test, explore_crashes};
use flyball_explore::{Budget, Explorer};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use sample_controller::api::foo_v1alpha1::{Foo, FooSpec};
use sample_controller::operator;
use serde_json::json;
use std::time::Duration;

const SAMPLE: &str = include_str!("../config/samples/samplecontroller_v1alpha1_foo.yaml");

/// Returns reason and note of the events about a `Foo`.
async fn events_about(test: &Test, name: &str) -> kube::Result<Vec<(String, String)>> {
    let events = test.api::<Event>().list(&ListParams::default()).await?;
    // The Deployment has the same name.
    let is_it =
        |object: &ObjectReference| (object.kind.as_deref(), object.name.as_deref()) == (Some("Foo"), Some(name));
    let about = |event: &Event| event.regarding.as_ref().is_some_and(is_it);
    let reason_and_note = |event: Event| Some((event.reason?, event.note?));
    Ok(events.items.into_iter().filter(about).filter_map(reason_and_note).collect())
}

#[tokio::test(start_paused = true)]
async fn status_counts_available_pods() -> kube::Result<()> {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    for replicas in [1, 4, 2] {
        let patch = json!({"spec": {"replicas": replicas}});
        test.api::<Foo>().patch("example-foo", &PatchParams::default(), &Patch::Merge(patch)).await?;
        test.assert_converges().await;
        let foo = test.api::<Foo>().get("example-foo").await?;
        assert_eq!(foo.status.unwrap_or_default().available_replicas, replicas);
        let deployment = test.api::<Deployment>().get("example-foo").await?;
        assert_eq!(deployment.spec.unwrap_or_default().replicas, Some(replicas));
    }
    // A change by another client is reverted.
    let patch = json!({"spec": {"replicas": 9}});
    test.api::<Deployment>().patch("example-foo", &PatchParams::default(), &Patch::Merge(patch)).await?;
    test.assert_converges().await;
    let deployment = test.api::<Deployment>().get("example-foo").await?;
    assert_eq!(deployment.spec.unwrap_or_default().replicas, Some(2));
    assert_eq!(
        events_about(&test, "example-foo").await?,
        [("Synced".to_owned(), "Foo synced successfully".to_owned())]
    );
    test.assert_idempotent().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deployment_without_owner_is_not_changed() -> kube::Result<()> {
    let test = Test::of(operator).start().await;
    test.apply(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: example-foo}, spec: {replicas: 0, selector: {matchLabels: {a: b}},
          template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}",
    )
    .await;
    test.apply(SAMPLE).await;
    let exists = (
        "ErrResourceExists".to_owned(),
        "Resource \"example-foo\" already exists and is not managed by Foo".to_owned(),
    );
    test.eventually("the event", async || {
        events_about(&test, "example-foo").await.is_ok_and(|events| events == [exists.clone()])
    })
    .await;
    let deployment = test.api::<Deployment>().get("example-foo").await?;
    assert_eq!((deployment.metadata.owner_references, deployment.spec.unwrap_or_default().replicas), (None, Some(0)));
    assert_eq!(test.api::<Foo>().get("example-foo").await?.status, None);
    // After its deletion, the name is free.
    test.api::<Deployment>().delete("example-foo", &Default::default()).await?;
    test.eventually("a deployment of its own", async || {
        let found = test.api::<Deployment>().get("example-foo").await;
        found.is_ok_and(|found| found.metadata.owner_references.is_some_and(|owners| owners[0].kind == "Foo"))
    })
    .await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn invalid_objects_are_rejected() {
    let test = Test::of(operator).start().await;
    let invalid = Foo::new("invalid", FooSpec { deployment_name: String::new(), replicas: 11 });
    let error = test.api::<Foo>().create(&PostParams::default(), &invalid).await.expect_err("two fields are invalid");
    let error = error.to_string();
    assert!(error.contains("spec.deploymentName") && error.contains("spec.replicas"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing() {
    explore_crashes(|| Test::of(operator).nodes(1), async |test| test.apply(SAMPLE).await).await;
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing() {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
}

#[test]
fn explore_faults_change_nothing() {
    Explorer::of(operator)
        .sample(SAMPLE)
        .unique_field("/spec/deploymentName")
        .budget(Budget::schedules(100))
        .run()
        .assert_clean();
}
