
#[test]
fn what_is_left_out_is_completed() -> flyball::Result<()> {
    let mut completed = named("a");
    complete(&mut completed, &AdmissionRequest::create(named("a")))?;
    assert_eq!(completed.metadata.labels.expect("labels are set")["app.kubernetes.io/name"], "{{lower}}");
    Ok(())
}
