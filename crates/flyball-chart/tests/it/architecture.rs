use flyball_architecture::Sources;

/// The layers from the ground up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("glob", &[]),
    ("memory", &[]),
    ("quote", &[]),
    ("seed", &[]),
    ("dates", &["quote"]),
    ("number", &["quote"]),
    ("release", &["quote"]),
    ("semver", &["quote"]),
    ("text", &["memory"]),
    ("value", &["dates", "memory", "semver", "text"]),
    ("yaml", &["memory", "number"]),
    ("capabilities", &["quote", "value"]),
    ("format", &["number", "quote", "text", "value"]),
    ("values", &["quote", "yaml"]),
    ("world", &["memory", "seed", "text", "value"]),
    ("functions", &["dates", "format", "memory", "number", "quote", "semver", "text", "value", "world", "yaml"]),
    ("chart", &["functions", "glob", "quote", "semver", "value", "values", "yaml"]),
    ("template", &["format", "functions", "glob", "number", "quote", "text", "value", "world"]),
    (
        "render",
        &[
            "capabilities",
            "chart",
            "format",
            "functions",
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
        "command",
        &[
            "capabilities",
            "chart",
            "glob",
            "quote",
            "release",
            "render",
            "seed",
            "template",
            "value",
            "values",
            "world",
        ],
    ),
];

#[test]
fn modules_form_layers() {
    let sources = Sources::of(env!("CARGO_MANIFEST_DIR"));
    sources.check_layers(LAYERS);
    sources.check_cycles();
    sources.check_reachable();
    sources.check_words(&[]);
    sources.check_width();
}

#[test]
fn layers_are_those_of_the_document() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
    Sources::check_document(document, "flyball-chart", LAYERS);
}
