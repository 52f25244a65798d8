use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
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
