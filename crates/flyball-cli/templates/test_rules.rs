
#[tokio::test(start_paused = true)]
async fn invalid_objects_are_rejected() {
    let test = Test::of(operator).start().await;
    let invalid = {{type}}::new("invalid", {{kind}}Spec { message: "Not A Name".into(), times: 11 });
    let error = {{objects}}.create(&PostParams::default(), &invalid).await.expect_err("two fields are invalid");
    let error = error.to_string();
    assert!(error.contains("spec.message") && error.contains("spec.times"), "{error}");
}
