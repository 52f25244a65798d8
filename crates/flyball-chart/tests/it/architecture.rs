use flyball_architecture::Sources;

/// The layers, lowest first: each module and its allowed imports.
const LAYERS: &[(&str, &[&str])] = &[
    ("glob", &[]),
    ("helm", &[]),
    ("memory", &[]),
    ("quote", &[]),
    ("seed", &[]),
    ("dates", &["quote"]),
    ("number", &["quote"]),
    ("release", &["quote"]),
    ("semver", &["helm", "quote"]),
    ("text", &["memory"]),
    ("value", &["dates", "helm", "memory", "semver", "text"]),
    ("yaml", &["memory", "number", "quote"]),
    ("capabilities", &["helm", "quote", "value"]),
    ("format", &["number", "quote", "text", "value"]),
    ("values", &["helm", "quote", "yaml"]),
    ("world", &["helm", "memory", "seed", "text", "value"]),
    (
        "functions",
        &["dates", "format", "helm", "memory", "number", "quote", "semver", "text", "value", "world", "yaml"],
    ),
    ("chart", &["functions", "glob", "helm", "quote", "semver", "text", "value", "values", "yaml"]),
    ("template", &["format", "functions", "glob", "helm", "memory", "number", "quote", "text", "value", "world"]),
    (
        "render",
        &[
            "capabilities",
            "chart",
            "format",
            "functions",
            "helm",
            "memory",
            "quote",
            "release",
            "seed",
            "semver",
            "template",
            "text",
            "value",
            "values",
            "world",
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
            "world",
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
