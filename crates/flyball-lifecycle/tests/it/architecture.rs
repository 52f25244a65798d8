use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("version", &[]),
    ("bundle", &["version"]),
    ("catalog", &["bundle", "version"]),
    ("channel", &["catalog"]),
    ("requirement", &["bundle", "catalog", "version"]),
    ("resolution", &["bundle", "catalog", "channel", "requirement"]),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_the_document() {
    Sources::check_document("flyball-lifecycle", LAYERS);
}
