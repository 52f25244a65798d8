use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("meter", &[]),
    ("observation", &["meter"]),
    ("store", &["meter"]),
    ("query", &["meter", "store"]),
    ("output", &["query", "store"]),
    ("api", &["query"]),
    ("schedule", &["api"]),
    ("collect", &["meter", "observation", "store"]),
    ("source", &["meter", "observation", "store"]),
    ("access", &["api"]),
    ("endpoint", &["access", "output", "query", "store"]),
    ("operator", &["access", "api", "collect", "endpoint", "meter", "query", "schedule", "source", "store"]),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_the_document() {
    Sources::check_document("flyball-metering", LAYERS);
}
