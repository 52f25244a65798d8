
#[tokio::test(start_paused = true)]
async fn the_sample_is_accepted() -> kube::Result<()> {
    let test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    assert_eq!({{objects}}.get("{{sample}}").await?.spec.times, 2);
    Ok(())
}
