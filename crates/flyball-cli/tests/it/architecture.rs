//! The layers inside the crate, as ARCHITECTURE.md draws them.

use flyball_architecture::Sources;

/// The layers from the ground up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("allocator", &[]),
    ("duration", &[]),
    ("error", &[]),
    ("render", &["error"]),
    ("files", &["error", "render"]),
    ("web", &["error"]),
    ("cluster", &["error", "files", "render"]),
    ("operator", &["cluster", "error", "files", "render", "web"]),
    ("project", &["cluster", "error", "files", "render"]),
    ("image", &["error", "files", "operator", "render", "web"]),
    ("chart", &["error", "files", "image", "render", "web"]),
    ("catalog", &["error", "files", "image", "web"]),
    ("bundle", &["cluster", "error", "files", "operator"]),
    ("scorecard", &["cluster", "error", "operator"]),
    ("testing", &["error", "render", "scorecard"]),
    ("cases", &["cluster", "error", "files", "operator"]),
    ("explore", &["cluster", "duration", "error", "files", "operator"]),
    ("why", &["cluster", "error", "operator", "render"]),
    (
        "commands",
        &[
            "allocator",
            "bundle",
            "cases",
            "catalog",
            "chart",
            "cluster",
            "duration",
            "error",
            "explore",
            "files",
            "image",
            "operator",
            "project",
            "render",
            "scorecard",
            "testing",
            "web",
            "why",
        ],
    ),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_document() {
    Sources::check_document("Modules of the command line", LAYERS);
}
