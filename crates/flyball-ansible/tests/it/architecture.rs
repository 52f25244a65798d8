use flyball_architecture::Sources;

/// The layers from the bottom up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("finished", &[]),
    ("memory", &[]),
    ("offload", &[]),
    ("services", &[]),
    ("shares", &[]),
    ("value", &[]),
    ("snake", &["value"]),
    ("vault", &[]),
    ("names", &["snake"]),
    ("yaml", &["error", "value", "vault"]),
    ("fields", &["value", "yaml"]),
    ("metrics", &["value", "yaml"]),
    ("template", &["error", "value", "vault", "yaml"]),
    ("watches", &["error", "fields", "metrics", "names", "services", "snake", "value", "vault", "yaml"]),
    ("playbook", &["error", "fields", "metrics", "names", "snake", "template", "value", "vault", "watches", "yaml"]),
    ("variables", &["names", "snake", "template", "value", "watches"]),
    ("job", &["metrics", "names", "playbook", "template", "watches"]),
    ("access", &["job", "playbook"]),
    ("ansible", &["access", "job", "names", "shares", "template", "value", "watches", "yaml"]),
    ("run", &["access", "job", "memory", "metrics", "playbook", "services", "shares", "template", "value", "yaml"]),
    ("executor", &["ansible", "job", "memory", "offload", "playbook", "run", "shares"]),
    ("status", &["job", "run"]),
    (
        "reconcile",
        &[
            "executor",
            "finished",
            "job",
            "metrics",
            "names",
            "offload",
            "playbook",
            "status",
            "template",
            "variables",
            "watches",
        ],
    ),
    (
        "operator",
        &[
            "access",
            "ansible",
            "error",
            "executor",
            "finished",
            "memory",
            "metrics",
            "names",
            "offload",
            "playbook",
            "reconcile",
            "shares",
            "snake",
            "status",
            "template",
            "value",
            "vault",
            "watches",
            "yaml",
        ],
    ),
    ("flags", &["error", "metrics", "operator", "watches"]),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_document() {
    Sources::check_document("flyball-ansible", LAYERS);
}
