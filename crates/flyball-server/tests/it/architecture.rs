//! Layers of the crate: the allowed imports, as in the table of ARCHITECTURE.md.

use flyball_architecture::Sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules from the ground up, each with those that it may import.
#[rustfmt::skip]
const LAYERS: &[(&str, &[&str])] = &[
    ("bounds", &[]),
    ("data_dir", &[]),
    ("limits", &[]),
    ("request", &["limits"]),
    ("connection", &["bounds"]),
    ("pki", &["data_dir"]),
    ("response", &["limits", "request"]),
    ("storage", &["bounds", "data_dir", "limits"]),
    ("kinds", &["request", "response"]),
    ("quota", &["kinds"]),
    ("webhook", &["bounds", "kinds", "limits", "request", "storage"]),
    ("custom", &["kinds", "storage", "webhook"]),
    ("catalog", &["custom", "kinds", "limits", "request", "storage"]),
    ("auth", &["catalog", "kinds", "request", "storage"]),
    ("codec", &["catalog", "custom", "storage", "webhook"]),
    ("table", &["catalog", "custom", "kinds"]),
    ("admission", &["auth", "catalog", "codec", "kinds", "limits", "quota", "request", "response", "storage", "webhook"]),
    ("aggregation", &["auth", "bounds", "kinds", "limits", "response", "storage", "webhook"]),
    ("dial", &["aggregation", "webhook"]),
    ("discovery", &["aggregation", "auth", "catalog", "kinds", "request", "response"]),
    ("openapi", &["catalog", "discovery", "kinds", "response"]),
    ("registry", &["admission", "auth", "catalog", "codec", "custom", "kinds", "limits", "request", "response", "storage", "webhook"]),
    ("definitions", &["admission", "auth", "catalog", "kinds", "registry", "request", "response", "storage"]),
    ("encoder", &["catalog", "codec", "registry", "request", "response", "storage", "table"]),
    ("watch", &["bounds", "catalog", "connection", "encoder", "registry", "request", "response", "storage", "table", "webhook"]),
    ("metrics", &["bounds", "catalog", "kinds", "request", "response", "storage", "watch"]),
    ("server", &["admission", "aggregation", "auth", "bounds", "catalog", "codec", "connection", "custom", "data_dir", "definitions", "dial", "discovery", "encoder", "kinds", "limits", "metrics", "openapi", "registry", "request", "response", "storage", "table", "watch", "webhook"]),
    ("serve", &["auth", "bounds", "connection", "response", "server"]),
];

#[test]
fn modules_form_layers() {
    let sources = Sources::of(env!("CARGO_MANIFEST_DIR"));
    sources.check(LAYERS);
    sources.check_absent(&["storage", "bounds", "connection"], "Status");
    sources.check_absent(&["storage"], "Resource");
    sources.check_absent(&["storage", "bounds", "connection"], "http");
}

#[test]
fn layers_match_the_document() {
    Sources::check_document("Imports in flyball-server", LAYERS);
}

/// Returns the code of a file, without its tests and comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Returns all Rust files in and below a path of `src`: a file, a directory, or both.
fn files(path: &Path) -> Vec<PathBuf> {
    let mut files = Vec::from_iter(Some(path.with_extension("rs")).filter(|file| file.exists()));
    for entry in fs::read_dir(path).into_iter().flatten() {
        files.extend(self::files(&entry.unwrap().path().with_extension("")));
    }
    files.sort();
    files.dedup();
    files
}

/// Returns the string literals that are a single name.
fn names(code: &str) -> impl Iterator<Item = &str> {
    code.split('"').filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// Returns the kind and the plural name that a file of `kinds` declares, if it declares a kind.
fn declared(code: &str) -> Option<[String; 2]> {
    let (_, row) = code.split_once("static KIND: Kind =")?;
    let mut names = names(row).skip(1).map(str::to_owned); // after the version
    Some([names.next()?, names.next()?])
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path)
}

#[test]
fn each_kind_has_one_file_named_after_it() {
    let mut kinds = BTreeMap::new();
    for file in files(&source("kinds")) {
        let Some([kind, _]) = declared(&code(&file)) else { continue };
        let stem = file.file_stem().unwrap().to_str().unwrap().replace('_', "");
        let (group, version) = (file.parent().unwrap().to_owned(), stem.strip_prefix(&*kind.to_lowercase()));
        assert!(matches!(version, Some("" | "v1")), "{}: holds {kind}", file.display());
        assert_eq!(group.parent(), Some(&*source("kinds")), "{kind}: not in the folder of an API group");
        assert!(kinds.insert((group, stem), kind).is_none(), "{}: a second time", file.display());
    }
    assert!(kinds.len() > 60, "{kinds:?}");
}

/// Files that name kinds by strings: kinds of versions that are not served, and a segment of paths.
const EXCEPTIONS: [&str; 2] = ["catalog/scheme.rs", "request/info.rs"];

#[test]
fn kinds_are_named_where_they_are_declared() {
    let kinds: BTreeSet<String> =
        files(&source("kinds")).iter().filter_map(|file| declared(&code(file))).flatten().collect();
    let mut exceptions = BTreeSet::from(EXCEPTIONS.map(source));
    let declares = source("kinds");
    let is_checked = |file: &PathBuf| !file.starts_with(&declares) && !file.ends_with("tests.rs");
    for file in files(&source("")).into_iter().filter(is_checked) {
        let code = code(&file);
        let found: Vec<&str> = names(&code).filter(|name| kinds.contains(*name)).collect();
        let is_allowed = found.is_empty() != exceptions.remove(&file);
        assert!(is_allowed, "{}: names {found:?}, instead of a kind that `kinds` exports", file.display());
    }
    assert!(exceptions.is_empty(), "{exceptions:?}");
}

/// Files of `registry` and `server` that use the value of a kind: the allocator of service addresses, actions on pods,
/// and paths that contain the name of a namespace.
const SPECIAL_CASES: [&str; 3] = ["registry/allocations.rs", "server/actions.rs", "server/objects.rs"];

#[test]
fn registry_and_server_know_no_kinds() {
    let mut kinds = BTreeSet::new();
    for file in files(&source("kinds")).iter().filter(|file| declared(&code(file)).is_some()) {
        kinds.insert(file.file_stem().unwrap().to_str().unwrap().to_uppercase());
    }
    let mut exceptions = BTreeSet::from(SPECIAL_CASES.map(source));
    for file in ["registry", "server"].iter().flat_map(|module| files(&source(module))) {
        let code = code(&file);
        let mut words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let found = words.find(|word| kinds.contains(*word));
        assert!(found.is_none() != exceptions.remove(&file), "{}: uses {found:?}", file.display());
    }
    assert!(exceptions.is_empty(), "{exceptions:?}");
}

/// Maximum number of files in the path of a PATCH request.
const MAX_FILES_OF_A_PATCH: usize = 13;

/// Returns the names and bodies of the functions in a file.
fn functions(code: &str) -> Vec<(&str, &str)> {
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let rest = &code[at + 3..];
        let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or_default()];
        let Some(start) = rest.find("{\n") else { continue };
        // The formatter ends a body with a brace in the column of its function.
        let column = code[..at].rsplit('\n').next().map_or(0, |line| line.len() - line.trim_start().len());
        let end = format!("\n{}}}\n", " ".repeat(column));
        let body = &rest[start..];
        functions.push((name, &body[..body.find(&end).unwrap_or(body.len())]));
    }
    functions
}

/// Returns true if a text calls a function, or names it as a value.
fn calls(text: &str, function: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(function).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + function.len()..]);
        !before.ends_with(is_part)
            && (after.starts_with(['(', ':']) || before.ends_with("::") && !after.starts_with(is_part))
    })
}

/// Returns the functions of a file that are connected with one by calls: in one direction those that it calls, in the
/// other one those that call it.
fn connected<'c>(functions: &[(&'c str, &'c str)], name: &str, callers: bool) -> BTreeMap<&'c str, &'c str> {
    let mut found: BTreeMap<&str, &str> = functions.iter().filter(|(other, _)| *other == name).copied().collect();
    loop {
        let is_next = |(other, body): &&(&str, &str)| {
            !found.contains_key(other)
                && found.iter().any(|(name, text)| if callers { calls(body, name) } else { calls(text, other) })
        };
        let next: Vec<(&str, &str)> = functions.iter().filter(is_next).copied().collect();
        if next.is_empty() {
            return found;
        }
        found.extend(next);
    }
}

#[test]
fn patch_steps_match_the_document() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
    let document = fs::read_to_string(document).unwrap();
    let section = document.lines().skip_while(|line| *line != "### Path of a PATCH request").skip(1);
    let section: Vec<&str> = section.take_while(|line| !line.starts_with('#')).collect();
    let mut steps = BTreeSet::new();
    let mut bodies = String::new();
    for row in section.iter().filter(|line| line.starts_with("| `")) {
        let [_, file, _, function, ..] = row.split('`').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let code = fs::read_to_string(source(file)).unwrap();
        let functions = functions(code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default());
        let entries = connected(&functions, function, true);
        assert!(entries.contains_key(function), "{file}: has no function {function}");
        let is_called = entries.keys().any(|entry| calls(&bodies, entry));
        assert!(is_called || steps.is_empty(), "{file}: no function of a row above calls {function}");
        entries.keys().for_each(|entry| bodies.extend(connected(&functions, entry, false).values().copied()));
        assert!(steps.insert(file), "{file}: has two rows");
    }
    assert!((1..=MAX_FILES_OF_A_PATCH).contains(&steps.len()), "{} files", steps.len());
    // The other files of the section.
    let text = section.iter().filter(|line| !line.starts_with('|')).map(|line| format!("{line} ")).collect::<String>();
    for file in text.split('`').filter(|name| name.ends_with(".rs")) {
        assert!(source(file).is_file(), "there is no file {file}");
        assert!(!steps.contains(file), "{file}: is a step as well");
    }
}
