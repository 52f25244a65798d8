
#[tokio::test(start_paused = true)]
async fn the_sample_becomes_ready() -> kube::Result<()> {
    let mut test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    test.assert_converges().await;
    let sample = {{objects}}.get("{{sample}}").await?;
    assert_eq!(sample.status.expect("the controller sets the status").conditions[0].status, "True");
    let child = {{children}}.get("{{sample}}").await?;
    assert_eq!({{says}}, "hello hello");
    test.assert_idempotent().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_change_nothing() {
    explore_crashes(|| Test::of(operator), async |test| test.apply(SAMPLE).await).await;
}

#[tokio::test(start_paused = true)]
async fn chaos_an_outage_changes_nothing() {
    let mut test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    test.assert_outage_is_harmless(Duration::from_secs(600)).await;
}
