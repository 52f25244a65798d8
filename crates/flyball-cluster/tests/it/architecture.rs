//! The layers inside the crate, as ARCHITECTURE.md draws them.

use flyball_architecture::Sources;

/// The layers from the ground up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("client", &[]),
    ("metrics", &[]),
    ("workload", &[]),
    ("node", &["workload"]),
    ("scheduler", &["workload"]),
    ("controllers", &["client", "metrics", "node", "scheduler", "workload"]),
    ("cluster", &["client", "controllers", "metrics", "node"]),
    ("endpoint", &["cluster"]),
    ("inventory", &[]),
    ("simulation", &["cluster"]),
    ("webhooks", &[]),
    ("testing", &["cluster", "controllers", "inventory", "node", "simulation", "webhooks"]),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_document() {
    Sources::check_document("Imports in flyball-cluster", LAYERS);
}
