use flyball_architecture::Sources;

/// The layers from the ground up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("validity", &[]),
    ("authority", &["validity"]),
    ("verifier", &["validity"]),
    ("config", &["authority", "verifier"]),
];

#[test]
fn modules_form_layers() {
    let sources = Sources::of(env!("CARGO_MANIFEST_DIR"));
    sources.check(LAYERS);
    for socket in ["TcpStream", "TcpListener", "UnixStream", "File", "tokio"] {
        sources.check_absent(&["crate"], socket);
    }
}

#[test]
fn layers_match_the_document() {
    Sources::check_document("flyball-tls", LAYERS);
}
