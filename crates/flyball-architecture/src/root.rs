//! Items in the root of a crate, which connect its modules without an arrow.

use std::collections::BTreeSet;

use crate::scan::Scan;
use crate::tree::display;

/// Returns an error for each item in the root of a library with modules, and for each use of one in a program.
pub(crate) fn errors(scan: &Scan) -> Vec<String> {
    if scan.modules.top_level().next().is_none() {
        return Vec::new();
    }
    if !scan.is_program {
        let text = |name: &Option<String>| match name {
            Some(name) => format!("declares `{name}`"),
            None => "has an `impl`".to_owned(),
        };
        let items = scan.root_items.iter();
        return items.map(|(name, at)| format!("{at}: the root of a crate with modules {}", text(name))).collect();
    }
    let items: BTreeSet<&str> = scan.root_items.iter().filter_map(|(name, _)| name.as_deref()).collect();
    let modules = scan.modules.iter().filter(|(from, _)| !from.is_empty());
    let paths = modules.flat_map(|(from, module)| module.paths.iter().map(move |(path, at)| (from, path, at)));
    let uses_root = |from: &[String], path: &[String]| {
        path.iter().any(|name| items.contains(&**name))
            && scan.modules.target(from, path).is_some_and(|target| target.is_empty())
    };
    paths
        .filter(|(from, path, _)| uses_root(from, path))
        .map(|(from, path, at)| format!("{at}: {} uses `{}` of the root", display(from), path.join("::")))
        .collect()
}
