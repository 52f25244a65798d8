use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("environment", &[]),
    ("glob", &[]),
    ("helm", &[]),
    ("memory", &[]),
    ("quote", &[]),
    ("seed", &[]),
    ("message", &["quote"]),
    ("dates", &["message"]),
    ("number", &["message"]),
    ("release", &["quote"]),
    ("semver", &["helm", "message", "quote"]),
    ("text", &["memory"]),
    ("value", &["dates", "helm", "memory", "semver", "text"]),
    ("yaml", &["memory", "message", "number"]),
    ("capabilities", &["helm", "quote", "value"]),
    ("format", &["number", "quote", "text", "value"]),
    ("values", &["helm", "quote", "yaml"]),
    ("context", &["helm", "memory", "seed", "text", "value"]),
    (
        "functions",
        &[
            "context",
            "dates",
            "environment",
            "format",
            "helm",
            "memory",
            "message",
            "number",
            "quote",
            "semver",
            "text",
            "value",
            "yaml",
        ],
    ),
    ("chart", &["functions", "glob", "helm", "message", "quote", "semver", "text", "value", "values", "yaml"]),
    (
        "template",
        &["context", "format", "functions", "glob", "helm", "memory", "message", "number", "quote", "text", "value"],
    ),
    (
        "render",
        &[
            "capabilities",
            "chart",
            "context",
            "environment",
            "format",
            "functions",
            "helm",
            "memory",
            "message",
            "quote",
            "release",
            "seed",
            "semver",
            "template",
            "text",
            "value",
            "values",
            "yaml",
        ],
    ),
    (
        "lint",
        &["capabilities", "chart", "helm", "quote", "release", "render", "seed", "semver", "text", "values", "yaml"],
    ),
    (
        "command",
        &[
            "capabilities",
            "chart",
            "context",
            "glob",
            "helm",
            "lint",
            "quote",
            "release",
            "render",
            "seed",
            "template",
            "value",
            "values",
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
    Sources::check_document("flyball-chart", LAYERS);
}
