//! The layers of the crate: the table of ARCHITECTURE.md, with the arrows that are allowed.

use flyball_architecture::Sources;

/// The modules from the ground up, each with those that it may import.
#[rustfmt::skip]
const LAYERS: &[(&str, &[&str])] = &[
    ("bounds", &[]),
    ("data_dir", &[]),
    ("quota", &[]),
    ("request", &[]),
    ("link", &["bounds"]),
    ("pki", &["data_dir"]),
    ("response", &["request"]),
    ("storage", &["bounds", "data_dir", "request"]),
    ("kinds", &["request", "response"]),
    ("webhook", &["request", "storage"]),
    ("custom", &["kinds", "storage", "webhook"]),
    ("dial", &["webhook"]),
    ("catalog", &["custom", "kinds", "request", "storage"]),
    ("auth", &["catalog", "kinds", "request", "storage"]),
    ("codec", &["catalog", "custom", "storage", "webhook"]),
    ("table", &["catalog", "custom", "kinds"]),
    ("admission", &["auth", "catalog", "codec", "kinds", "quota", "request", "response", "storage", "webhook"]),
    ("discovery", &["auth", "catalog", "kinds", "request", "response"]),
    ("openapi", &["catalog", "discovery", "kinds", "response"]),
    ("registry", &["admission", "auth", "catalog", "codec", "custom", "kinds", "request", "response", "storage", "webhook"]),
    ("definitions", &["admission", "auth", "catalog", "kinds", "registry", "request", "response", "storage"]),
    ("encoder", &["catalog", "codec", "registry", "request", "response", "storage", "table"]),
    ("watch", &["encoder", "link", "registry", "request", "response", "storage", "table"]),
    ("metrics", &["bounds", "catalog", "kinds", "request", "response", "storage", "watch"]),
    ("server", &["admission", "auth", "bounds", "catalog", "codec", "custom", "data_dir", "definitions", "dial", "discovery", "encoder", "kinds", "link", "metrics", "openapi", "registry", "request", "response", "storage", "table", "watch", "webhook"]),
    ("serve", &["auth", "bounds", "link", "response", "server"]),
];

#[test]
fn modules_form_layers() {
    let sources = Sources::of(env!("CARGO_MANIFEST_DIR"));
    sources.check_layers(LAYERS);
    sources.check_cycles();
    sources.check_reachable();
    sources.check_words(&[]);
    sources.check_absent(&["storage", "bounds", "link"], "Status");
    sources.check_absent(&["storage"], "Resource");
}
