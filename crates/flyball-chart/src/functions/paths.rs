//! Paths with slashes; functions for paths of the operating system also use slashes.

use super::{STR, Table, cost, text};
use crate::value::Value;

pub(super) fn add(table: &mut Table) {
    for name in ["base", "osBase"] {
        table.add(name, cost::letters, &[STR], |_, args| Ok(Value::str(base(&text(&args[0])))));
    }
    for name in ["dir", "osDir"] {
        table.add(name, cost::letters, &[STR], |_, args| {
            let path = text(&args[0]);
            let cut = path.rfind('/').map_or(0, |at| at + 1);
            Ok(Value::str(clean(&path[..cut])))
        });
    }
    for name in ["clean", "osClean"] {
        table.add(name, cost::letters, &[STR], |_, args| Ok(Value::str(clean(&text(&args[0])))));
    }
    for name in ["ext", "osExt"] {
        table.add(name, cost::letters, &[STR], |_, args| {
            let path = text(&args[0]);
            let name = path.rsplit('/').next().unwrap_or("");
            Ok(Value::str(name.rfind('.').map_or("", |at| &name[at..])))
        });
    }
    for name in ["isAbs", "osIsAbs"] {
        table.add(name, cost::letters, &[STR], |_, args| Ok(Value::Bool(text(&args[0]).starts_with('/'))));
    }
}

fn base(path: &str) -> &str {
    if path.is_empty() {
        return ".";
    }
    match path.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed.rsplit('/').next().unwrap_or(trimmed),
    }
}

fn clean(path: &str) -> String {
    let is_rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(last) if *last != ".." => _ = parts.pop(),
                _ if is_rooted => {}
                _ => parts.push(".."),
            },
            part => parts.push(part),
        }
    }
    match (is_rooted, parts.join("/")) {
        (true, rest) => format!("/{rest}"),
        (false, rest) if rest.is_empty() => ".".to_owned(),
        (false, rest) => rest,
    }
}
