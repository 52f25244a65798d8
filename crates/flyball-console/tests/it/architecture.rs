//! The layers inside the crate, as ARCHITECTURE.md draws them.

use flyball_architecture::Sources;

/// The layers from the ground up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("access", &[]),
    ("assets", &[]),
    ("claims", &[]),
    ("explore", &[]),
    ("kind", &[]),
    ("secret", &[]),
    ("summary", &[]),
    ("actions", &["kind", "summary"]),
    ("fields", &["summary"]),
    ("object", &["summary"]),
    ("operators", &["claims", "object", "summary"]),
    ("store", &["kind", "summary"]),
    ("controllers", &["object", "operators", "summary"]),
    ("performance", &["controllers", "object", "operators", "summary"]),
    ("permissions", &["operators", "summary"]),
    ("verification", &["claims", "kind", "object", "operators", "store", "summary"]),
    ("writers", &["claims", "kind", "object", "store", "summary"]),
    ("timeline", &["claims", "fields", "object", "operators", "store", "summary", "verification"]),
    ("causality", &["claims", "object", "operators", "store", "summary", "timeline", "verification"]),
    ("watch", &["kind", "secret", "store", "summary"]),
    ("shared", &["explore", "operators", "store", "verification", "writers"]),
    ("stream", &["shared"]),
    (
        "answers",
        &[
            "actions",
            "causality",
            "controllers",
            "kind",
            "object",
            "operators",
            "performance",
            "permissions",
            "shared",
            "store",
            "summary",
            "timeline",
            "verification",
            "watch",
        ],
    ),
    (
        "server",
        &[
            "access",
            "actions",
            "answers",
            "assets",
            "explore",
            "kind",
            "operators",
            "shared",
            "stream",
            "verification",
            "watch",
            "writers",
        ],
    ),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_document() {
    Sources::check_document("Modules of the console", LAYERS);
}
