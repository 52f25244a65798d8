use flyball_architecture::Sources;

#[test]
fn the_crate_is_one_module() {
    let sources = Sources::of(env!("CARGO_MANIFEST_DIR"));
    sources.check_layers(&[]);
    sources.check_reachable();
    sources.check_words(&[]);
    sources.check_width();
}
