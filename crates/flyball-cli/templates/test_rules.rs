
#[tokio::test(start_paused = true)]
async fn what_breaks_the_rules_is_refused() {
    let test = Test::of(operator).start().await;
    let invalid = {{type}}::new("invalid", {{kind}}Spec { message: "Not A Name".into(), times: 11 });
    let refused = {{objects}}.create(&PostParams::default(), &invalid).await.expect_err("it breaks two rules");
    let refused = refused.to_string();
    assert!(refused.contains("spec.message") && refused.contains("spec.times"), "{refused}");
}
