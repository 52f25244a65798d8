//! Tests of `VisitorsApp` on a control plane in the test process, see `flyball_cluster::testing`.

use flyball::Operator;
use flyball_cluster::testing::Test;
use flyball_explore::{Budget, Explorer};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{CustomResourceExt, ResourceExt};
use serde_json::json;
use visitors::api::visitorsapp_v1::VisitorsApp;
use visitors::controllers::visitorsapp;
use visitors::operator;

const SAMPLE: &str = include_str!("../config/samples/example_v1_visitorsapp.yaml");

#[tokio::test(start_paused = true)]
async fn site_has_three_ready_tiers() -> kube::Result<()> {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_idempotent().await;
    let deployments = test.api::<Deployment>().list(&ListParams::default()).await?;
    let names: Vec<String> = deployments.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["site-backend", "site-frontend", "site-mysql"]);
    let status = test.api::<VisitorsApp>().get("site").await?.status.unwrap_or_default();
    assert_eq!(status.conditions[0].status, "True");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn password_outlives_changes_of_the_site() -> kube::Result<()> {
    let test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    let password = async || test.api::<Secret>().get("site-mysql-auth").await.map(|secret| secret.data);
    let before = password().await?;
    let patch = Patch::Merge(json!({"spec": {"size": 2}}));
    test.api::<VisitorsApp>().patch("site", &PatchParams::default(), &patch).await?;
    test.assert_converges().await;
    assert!(before.is_some());
    assert_eq!(password().await?, before);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_tier_leaves_the_others() -> kube::Result<()> {
    let test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    let before = test.api::<Deployment>().list(&ListParams::default()).await?;
    let patch = Patch::Merge(json!({"spec": {"title": "Welcome"}}));
    test.api::<VisitorsApp>().patch("site", &PatchParams::default(), &patch).await?;
    test.assert_converges().await;
    let after = test.api::<Deployment>().list(&ListParams::default()).await?;
    let pairs = before.iter().zip(&after);
    let changed = pairs.filter(|(before, after)| before.metadata.generation != after.metadata.generation);
    let changed: Vec<String> = changed.map(|(_, after)| after.name_any()).collect();
    assert_eq!(changed, ["site-frontend"]);
    Ok(())
}

#[test]
fn explore_faults_change_nothing() {
    // Runs have to be reproducible, and the real operator uses randomness of the operating system.
    let operator = || {
        let passwords = || "password".to_owned();
        Operator::new(visitors::NAME).crd(VisitorsApp::crd()).controller(visitorsapp::controller(passwords))
    };
    Explorer::of(operator).sample(SAMPLE).budget(Budget::schedules(60)).run().assert_clean();
}
