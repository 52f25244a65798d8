//! Dependencies between sibling modules, and their cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::tree::{Location, Modules, display};

/// A path in the module `from` (or a descendant) to the module `to` (or a descendant); both are children of `parent`.
#[derive(Debug)]
pub(crate) struct Arrow {
    pub(crate) parent: Vec<String>,
    pub(crate) from: String,
    pub(crate) to: String,
    path: String,
    at: Location,
}

impl fmt::Display for Arrow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, path, at, .. } = self;
        write!(out, "{at}: {from} → {to} (`{path}`)")
    }
}

/// Returns the arrows of a crate, in the order of modules and lines.
pub(crate) fn arrows(modules: &Modules) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for (from, module) in modules.iter() {
        for (path, at) in &module.paths {
            let Some(to) = modules.target(from, path) else { continue };
            let shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
            if let (Some(child), Some(other)) = (from.get(shared), to.get(shared)) {
                arrows.push(Arrow {
                    parent: from[..shared].to_vec(),
                    from: child.clone(),
                    to: other.clone(),
                    path: path.join("::"),
                    at: at.clone(),
                });
            }
        }
    }
    arrows
}

/// Describes each group of modules that import each other, with the arrows between them.
pub(crate) fn cycles(arrows: &[Arrow]) -> Vec<String> {
    let mut parents: BTreeMap<&[String], Vec<&Arrow>> = BTreeMap::new();
    for arrow in arrows {
        parents.entry(&arrow.parent).or_default().push(arrow);
    }
    let mut errors = Vec::new();
    for (parent, arrows) in parents {
        let reachable = reachable(&arrows);
        let mut grouped = BTreeSet::new();
        for (module, below) in &reachable {
            let group: BTreeSet<&str> =
                below.iter().copied().filter(|other| reachable[other].contains(module)).collect();
            if group.is_empty() || !grouped.insert(group.clone()) {
                continue;
            }
            let names: Vec<&str> = group.iter().copied().collect();
            let mut error = format!("cycle in {}: {}", display(parent), names.join(", "));
            let mut counts: BTreeMap<(&str, &str), (usize, &Arrow)> = BTreeMap::new();
            for arrow in arrows.iter().filter(|arrow| group.contains(&*arrow.from) && group.contains(&*arrow.to)) {
                counts.entry((&arrow.from, &arrow.to)).or_insert((0, arrow)).0 += 1;
            }
            for (count, arrow) in counts.values() {
                error += &match count {
                    1 => format!("\n  {arrow}"),
                    count => format!("\n  {arrow}, and {} more", count - 1),
                };
            }
            errors.push(error);
        }
    }
    errors
}

/// Returns the modules that each module imports, directly and indirectly.
fn reachable<'a>(arrows: &[&'a Arrow]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut direct: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for arrow in arrows {
        direct.entry(&arrow.from).or_default().insert(&arrow.to);
        direct.entry(&arrow.to).or_default();
    }
    let from = |module: &str| {
        let mut found = BTreeSet::new();
        let mut rest: Vec<&str> = direct[module].iter().copied().collect();
        while let Some(next) = rest.pop() {
            if found.insert(next) {
                rest.extend(&direct[next]);
            }
        }
        found
    };
    direct.keys().map(|module| (*module, from(module))).collect()
}
