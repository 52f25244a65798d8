//! The layers inside the crate, as ARCHITECTURE.md draws them.

use flyball_architecture::Sources;

/// The layers from the ground up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("text", &[]),
    ("error", &["text"]),
    ("edit", &[]),
    ("experiment", &["error", "text"]),
    ("api", &["error", "text"]),
    ("change", &["api", "edit", "text"]),
    ("operator", &["api", "error", "experiment", "text"]),
    ("network", &[]),
    ("guard", &["api", "change", "edit", "error", "experiment", "operator", "text"]),
    ("plan", &["api", "change", "edit", "error", "experiment", "guard", "network", "operator", "text"]),
    ("journal", &["change", "error"]),
    ("inject", &["api", "change", "edit", "error", "journal", "text"]),
    ("steady", &["api", "change", "edit", "error", "experiment", "operator", "text"]),
    ("verdict", &["experiment"]),
    ("report", &["text", "verdict"]),
    ("repair", &["api", "change", "edit", "operator"]),
    ("suite", &["api", "experiment", "operator"]),
    ("upgrade", &["api", "experiment", "operator", "text"]),
    ("process", &[]),
    ("proxy", &["network"]),
    (
        "run",
        &[
            "api",
            "change",
            "error",
            "experiment",
            "inject",
            "journal",
            "network",
            "operator",
            "plan",
            "process",
            "repair",
            "report",
            "steady",
            "text",
            "verdict",
        ],
    ),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_document() {
    Sources::check_document("Imports in flyball-chaos", LAYERS);
}
