
#[test]
fn names_that_are_too_long_are_refused() -> flyball::Result<()> {
    assert!(judge(&AdmissionRequest::create(named("short")))?.is_allowed());
    assert!(!judge(&AdmissionRequest::create(named(&"a".repeat(41))))?.is_allowed());
    Ok(())
}
