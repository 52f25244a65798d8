use flyball_architecture::Sources;

#[test]
fn crate_is_one_module() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(&[]);
}
