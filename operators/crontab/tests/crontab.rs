//! Tests of the controller for `CronTab` on a control plane in the test process, see `flyball_cluster::testing`.

use crontab::api::crontab_v1::{CronTab, CronTabSpec};
use crontab::operator;
use flyball_cluster::testing::{Test, explore_crashes};
use flyball_explore::{Budget, Explorer};
use k8s_openapi::api::batch::v1::CronJob;
use kube::api::PostParams;
use std::time::Duration;

const DEFINITION: &str = include_str!("../config/foreign/crontabs.stable.example.com.yaml");
const SAMPLE: &str = include_str!("../../../samples/crontab/cron.yaml");

#[tokio::test(start_paused = true)]
async fn cron_tab_becomes_a_cron_job() -> kube::Result<()> {
    let test = Test::of(operator).start().await;
    test.apply(DEFINITION).await;
    test.apply(SAMPLE).await;
    let exists = async || test.api::<CronJob>().get_opt("my-new-cron-object").await.is_ok_and(|job| job.is_some());
    test.eventually("the cron job", exists).await;
    let job = test.api::<CronJob>().get("my-new-cron-object").await?;
    assert_eq!(job.spec.schedule, "* * * * */5");
    // A `CronTab` without required values is ignored.
    test.api::<CronTab>().create(&PostParams::default(), &CronTab::new("empty", CronTabSpec::default())).await?;
    test.assert_converges().await;
    assert!(test.api::<CronJob>().get_opt("empty").await?.is_none());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn operator_converges_without_the_crd() {
    Test::of(operator).start().await.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing() {
    explore_crashes(
        || Test::of(operator),
        async |test| {
            test.apply(DEFINITION).await;
            test.apply(SAMPLE).await;
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing() {
    let mut test = Test::of(operator).start().await;
    test.apply(DEFINITION).await;
    test.apply(SAMPLE).await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
}

#[test]
fn explore_faults_change_nothing() {
    let explorer = Explorer::of(operator).prerequisites(DEFINITION).sample(SAMPLE);
    explorer.budget(Budget::schedules(200)).run().assert_clean();
}
