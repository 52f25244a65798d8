//! The sample `samples/visitors-helm`, unchanged.

use crate::project::operator;
use flyball_cluster::testing::Test;
use std::path::Path;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/visitors-helm");
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
