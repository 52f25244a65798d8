//! The layers of the crate: the table of ARCHITECTURE.md, with the arrows that are allowed.

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
    ("quota", &[]),
    ("request", &["limits"]),
    ("link", &["bounds"]),
    ("pki", &["data_dir"]),
    ("response", &["limits", "request"]),
    ("storage", &["bounds", "data_dir", "limits"]),
    ("kinds", &["request", "response"]),
    ("webhook", &["kinds", "request", "storage"]),
    ("custom", &["kinds", "storage", "webhook"]),
    ("dial", &["webhook"]),
    ("catalog", &["custom", "kinds", "limits", "request", "storage"]),
    ("auth", &["catalog", "kinds", "request", "storage"]),
    ("codec", &["catalog", "custom", "storage", "webhook"]),
    ("table", &["catalog", "custom", "kinds"]),
    ("admission", &["auth", "catalog", "codec", "kinds", "limits", "quota", "request", "response", "storage", "webhook"]),
    ("discovery", &["auth", "catalog", "kinds", "request", "response"]),
    ("openapi", &["catalog", "discovery", "kinds", "response"]),
    ("registry", &["admission", "auth", "catalog", "codec", "custom", "kinds", "request", "response", "storage", "webhook"]),
    ("definitions", &["admission", "auth", "catalog", "kinds", "registry", "request", "response", "storage"]),
    ("encoder", &["catalog", "codec", "registry", "request", "response", "storage", "table"]),
    ("watch", &["encoder", "link", "registry", "request", "response", "storage", "table"]),
    ("metrics", &["bounds", "catalog", "kinds", "request", "response", "storage", "watch"]),
    ("server", &["admission", "auth", "bounds", "catalog", "codec", "custom", "data_dir", "definitions", "dial", "discovery", "encoder", "kinds", "limits", "link", "metrics", "openapi", "registry", "request", "response", "storage", "table", "watch", "webhook"]),
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

#[test]
fn layers_are_those_of_the_document() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
    Sources::check_document(document, "Imports in flyball-server", LAYERS);
}

/// The text of the code of a file, without its tests and comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// All Rust files in and below a path of `src`, be it a file, a folder, or both.
fn files(path: &Path) -> Vec<PathBuf> {
    let mut files = Vec::from_iter(Some(path.with_extension("rs")).filter(|file| file.exists()));
    for entry in fs::read_dir(path).into_iter().flatten() {
        files.extend(self::files(&entry.unwrap().path().with_extension("")));
    }
    files.sort();
    files.dedup();
    files
}

/// The literals of a code that hold nothing but a name.
fn names(code: &str) -> impl Iterator<Item = &str> {
    code.split('"').filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// The kind and the plural name that a file of `kinds` declares, if it declares a kind.
fn declared(code: &str) -> Option<[String; 2]> {
    let (_, row) = code.split_once("static KIND: Kind =")?;
    let mut names = names(row).skip(1).map(str::to_owned); // after the version
    Some([names.next()?, names.next()?])
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path)
}

#[test]
fn a_kind_has_one_file_named_after_it() {
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

/// Files that name kinds by strings: kinds of versions that are not served, names by which quotas count, and a segment of
/// paths.
const EXCEPTIONS: [&str; 3] = ["catalog/scheme.rs", "quota.rs", "request/info.rs"];

#[test]
fn kinds_are_named_where_they_are_declared() {
    let kinds: BTreeSet<String> =
        files(&source("kinds")).iter().filter_map(|file| declared(&code(file))).flatten().collect();
    let mut exceptions = BTreeSet::from(EXCEPTIONS.map(source));
    let declares = source("kinds");
    for file in files(&source("")).into_iter().filter(|file| !file.starts_with(&declares)) {
        let code = code(&file);
        let found: Vec<&str> = names(&code).filter(|name| kinds.contains(*name)).collect();
        let is_allowed = found.is_empty() != exceptions.remove(&file);
        assert!(is_allowed, "{}: names {found:?}, instead of a kind that `kinds` exports", file.display());
    }
    assert!(exceptions.is_empty(), "{exceptions:?}");
}
