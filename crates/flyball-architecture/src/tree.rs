//! The modules of a crate, and the targets of their paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The segments of a module's path, without `crate`. The root is empty.
pub(crate) type ModulePath = Vec<String>;

/// A file and a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) file: String,
    pub(crate) line: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

/// The names of a module, and the paths in its code.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: BTreeMap<String, Vec<Vec<String>>>,
    pub(crate) globs: Vec<Vec<String>>,
    pub(crate) paths: Vec<(Vec<String>, Location)>,
    pub(crate) identifiers: Vec<(String, Location)>,
}

/// The modules of one crate outside `cfg(test)`, by path.
#[derive(Debug, Default)]
pub(crate) struct Modules(BTreeMap<ModulePath, Module>);

/// Maximum number of re-exports followed from one name, because imports may be cyclic.
const MAX_REEXPORTS: usize = 16;

impl Modules {
    /// Returns the module of this path. Two files under different `cfg`s form one module.
    pub(crate) fn entry(&mut self, path: &[String]) -> &mut Module {
        self.0.entry(path.to_vec()).or_default()
    }

    pub(crate) fn contains(&self, path: &ModulePath) -> bool {
        self.0.contains_key(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ModulePath, &Module)> {
        self.0.iter()
    }

    pub(crate) fn top_level(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter(|path| path.len() == 1).map(|path| &*path[0])
    }

    /// Returns the first module outside `from` and its ancestors that a path written in `from` passes through;
    /// otherwise the module of the item. `None` if the path leaves the crate.
    pub(crate) fn target(&self, from: &[String], path: &[String]) -> Option<ModulePath> {
        self.start(Some(from), from, path, MAX_REEXPORTS)
    }

    /// Follows a path written in `scope`, up to the first module outside `from`.
    fn start(&self, from: Option<&[String]>, scope: &[String], path: &[String], budget: usize) -> Option<ModulePath> {
        match &*path[0] {
            "crate" => self.walk(from, &[], &path[1..], budget),
            "self" | "super" => self.walk(from, scope, path, budget),
            name if self.has(scope, name, budget) => self.walk(from, scope, path, budget),
            _ => None,
        }
    }

    /// Follows the segments of a path from the module `at`.
    fn walk(&self, from: Option<&[String]>, at: &[String], path: &[String], budget: usize) -> Option<ModulePath> {
        let Some((name, rest)) = path.split_first() else { return Some(at.to_vec()) };
        if from.is_some_and(|from| !from.starts_with(at)) {
            return Some(at.to_vec());
        }
        let child = child(at, name);
        let module = self.0.get(at)?;
        match &**name {
            "self" => return self.walk(from, at, rest, budget),
            "super" => return self.walk(from, at.split_last()?.1, rest, budget),
            _ if self.contains(&child) => return self.walk(from, &child, rest, budget),
            name if module.items.contains(name) => return Some(at.to_vec()),
            _ => {}
        }
        let budget = budget.checked_sub(1)?;
        let imports = module.imports.get(name).into_iter().flatten().map(|import| [import, rest].concat());
        let globs = self.globs(at, name, budget).map(|glob| [glob, path].concat());
        imports.chain(globs).find_map(|path| self.start(from, at, &path, budget)).or_else(|| Some(at.to_vec()))
    }

    /// Returns true if a name is in scope in a module.
    fn has(&self, at: &[String], name: &str, budget: usize) -> bool {
        let Some(budget) = budget.checked_sub(1) else { return false };
        let Some(module) = self.0.get(at) else { return false };
        self.contains(&child(at, name))
            || module.items.contains(name)
            || module.imports.contains_key(name)
            || self.globs(at, name, budget).next().is_some()
    }

    /// The glob imports of a module that bring a name into scope.
    fn globs(&self, at: &[String], name: &str, budget: usize) -> impl Iterator<Item = &Vec<String>> {
        self.0[at].globs.iter().filter(move |glob| {
            let target = self.start(None, at, glob, budget.saturating_sub(1));
            target.is_some_and(|target| target != at && self.has(&target, name, budget))
        })
    }
}

fn child(at: &[String], name: &str) -> ModulePath {
    [at, &[name.to_owned()]].concat()
}

/// Formats a path as `queue::barrier`.
pub(crate) fn display(path: &[String]) -> String {
    if path.is_empty() { "crate".to_owned() } else { path.join("::") }
}
