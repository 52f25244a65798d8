
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
async fn a_failure_is_in_the_status_until_a_retry_succeeds() -> kube::Result<()> {
    let test = Test::of(operator).start().await;
    // The operator does not adopt an existing object with this name.
    let metadata = ObjectMeta { name: Some("{{sample}}".into()), ..ObjectMeta::default() };
    let other = {{child}} { metadata, ..{{child}}::default() };
    {{children}}.create(&PostParams::default(), &other).await?;
    test.apply(SAMPLE).await;
    let is_ready = async |status: &str, reason: &str| {
        let sample = {{objects}}.get("{{sample}}").await.expect("it was applied");
        let conditions = sample.status.unwrap_or_default().conditions;
        conditions.iter().any(|one| one.kind == "Ready" && one.status == status && one.reason == reason)
    };
    test.eventually("the failure is in the status", async || is_ready("False", "ApplyFailed").await).await;
    {{children}}.delete("{{sample}}", &DeleteParams::default()).await?;
    test.eventually("the sample is ready", async || is_ready("True", "Applied").await).await;
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

/// Searches for ten seconds, or as long as `flyball explore --budget` tells.
#[test]
fn explore_faults_change_nothing() {
    Explorer::of(operator).sample(SAMPLE).run().assert_clean();
}
