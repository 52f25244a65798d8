
#[tokio::test(start_paused = true)]
async fn names_that_are_too_long_are_refused() -> kube::Result<()> {
    let test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    let mut long = {{objects}}.get("{{sample}}").await?;
    long.metadata = ObjectMeta { name: Some("a".repeat(41)), ..ObjectMeta::default() };
    let refused = {{objects}}.create(&PostParams::default(), &long).await.expect_err("the name is too long");
    assert!(refused.to_string().contains("metadata.name: Too long"), "{refused}");
    Ok(())
}
