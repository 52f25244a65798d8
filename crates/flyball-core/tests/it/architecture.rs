use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("gvk", &[]),
    ("json", &[]),
    ("memory", &[]),
    ("names", &[]),
    ("quantity", &[]),
    ("regexp", &[]),
    ("rng", &[]),
    ("scope", &[]),
    ("time", &[]),
    ("object", &["gvk"]),
    ("field", &["object"]),
    ("cron", &["field", "time"]),
    ("metadata", &["field", "names", "object"]),
    ("selector", &["field", "names"]),
    ("status", &["field", "gvk"]),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_the_document() {
    Sources::check_document("flyball-core", LAYERS);
}
