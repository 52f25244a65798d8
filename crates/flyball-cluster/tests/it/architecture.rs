//! The layers inside the crate, as ARCHITECTURE.md draws them.

use flyball_architecture::Sources;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers from the ground up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("client", &[]),
    ("event_expiry", &[]),
    ("metrics", &[]),
    ("workload", &[]),
    ("node", &["workload"]),
    ("scheduler", &["workload"]),
    ("controllers", &["client", "metrics", "node", "scheduler", "workload"]),
    ("cluster", &["client", "controllers", "event_expiry", "metrics", "node"]),
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

fn sources_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources_below(&path) } else { vec![path] }).collect()
}

/// Mapping functions run in the watch of a kind, which all namespaces share. So they read indexes and keys: the cost of
/// a change must not depend on the size of other objects.
#[test]
fn mapping_functions_decode_no_lists() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in ["controllers", "workload"].into_iter().flat_map(|folder| sources_below(&source.join(folder))) {
        let text = fs::read_to_string(&path).unwrap();
        let found = text.lines().find(|line| line.contains(" caches.list::<"));
        assert_eq!(found, None, "{}", path.display());
    }
}
