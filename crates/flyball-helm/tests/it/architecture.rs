use flyball_architecture::Sources;

/// The layers from the bottom up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("annotation", &[]),
    ("digest", &[]),
    ("discovery", &[]),
    ("error", &[]),
    ("record", &[]),
    ("redacted", &[]),
    ("rendering", &[]),
    ("selector", &[]),
    ("storage", &[]),
    ("yaml", &[]),
    ("chunks", &["storage"]),
    ("resources", &["annotation"]),
    ("history", &["chunks", "rendering", "resources", "storage"]),
    ("status", &["redacted", "storage"]),
    ("watches", &["selector", "storage", "yaml"]),
    ("definition", &["error", "watches", "yaml"]),
    ("rbac", &["resources"]),
    ("kinds", &["rbac", "resources"]),
    ("lookup", &["annotation", "digest", "kinds"]),
    ("verified", &["digest", "lookup", "storage"]),
    ("isolation", &["kinds", "resources"]),
    ("crds", &["digest", "kinds", "resources"]),
    ("extensions", &["storage"]),
    ("hooks", &["kinds", "resources", "storage"]),
    ("delete_hooks", &["hooks", "resources", "storage", "verified"]),
    (
        "source",
        &[
            "digest",
            "discovery",
            "error",
            "extensions",
            "kinds",
            "lookup",
            "record",
            "rendering",
            "resources",
            "storage",
            "watches",
            "yaml",
        ],
    ),
    ("stages", &["annotation", "isolation", "kinds", "resources"]),
    ("current", &["error", "source", "watches"]),
    ("install", &["history", "hooks", "kinds", "rendering", "resources", "stages", "status", "storage", "watches"]),
    (
        "releases",
        &[
            "annotation",
            "crds",
            "current",
            "delete_hooks",
            "extensions",
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
            "extensions",
            "history",
            "kinds",
            "releases",
            "rendering",
            "resources",
            "stages",
            "status",
            "storage",
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
