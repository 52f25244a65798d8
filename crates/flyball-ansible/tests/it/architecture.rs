use flyball_architecture::Sources;

/// The layers from the bottom up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("memory", &[]),
    ("offload", &[]),
    ("shares", &[]),
    ("snake", &[]),
    ("vault", &[]),
    ("names", &["snake"]),
    ("yaml", &["error", "memory", "vault"]),
    ("fields", &["yaml"]),
    ("template", &["error", "memory", "vault", "yaml"]),
    ("watches", &["error", "fields", "names", "snake", "vault", "yaml"]),
    ("playbook", &["error", "fields", "template", "vault", "watches", "yaml"]),
    ("variables", &["names", "snake", "template", "watches"]),
    ("job", &["names", "playbook", "template", "watches"]),
    ("reach", &["job", "playbook"]),
    ("ansible", &["job", "names", "reach", "shares", "template", "watches", "yaml"]),
    ("run", &["job", "memory", "playbook", "reach", "shares", "template", "yaml"]),
    ("executor", &["ansible", "job", "offload", "playbook", "run", "shares"]),
    ("status", &["job", "run"]),
    (
        "reconcile",
        &["executor", "job", "memory", "names", "offload", "playbook", "status", "template", "variables", "watches"],
    ),
    (
        "operator",
        &[
            "ansible",
            "error",
            "executor",
            "names",
            "offload",
            "playbook",
            "reach",
            "reconcile",
            "shares",
            "template",
            "vault",
            "watches",
            "yaml",
        ],
    ),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_document() {
    Sources::check_document("flyball-ansible", LAYERS);
}
