//! Reads files of variables.

use super::texts::check_all;
use crate::error::{Error, Result};
use crate::template::{Vars, is_template, normal, templates};
use crate::value::{Map, Value};
use crate::vault::Vault;
use crate::yaml::{self, to_text, type_name};
use std::path::Path;
use std::sync::Arc;

/// Reads a file.
pub(super) fn read_vars(file: &Path, vault: &Vault) -> Result<Arc<Vars>> {
    let vars = match yaml::read_document(file, vault)? {
        Value::Null => Map::new(),
        Value::Object(vars) => vars,
        other => {
            return Err(Error::file(file, format_args!("must be a map of variables, not {}", type_name(&other))));
        }
    };
    for (name, value) in &vars {
        check_all(value).map_err(|problem| Error::file(file, format_args!("{name}: {problem}")))?;
    }
    Ok(Arc::new(templates(&vars)))
}

/// Reads the `vars_files` of a play. An entry is a name, or a list of which the first existing one counts.
pub(super) fn of_play(entries: Option<Value>, folder: &Path, play: &Path, vault: &Vault) -> Result<Vec<Arc<Vars>>> {
    let reject = |problem: String| Error::file(play, format_args!("play: vars_files: {problem}"));
    let as_list = |value| if let Value::Array(items) = value { items } else { vec![value] };
    let mut found = Vec::new();
    for entry in as_list(entries.unwrap_or_else(|| Value::Array(Vec::new()))) {
        let names = as_list(entry);
        let mut files = Vec::new();
        for name in &names {
            match name.as_str() {
                Some(name) if !is_template(name) => files.push(normal(&folder.join(name))),
                _ => return Err(reject(format!("the built-in executor supports only literal names, not {name}"))),
            }
        }
        let file = files.iter().find(|file| file.is_file());
        let file = file.ok_or_else(|| reject(format!("no file {}", to_text(&Value::Array(names)))))?;
        found.push(read_vars(file, vault)?);
    }
    Ok(found)
}
