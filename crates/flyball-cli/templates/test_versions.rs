//! Tests of the conversion between versions of `{{kind}}`.

{{uses}}

const SAMPLE: &str = include_str!("../config/samples/{{file}}");

#[tokio::test(start_paused = true)]
async fn the_sample_converts_to_the_storage_version() -> kube::Result<()> {
    let test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    let sample = {{objects}}.get("{{sample}}").await?;
    let stored = {{stored}}.get("{{sample}}").await?;
    assert_eq!(json!(sample.spec), json!(stored.spec));
    Ok(())
}
