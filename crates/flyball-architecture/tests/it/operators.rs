//! The sample operators have the layout of the scaffold of `flyball init` and `flyball create`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The lines above which `flyball create` inserts.
const MARKERS: [&str; 4] =
    ["// +flyball:api", "// +flyball:controllers", "// +flyball:webhooks", "// +flyball:operator"];

/// Kinds without a sample in `config/samples`: the objects that these samples refer to have to exist before.
const OTHER_SAMPLES: [(&str, &str); 1] = [("EtcdRestore", "config/restore/restore.yaml")];

/// A kind in the file `PROJECT`.
#[derive(Default)]
struct Resource {
    group: String,
    version: String,
    kind: String,
    is_foreign: bool,
    has_controller: bool,
    has_webhook: bool,
}

/// Reads the resources of a file `PROJECT`: one field a line, the first one behind a dash.
fn resources(project: &str) -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    for line in project.lines() {
        if line.starts_with("- ") {
            resources.push(Resource::default());
        }
        let field = line.trim_start_matches("- ").trim().split_once(':');
        let (Some(resource), Some((name, value))) = (resources.last_mut(), field) else { continue };
        let value = value.trim();
        match name {
            "group" => resource.group = value.to_owned(),
            "version" => resource.version = value.to_owned(),
            "kind" => resource.kind = value.to_owned(),
            "foreign" => resource.is_foreign = value == "true",
            "controller" => resource.has_controller = value == "true",
            "webhooks" | "defaulting" | "validation" | "conversion" => resource.has_webhook = true,
            _ => {}
        }
    }
    resources
}

/// Returns the names of the entries of a directory, or none if there is no such directory.
fn entries(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns the deviations of an operator from the scaffold.
fn deviations(root: &Path) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let resources = resources(&read("PROJECT"));
    let mut errors = Vec::new();
    if resources.is_empty() {
        errors.push("PROJECT: missing, or without resources".to_owned());
    }
    let mut files: Vec<String> = ["Cargo.toml", "src/main.rs", "src/lib.rs"].map(str::to_owned).into();
    let (mut api, mut controllers, mut webhooks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for Resource { group, version, kind, is_foreign, has_controller, has_webhook } in &resources {
        let name = kind.to_lowercase();
        api.insert(format!("{name}_{version}.rs"));
        controllers.extend(has_controller.then(|| format!("{name}.rs")));
        webhooks.extend(has_webhook.then(|| format!("{name}.rs")));
        let prefix = group.split('.').next().unwrap_or_default();
        match OTHER_SAMPLES.iter().find(|(other, _)| other == kind) {
            Some((_, sample)) => files.push((*sample).to_owned()),
            None if *is_foreign => files.push("config/foreign".to_owned()),
            None => files.push(format!("config/samples/{prefix}_{version}_{name}.yaml")),
        }
    }
    errors.extend(files.iter().filter(|file| !root.join(file).exists()).map(|file| format!("{file}: missing")));
    for (folder, expected) in [("api", api), ("controllers", controllers), ("webhooks", webhooks)] {
        let found = entries(&root.join("src").join(folder));
        errors.extend(expected.difference(&found).map(|file| format!("src/{folder}/{file}: missing")));
        // The parts of a module are in a directory of its name.
        let is_part = |file: &&String| expected.contains(&format!("{file}.rs"));
        let unknown = found.difference(&expected).filter(|file| !is_part(file));
        errors.extend(unknown.map(|file| format!("src/{folder}/{file}: not in PROJECT")));
    }
    let lib = read("src/lib.rs");
    errors.extend(
        MARKERS.iter().filter(|marker| !lib.contains(*marker)).map(|marker| format!("src/lib.rs: no line {marker:?}")),
    );
    if !lib.contains("pub fn operator") {
        errors.push("src/lib.rs: no function `operator`".to_owned());
    }
    errors
}

#[test]
fn sample_operators_have_the_layout_of_the_scaffold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../operators");
    let operators = entries(&folder);
    assert!(operators.contains("redis"), "{} has no operators", folder.display());
    let errors: Vec<String> = operators
        .iter()
        .flat_map(|operator| {
            let errors = deviations(&folder.join(operator));
            errors.into_iter().map(move |error| format!("operators/{operator}/{error}"))
        })
        .collect();
    assert!(errors.is_empty(), "operators that deviate from the scaffold:\n{}", errors.join("\n"));
}

#[test]
fn sample_operators_have_no_cycles_between_modules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../operators");
    for operator in entries(&folder) {
        flyball_architecture::Sources::of(folder.join(operator)).check_without_layers();
    }
}

#[test]
fn deviations_from_the_scaffold_are_reported() {
    let architecture = Path::new(env!("CARGO_MANIFEST_DIR"));
    let errors = deviations(architecture);
    for error in
        ["PROJECT: missing, or without resources", "src/main.rs: missing", "src/lib.rs: no function `operator`"]
    {
        assert!(errors.iter().any(|found| found == error), "{error}: {errors:?}");
    }
}
