//! `{{kind}}` in two versions: what is written in one is read in the other.

{{uses}}

const SAMPLE: &str = include_str!("../config/samples/{{file}}");

#[tokio::test(start_paused = true)]
async fn the_sample_is_read_in_the_stored_version() -> kube::Result<()> {
    let test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    let sample = {{objects}}.get("{{sample}}").await?;
    let stored = {{stored}}.get("{{sample}}").await?;
    assert_eq!(json!(sample.spec), json!(stored.spec));
    Ok(())
}
