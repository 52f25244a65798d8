use flyball_architecture::Sources;

/// The layers from the bottom up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("annotation", &[]),
    ("digest", &[]),
    ("discovery", &[]),
    ("error", &[]),
    ("record", &[]),
    ("rendering", &[]),
    ("selector", &[]),
    ("storage", &[]),
    ("chunks", &["storage"]),
    ("resources", &["annotation"]),
    ("history", &["chunks", "rendering", "resources", "storage"]),
    ("status", &["storage"]),
    ("verified", &["digest", "storage"]),
    ("watches", &["selector"]),
    ("definition", &["error", "watches"]),
    ("rbac", &["resources"]),
    ("kinds", &["rbac", "resources"]),
    ("lookup", &["annotation", "kinds"]),
    ("isolation", &["kinds", "resources"]),
    ("hooks", &["kinds", "resources", "storage"]),
    ("delete_hooks", &["hooks", "resources", "storage", "verified"]),
    (
        "source",
        &["digest", "discovery", "error", "kinds", "lookup", "record", "rendering", "resources", "storage", "watches"],
    ),
    ("stages", &["annotation", "isolation", "kinds", "resources"]),
    ("current", &["error", "source", "watches"]),
    ("install", &["history", "hooks", "kinds", "rendering", "resources", "stages", "status", "storage"]),
    (
        "releases",
        &[
            "annotation",
            "current",
            "delete_hooks",
            "history",
            "install",
            "isolation",
            "kinds",
            "lookup",
            "rendering",
            "resources",
            "source",
            "status",
            "storage",
            "verified",
            "watches",
        ],
    ),
    (
        "operator",
        &[
            "annotation",
            "current",
            "definition",
            "error",
            "history",
            "kinds",
            "releases",
            "rendering",
            "resources",
            "verified",
            "watches",
        ],
    ),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_document() {
    Sources::check_document("flyball-helm", LAYERS);
}
