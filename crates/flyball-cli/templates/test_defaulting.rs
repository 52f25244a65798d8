
#[tokio::test(start_paused = true)]
async fn missing_labels_are_set() -> kube::Result<()> {
    let test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    let sample = {{objects}}.get("{{sample}}").await?;
    assert_eq!(sample.metadata.labels.expect("labels are set")["app.kubernetes.io/name"], "{{lower}}");
    Ok(())
}
