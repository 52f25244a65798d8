//! Tests of the controller for `{{kind}}` on a control plane in the test process, see `flyball_cluster::testing`.

use flyball_cluster::testing::Test;
use {{crate}}::operator;
{{definition}}
#[tokio::test(start_paused = true)]
async fn reconciling_again_changes_nothing() {
    let mut test = Test::of(operator).start().await;
{{apply}}    test.assert_idempotent().await;
}
