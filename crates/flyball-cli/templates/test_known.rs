//! The controller of `{{kind}}` on a control plane that runs in the test itself: see `flyball_cluster::testing`.

use flyball_cluster::testing::Test;
use {{crate}}::operator;
{{definition}}
#[tokio::test(start_paused = true)]
async fn it_comes_to_rest() {
    let mut test = Test::of(operator).start().await;
{{apply}}    test.assert_idempotent().await;
}
