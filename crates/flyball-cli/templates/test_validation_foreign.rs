
#[test]
fn long_names_are_rejected() -> flyball::Result<()> {
    assert!(validate(&AdmissionRequest::create(named("short")))?.is_allowed());
    assert!(!validate(&AdmissionRequest::create(named(&"a".repeat(41))))?.is_allowed());
    Ok(())
}
