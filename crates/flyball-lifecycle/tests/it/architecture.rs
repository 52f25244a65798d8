use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("connections", &[]),
    ("document", &[]),
    ("files", &[]),
    ("image", &[]),
    ("rules", &[]),
    ("version", &[]),
    ("bundle", &["version"]),
    ("catalog", &["bundle", "version"]),
    ("channel", &["catalog"]),
    ("requirement", &["bundle", "catalog", "version"]),
    ("manifests", &["bundle", "document", "files"]),
    ("content", &["bundle", "catalog", "document", "files", "image", "manifests", "version"]),
    ("packages", &["catalog", "connections", "content", "manifests", "rules", "version"]),
    ("grpc", &["bundle", "connections", "content", "document", "version"]),
    ("source", &["content", "document", "files", "grpc", "image", "manifests"]),
    ("validation", &["bundle", "files", "image", "manifests"]),
    ("resolution", &["bundle", "catalog", "channel", "requirement", "version"]),
    ("patch", &[]),
    ("install", &["api"]),
    ("group", &["api", "install", "patch", "rules"]),
    ("csv", &["api", "group", "install", "patch", "rules"]),
    ("contents", &["api", "catalog", "content", "image", "manifests", "packages", "source"]),
    ("installed", &["api", "bundle"]),
    (
        "plan",
        &[
            "api",
            "bundle",
            "catalog",
            "content",
            "contents",
            "csv",
            "install",
            "installed",
            "manifests",
            "patch",
            "resolution",
            "rules",
            "version",
        ],
    ),
    (
        "subscription",
        &[
            "api",
            "bundle",
            "catalog",
            "channel",
            "content",
            "contents",
            "csv",
            "installed",
            "patch",
            "plan",
            "requirement",
            "resolution",
            "rules",
            "source",
            "version",
        ],
    ),
    (
        "extension",
        &[
            "api",
            "bundle",
            "catalog",
            "content",
            "contents",
            "install",
            "installed",
            "manifests",
            "patch",
            "plan",
            "resolution",
            "rules",
            "source",
            "version",
        ],
    ),
    (
        "manager",
        &["api", "contents", "csv", "extension", "packages", "plan", "resolution", "rules", "source", "subscription"],
    ),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_the_document() {
    Sources::check_document("flyball-lifecycle", LAYERS);
}
