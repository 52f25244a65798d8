use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("document", &[]),
    ("tree", &[]),
    ("width", &[]),
    ("arrow", &["tree"]),
    ("words", &["tree"]),
    ("scan", &["tree", "words"]),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}
