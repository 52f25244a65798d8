
#[tokio::test(start_paused = true)]
async fn long_names_are_rejected() -> kube::Result<()> {
    let test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    let mut long = {{objects}}.get("{{sample}}").await?;
    long.metadata = ObjectMeta { name: Some("a".repeat(41)), ..ObjectMeta::default() };
    let error = {{objects}}.create(&PostParams::default(), &long).await.expect_err("the name is too long");
    assert!(error.to_string().contains("metadata.name: Too long"), "{error}");
    Ok(())
}
