//! The source text of a crate, and the checks of its structure.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::arrow::{self, Arrow};
use crate::scan::Scan;
use crate::tree::{ModulePath, display};
use crate::{document, page, root, width};

/// The parsed source text of one crate.
#[derive(Debug)]
pub struct Sources {
    files: BTreeSet<String>,
    scan: Scan,
    arrows: Vec<Arrow>,
    wide_lines: Vec<String>,
}

impl Sources {
    /// Parses `src/**/*.rs` of the crate in this directory: `Sources::of(env!("CARGO_MANIFEST_DIR"))`.
    ///
    /// # Panics
    ///
    /// Panics if a file cannot be read or parsed.
    pub fn of(manifest_dir: impl AsRef<Path>) -> Self {
        let mut files = BTreeMap::new();
        read(manifest_dir.as_ref(), "src", ".rs", &mut files);
        Self::parse(files)
    }

    fn parse(files: BTreeMap<String, String>) -> Self {
        let scan = Scan::new(&files);
        let arrows = arrow::arrows(&scan.modules);
        let wide_lines = files.iter().flat_map(|(file, text)| width::errors(file, text)).collect();
        Self { files: files.into_keys().collect(), scan, arrows, wide_lines }
    }

    /// Fails on arrows between top-level modules that the table does not list, items in the root of the crate, cycles
    /// between the modules of one parent at any depth, files below `src` without a `mod` line, banned words, and lines
    /// with more than 120 columns.
    ///
    /// Each module has a row with its allowed imports. The table must not have a cycle: each row lists only modules of
    /// rows above it. `lib.rs` may contain only modules, imports and macros if it has modules, and no module may use
    /// items of `main.rs`: such items would connect modules without an arrow. Banned words apply to names of types,
    /// functions and constants, and to the first words of doc comments. String literals, rows of tables and URLs in
    /// comments may exceed 120 columns.
    #[track_caller]
    pub fn check(&self, table: &[(&str, &[&str])]) {
        report(&[self.layer_errors(table), root::errors(&self.scan), self.other_errors()].concat());
    }

    /// The same without a table of layers, and with items in the root of the crate.
    #[track_caller]
    pub fn check_without_layers(&self) {
        report(&self.other_errors());
    }

    /// Fails if the section of a Markdown file with this heading differs from the table: it needs a row for each
    /// module, in the same order, with the module in the first column and its allowed imports in the second.
    #[track_caller]
    pub fn check_document(heading: &str, table: &[(&str, &[&str])]) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        report(&document::errors(&text, heading, table));
    }

    /// Fails if an identifier occurs in or below these modules, for example `["storage", "apply::update"]`. `crate`
    /// means all modules.
    #[track_caller]
    pub fn check_absent(&self, modules: &[&str], identifier: &str) {
        report(&self.occurrences(modules, identifier));
    }

    fn other_errors(&self) -> Vec<String> {
        let words = self.scan.words.iter().map(ToString::to_string);
        [arrow::cycles(&self.arrows), self.unreachable_files(), words.collect(), self.wide_lines.clone()].concat()
    }

    fn layer_errors(&self, table: &[(&str, &[&str])]) -> Vec<String> {
        let mut errors = Vec::new();
        let modules: BTreeSet<&str> = self.scan.modules.top_level().collect();
        let mut above = BTreeSet::new();
        for (module, allowed) in table {
            if !modules.contains(module) {
                errors.push(format!("the row {module:?} of the table names no module"));
            }
            for other in allowed.iter().filter(|other| !above.contains(*other)) {
                errors.push(format!("the row {module:?} of the table names {other:?}, which has no row above it"));
            }
            if !above.insert(*module) {
                errors.push(format!("the table has two rows for {module:?}"));
            }
        }
        let allowed: BTreeMap<&str, &[&str]> = table.iter().copied().collect();
        errors.extend(
            modules
                .iter()
                .filter(|module| !allowed.contains_key(*module))
                .map(|module| format!("the table has no row for the module {module:?}")),
        );
        for arrow in self.arrows.iter().filter(|arrow| arrow.parent.is_empty()) {
            if allowed.get(&*arrow.from).is_some_and(|allowed| !allowed.contains(&&*arrow.to)) {
                errors.push(format!("{arrow}: not in the table of layers"));
            }
        }
        errors
    }

    fn unreachable_files(&self) -> Vec<String> {
        let files = self.files.difference(&self.scan.reached);
        files.map(|file| format!("{file}: no `mod` line leads here")).collect()
    }

    fn occurrences(&self, modules: &[&str], identifier: &str) -> Vec<String> {
        let mut errors = Vec::new();
        for name in modules {
            let below: ModulePath = name.split("::").filter(|part| *part != "crate").map(str::to_owned).collect();
            if !self.scan.modules.contains(&below) {
                errors.push(format!("there is no module {name:?}"));
            }
            for (path, module) in self.scan.modules.iter().filter(|(path, _)| path.starts_with(&below)) {
                let found = module.identifiers.iter().filter(|(found, _)| found == identifier);
                errors.extend(found.map(|(_, at)| format!("{at}: {identifier} must not occur in {}", display(path))));
            }
        }
        errors
    }
}

/// Fails on lines with more than 120 columns and on banned phrases in the Markdown pages of a repository: those in its
/// root and below `docs`. Code blocks are exempt; rows of tables and HTML comments may be wide.
///
/// # Panics
///
/// Panics if a page cannot be read.
#[track_caller]
pub fn check_pages(root: impl AsRef<Path>) {
    let root = root.as_ref();
    let mut pages = BTreeMap::new();
    read(root, "docs", ".md", &mut pages);
    for entry in fs::read_dir(root).unwrap_or_else(|error| panic!("{}: {error}", root.display())) {
        let entry = entry.unwrap_or_else(|error| panic!("{}: {error}", root.display()));
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            let text = fs::read_to_string(entry.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
            pages.insert(name, text);
        }
    }
    assert!(pages.contains_key("README.md"), "{} has no README.md", root.display());
    report(&pages.iter().flat_map(|(file, text)| page::errors(file, text)).collect::<Vec<_>>());
}

/// Reads the files of a directory with this suffix.
fn read(root: &Path, folder: &str, suffix: &str, files: &mut BTreeMap<String, String>) {
    let entries = fs::read_dir(root.join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    for entry in entries {
        let entry = entry.unwrap_or_else(|error| panic!("{folder}: {error}"));
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read(root, &path, suffix, files);
        } else if path.ends_with(suffix) {
            let text = fs::read_to_string(entry.path()).unwrap_or_else(|error| panic!("{path}: {error}"));
            files.insert(path, text);
        }
    }
}

#[track_caller]
fn report(errors: &[String]) {
    assert!(errors.is_empty(), "{} findings:\n{}", errors.len(), errors.join("\n"));
}
