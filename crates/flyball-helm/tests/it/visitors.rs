//! The sample `samples/visitors-helm`, unchanged.

use crate::project::{api, condition, operator, operator_of, project};
use flyball_cluster::testing::Test;
use k8s_openapi::api::apps::v1::Deployment;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/visitors-helm");
const CRD: &str = include_str!("../../../../samples/visitors-helm/config/crd/bases/example.com_visitorsapps.yaml");
const SAMPLE: &str = include_str!("../../../../samples/visitors-helm/config/samples/example_v1_visitorsapp.yaml");

#[tokio::test(start_paused = true)]
async fn objects_are_created_in_the_order_of_their_kinds() {
    let test = Test::of(|| operator(Path::new(DIRECTORY))).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    let trace = test.trace();
    let written = |object: &str| {
        let is_write = |line: &str| line.contains(object) && (line.contains("PATCH") || line.contains("POST"));
        trace.lines().position(is_write).unwrap_or_else(|| panic!("{object} was not written:\n{trace}"))
    };
    let secret = written("/secrets/site-mysql-auth");
    for tier in ["mysql", "backend", "frontend"] {
        let service = written(&format!("/services/site-{tier}"));
        assert!(secret < service, "{tier}");
        for deployed in ["mysql", "backend", "frontend"] {
            assert!(service < written(&format!("/deployments/site-{deployed}")), "{tier}, {deployed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn release_waits_until_each_tier_is_available() {
    let watches = format!(
        "- {{group: example.com, version: v1, kind: VisitorsApp, chart: {DIRECTORY}/helm-charts/visitors, wait: true, \
         timeout: 8s}}\n"
    );
    let files = [("watches.yaml", watches.as_str()), ("config/crd/bases/visitorsapps.yaml", CRD)];
    let folder = project("visitors-wait", &files);
    // Without a node, no pod runs.
    let test = Test::of(operator_of(folder.clone())).start().await;
    test.apply(SAMPLE).await;
    let sites = api(&test, "example.com", "v1", "VisitorsApp");
    sleep(Duration::from_secs(6)).await;
    let waits = condition(&sites, "site", "Deployed").await;
    assert!(waits.starts_with("False Installing: Deployment site-"), "{waits}");
    sleep(Duration::from_secs(4)).await;
    let failed = condition(&sites, "site", "ReleaseFailed").await;
    assert!(failed.contains("site-mysql") && failed.ends_with(" after 8s, the timeout in watches.yaml"), "{failed}");

    let test = Test::of(operator_of(folder)).nodes(1).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    let sites = api(&test, "example.com", "v1", "VisitorsApp");
    assert!(condition(&sites, "site", "Deployed").await.starts_with("True InstallSuccessful: "));
    for tier in ["mysql", "backend", "frontend"] {
        let deployment = test.api::<Deployment>().get(&format!("site-{tier}")).await.unwrap();
        assert!(deployment.status.unwrap().available_replicas > Some(0), "{tier}");
    }
}
