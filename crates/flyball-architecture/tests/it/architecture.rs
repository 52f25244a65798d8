use flyball_architecture::Sources;

/// The layers from the ground up: each module, and the modules that it may import.
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
