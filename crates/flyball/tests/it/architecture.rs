//! The drawing of the runtime in ARCHITECTURE.md, as a table.

use flyball_architecture::Sources;
use std::collections::BTreeMap;

/// The layers from the bottom up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("backoff", &[]),
    ("batch", &[]),
    ("description", &[]),
    ("external", &[]),
    ("kind", &[]),
    ("latch", &[]),
    ("listener", &[]),
    ("memory", &[]),
    ("metrics", &[]),
    ("offload", &[]),
    ("proxy", &[]),
    ("conflict", &["backoff"]),
    ("error", &["kind"]),
    ("rbac", &["kind"]),
    ("client", &["backoff", "kind", "metrics", "proxy"]),
    ("panics", &["error"]),
    ("serve", &["listener"]),
    ("web", &["proxy"]),
    ("cache", &["error", "kind", "latch", "metrics", "panics"]),
    ("events", &["client", "error", "kind"]),
    ("watcher", &["backoff", "cache", "client", "error", "kind", "metrics"]),
    ("queue", &["backoff", "cache", "metrics"]),
    ("ledger", &["cache", "external", "kind", "queue"]),
    (
        "context",
        &["cache", "client", "error", "events", "kind", "latch", "ledger", "metrics", "panics", "queue", "watcher"],
    ),
    ("webhook", &["backoff", "cache", "client", "error", "kind", "metrics", "panics", "serve"]),
    ("apply", &["cache", "client", "context", "error", "kind", "ledger", "queue"]),
    ("election", &["cache", "client", "context", "error", "events", "kind", "latch", "metrics"]),
    ("policy", &["kind", "webhook"]),
    (
        "controller",
        &[
            "apply",
            "backoff",
            "cache",
            "client",
            "context",
            "description",
            "error",
            "events",
            "external",
            "kind",
            "ledger",
            "memory",
            "metrics",
            "offload",
            "panics",
            "queue",
            "rbac",
        ],
    ),
    ("bench", &["ledger", "queue"]),
    (
        "operator",
        &[
            "cache",
            "client",
            "context",
            "controller",
            "description",
            "election",
            "error",
            "events",
            "external",
            "kind",
            "latch",
            "ledger",
            "panics",
            "policy",
            "proxy",
            "queue",
            "rbac",
            "serve",
            "watcher",
            "web",
            "webhook",
        ],
    ),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn drawing_matches_layers() {
    let text = include_str!("../../../../ARCHITECTURE.md");
    let (_, section) = text.split_once("## Modules of the runtime\n").expect("the section exists");
    let rows = section.lines().skip_while(|line| !line.starts_with("    ")).take_while(|line| !line.is_empty());
    let rows: BTreeMap<&str, usize> =
        rows.enumerate().flat_map(|(row, line)| line.split_whitespace().map(move |module| (module, row))).collect();
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), {
        let mut modules: Vec<&str> = LAYERS.iter().map(|(module, _)| *module).collect();
        modules.sort_unstable();
        modules
    });
    for (module, below) in LAYERS {
        for other in *below {
            assert!(rows[module] < rows[other], "{module} imports {other}, which is not drawn below it");
        }
    }
}
