use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("exposition", &[]),
    ("gvk", &[]),
    ("hex", &[]),
    ("json", &[]),
    ("memory", &[]),
    ("names", &[]),
    ("pointer", &[]),
    ("quantity", &[]),
    ("regexp", &[]),
    ("rng", &[]),
    ("scope", &[]),
    ("service_account", &[]),
    ("time", &[]),
    ("object", &["gvk"]),
    ("field", &["object"]),
    ("cron", &["field", "time"]),
    ("selector", &["field", "names"]),
    ("status", &["field", "gvk"]),
    ("metadata", &["field", "names", "object", "status"]),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_the_document() {
    Sources::check_document("flyball-core", LAYERS);
}
