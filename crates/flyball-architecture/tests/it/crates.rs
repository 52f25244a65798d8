//! The dependencies between the crates of the workspace, as ARCHITECTURE.md draws them, and the banned ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use flyball_architecture::Sources;
use toml::{Table, Value};

/// The crates, lowest first: each crate and the crates of the workspace that it depends on.
const CRATES: &[(&str, &[&str])] = &[
    ("flyball-core", &[]),
    ("flyball-files", &[]),
    ("flyball-schema", &["flyball-core"]),
    ("flyball-tls", &["flyball-core"]),
    ("flyball-server", &["flyball-core", "flyball-files", "flyball-schema", "flyball-tls"]),
    ("flyball", &["flyball-core", "flyball-tls"]),
    ("flyball-cluster", &["flyball", "flyball-core", "flyball-schema", "flyball-server"]),
    ("flyball-explore", &["flyball", "flyball-cluster", "flyball-core", "flyball-files"]),
    ("flyball-chaos", &["flyball-core", "flyball-files"]),
    ("flyball-console", &["flyball", "flyball-core"]),
    ("flyball-chart", &["flyball-core"]),
    ("flyball-helm", &["flyball", "flyball-chart", "flyball-core"]),
    ("flyball-ansible", &["flyball", "flyball-core", "flyball-files", "flyball-tls"]),
    ("flyball-lifecycle", &["flyball", "flyball-chart", "flyball-core", "flyball-schema", "flyball-tls"]),
    ("flyball-metering", &["flyball", "flyball-core", "flyball-files"]),
    (
        "flyball-cli",
        &[
            "demovolume",
            "flyball",
            "flyball-ansible",
            "flyball-chaos",
            "flyball-chart",
            "flyball-cluster",
            "flyball-console",
            "flyball-core",
            "flyball-explore",
            "flyball-files",
            "flyball-helm",
            "flyball-lifecycle",
            "flyball-metering",
            "flyball-schema",
            "flyball-server",
            "visitors",
            "vmgroup",
        ],
    ),
    ("flyball-architecture", &[]),
];

/// The crates of the workspace that a sample operator may depend on.
const OPERATOR_DEPENDENCIES: &[&str] = &["flyball", "flyball-core"];

const NETWORK: &[&str] = &["http", "hyper", "kube", "tokio"];
const CONTROL_PLANE: &[&str] = &["flyball-cluster", "flyball-server"];

/// Crates that a crate must not depend on, directly or through other crates.
const BANS: &[(&str, &[&[&str]])] = &[
    ("flyball-core", &[NETWORK]),
    ("flyball-files", &[NETWORK]),
    ("flyball-schema", &[NETWORK]),
    ("flyball-tls", &[NETWORK]),
    ("flyball-server", &[&["flyball", "kube"]]),
    ("flyball", &[CONTROL_PLANE]),
    ("flyball-chaos", &[&["flyball"], CONTROL_PLANE]),
    ("flyball-console", &[CONTROL_PLANE]),
    ("flyball-chart", &[NETWORK]),
    ("flyball-helm", &[CONTROL_PLANE]),
    ("flyball-ansible", &[CONTROL_PLANE]),
    ("flyball-lifecycle", &[CONTROL_PLANE]),
    ("flyball-metering", &[CONTROL_PLANE]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap();
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The crates of a directory of the workspace: their names, and the names of all crates that they depend on.
fn members(folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let folders = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    folders
        .map(|folder| {
            let manifest = read(&folder.join("Cargo.toml"));
            (manifest["package"]["name"].as_str().unwrap().to_owned(), dependencies(&manifest))
        })
        .collect()
}

/// Returns the dependencies of a manifest for all targets, without those of tests.
fn dependencies(manifest: &Table) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let sections = targets.filter_map(|(_, target)| target.as_table()).chain([manifest]);
    let tables = sections.flat_map(|section| ["dependencies", "build-dependencies"].map(|name| section.get(name)));
    let entries = tables.flatten().filter_map(Value::as_table).flatten();
    entries.map(|(name, entry)| entry.get("package").and_then(Value::as_str).unwrap_or(name).to_owned()).collect()
}

/// Compares the dependencies of crates with the table.
fn table_errors(crates: &BTreeMap<String, BTreeSet<String>>, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut errors = Vec::new();
    for (name, dependencies) in crates {
        match table.iter().find(|(row, _)| row == name) {
            Some((_, allowed)) => {
                let allowed: BTreeSet<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
                let surplus = dependencies.difference(&allowed);
                errors.extend(surplus.map(|other| format!("{name} depends on {other}: not in the table of crates")));
                let missing = allowed.difference(dependencies);
                errors.extend(missing.map(|other| format!("{name} does not depend on {other}, as in the table")));
            }
            None => errors.push(format!("the table has no row for the crate {name}")),
        }
    }
    let gone = table.iter().filter(|(name, _)| !crates.contains_key(*name));
    errors.extend(gone.map(|(name, _)| format!("there is no crate {name}")));
    for (at, (name, dependencies)) in table.iter().enumerate() {
        let is_below = |other: &&&str| !table[at..].iter().any(|(row, _)| row == *other);
        let upward = dependencies.iter().filter(|other| !is_below(other));
        errors.extend(upward.map(|other| format!("the row {name} of the table names {other}, which is not above it")));
    }
    errors
}

/// The direct dependencies of all packages in `Cargo.lock`.
fn locked() -> BTreeMap<String, BTreeSet<String>> {
    let lock = read(&root().join("Cargo.lock"));
    let mut packages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        let dependencies = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        // An entry is a name, with a version if there are several.
        let names = dependencies.map(|entry| entry.as_str().unwrap().split(' ').next().unwrap().to_owned());
        packages.entry(package["name"].as_str().unwrap().to_owned()).or_default().extend(names);
    }
    packages
}

/// Returns an error for each banned crate that a crate depends on, with the path to it.
fn ban_errors(graph: &BTreeMap<String, BTreeSet<String>>, name: &str, bans: &[&[&str]]) -> Vec<String> {
    let mut parents: BTreeMap<&str, &str> = BTreeMap::new();
    let mut rest = vec![name];
    while let Some(next) = rest.pop() {
        for other in graph.get(next).into_iter().flatten() {
            if other != name && !parents.contains_key(&**other) {
                parents.insert(other, next);
                rest.push(other);
            }
        }
    }
    let found = bans.iter().copied().flatten().filter(|banned| parents.contains_key(**banned));
    let path = |banned: &str| {
        let mut path = vec![banned.to_owned()];
        while let Some(parent) = path.last().and_then(|last| parents.get(&**last)) {
            path.push((*parent).to_owned());
        }
        path.reverse();
        path.join(" → ")
    };
    found.map(|banned| format!("{name} must not depend on {banned}: {}", path(banned))).collect()
}

fn graph(entries: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    entries.iter().map(|(name, others)| ((*name).to_owned(), names(others))).collect()
}

#[test]
fn crates_form_layers() {
    let (mut crates, operators) = (members("crates"), members("operators"));
    assert!(crates.len() > 10 && operators.len() > 5, "{crates:?} {operators:?}");
    let own: BTreeSet<String> = crates.keys().chain(operators.keys()).cloned().collect();
    crates.values_mut().for_each(|dependencies| dependencies.retain(|name| own.contains(name)));
    let mut errors = table_errors(&crates, CRATES);
    for (operator, dependencies) in operators {
        let others = dependencies.iter().filter(|name| own.contains(*name));
        let surplus = others.filter(|name| !OPERATOR_DEPENDENCIES.contains(&&***name));
        errors.extend(surplus.map(|name| format!("the operator {operator} depends on {name}")));
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn layers_of_crates_match_the_document() {
    Sources::check_document("Crates", CRATES);
}

#[test]
fn crates_have_no_banned_dependencies() {
    let mut graph = locked();
    // The entries of the workspace in `Cargo.lock` contain dependencies of tests.
    graph.extend(members("crates").into_iter().chain(members("operators")));
    let errors: Vec<String> = BANS.iter().flat_map(|(name, bans)| ban_errors(&graph, name, bans)).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    // The names in the table exist.
    let known = BANS.iter().flat_map(|(name, bans)| bans.iter().copied().flatten().chain([name]));
    assert_eq!(known.filter(|name| !graph.contains_key(**name)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn deviations_from_the_table_of_crates_are_reported() {
    let table: &[(&str, &[&str])] = &[("a", &["c"]), ("b", &["a"]), ("c", &[]), ("d", &[])];
    assert_eq!(
        table_errors(&graph(&[("a", &["c"]), ("b", &["c"]), ("c", &[]), ("e", &[])]), table),
        [
            "b depends on c: not in the table of crates",
            "b does not depend on a, as in the table",
            "the table has no row for the crate e",
            "there is no crate d",
            "the row a of the table names c, which is not above it",
        ]
    );
    let graph = graph(&[("a", &["b", "x"]), ("b", &["c"]), ("c", &["tokio", "a"]), ("tokio", &[]), ("x", &[])]);
    assert_eq!(ban_errors(&graph, "a", &[NETWORK]), ["a must not depend on tokio: a → b → c → tokio"]);
    assert_eq!(ban_errors(&graph, "x", &[NETWORK]), Vec::<String>::new());
}

#[test]
fn dependencies_of_a_manifest_are_found_in_all_sections() {
    let manifest = "[dependencies]\na.workspace = true\nb = { package = \"c\", version = \"1\" }\n\
                    [build-dependencies]\nd = \"1\"\n[dev-dependencies]\ne = \"1\"\n\
                    [target.'cfg(unix)'.dependencies]\nf = \"1\"";
    let names: Vec<String> = dependencies(&manifest.parse().unwrap()).into_iter().collect();
    assert_eq!(names, ["a", "c", "d", "f"]);
}
