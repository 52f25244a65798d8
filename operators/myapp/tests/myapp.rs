//! Tests of `MyApp` on a control plane in the test process, see `flyball_cluster::testing`.

use flyball_cluster::testing::Test;
use flyball_explore::{Budget, Explorer};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use myapp::api::myapp_v1alpha1::MyApp;
use myapp::operator;
use serde_json::json;

const SAMPLE: &str = include_str!("../config/samples/apps_v1alpha1_myapp.yaml");

#[tokio::test(start_paused = true)]
async fn application_has_four_ready_components() -> kube::Result<()> {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_idempotent().await;
    let deployments = test.api::<Deployment>().list(&ListParams::default()).await?;
    let names: Vec<String> = deployments.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["shop-backend", "shop-database", "shop-frontend", "shop-worker"]);
    let status = test.api::<MyApp>().get("shop").await?.status.unwrap_or_default();
    assert_eq!((status.ready.as_str(), status.conditions[0].status.as_str()), ("4/4", "True"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn volume_of_the_database_does_not_shrink() {
    let test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    let shrink = Patch::Merge(json!({"spec": {"storage": "1Mi"}}));
    let error = test.api::<MyApp>().patch("shop", &PatchParams::default(), &shrink).await.expect_err("it shrinks");
    assert!(error.to_string().contains("the database's volume cannot become smaller"), "{error}");
}

#[test]
fn explore_faults_change_nothing() {
    Explorer::of(operator).sample(SAMPLE).budget(Budget::schedules(60)).run().assert_clean();
}
