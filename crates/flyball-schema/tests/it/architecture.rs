use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("extent", &[]),
    ("formats", &[]),
    ("pattern", &[]),
    ("matching", &["pattern"]),
    ("cel", &["extent", "matching", "pattern"]),
    ("schema", &["cel", "matching"]),
    ("decode", &["schema"]),
    ("notation", &["schema"]),
    ("validate", &["formats", "matching", "schema"]),
    ("apply", &["decode", "schema"]),
    ("openapi", &["cel", "matching", "notation", "pattern", "schema"]),
    ("protobuf", &["decode", "schema"]),
    ("prune", &["decode", "schema"]),
    ("rules", &["cel", "schema", "validate"]),
    ("patch", &["decode", "extent", "schema"]),
];

#[test]
fn modules_form_layers() {
    let sources = Sources::of(env!("CARGO_MANIFEST_DIR"));
    sources.check(LAYERS);
    sources.check_absent(&["crate"], "Status");
}

#[test]
fn layers_match_the_document() {
    Sources::check_document("flyball-schema", LAYERS);
}
