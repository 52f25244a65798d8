
#[test]
fn missing_labels_are_set() -> flyball::Result<()> {
    let mut object = named("a");
    set_defaults(&mut object, &AdmissionRequest::create(named("a")))?;
    assert_eq!(object.metadata.labels.expect("labels are set")["app.kubernetes.io/name"], "{{lower}}");
    Ok(())
}
