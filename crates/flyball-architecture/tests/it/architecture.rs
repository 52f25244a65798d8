use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("document", &[]),
    ("tree", &[]),
    ("width", &[]),
    ("page", &["width"]),
    ("arrow", &["tree"]),
    ("words", &["tree"]),
    ("scan", &["tree", "words"]),
    ("root", &["scan", "tree"]),
    ("sources", &["arrow", "document", "page", "root", "scan", "tree", "width"]),
];

#[test]
fn pages_have_short_lines_and_plain_words() {
    flyball_architecture::check_pages(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
}

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}
