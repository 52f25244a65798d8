//! The templates and files of a role, for lookups.

use crate::error::{Error, Result};
use crate::vault::Vault;
use crate::yaml;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Limits of files of one kind in a role, and of the nesting depth of its folders.
const MAX_FILES: usize = 2000;
const MAX_DEPTH: usize = 16;

/// Files in the folders `templates` and `files` of a role, or beside a playbook: read once at load time, so that
/// lookups cannot access other files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Texts by their paths within the folder, with their full paths.
    pub(crate) templates: BTreeMap<String, (PathBuf, Arc<str>)>,
    pub(crate) files: BTreeMap<String, (PathBuf, Arc<str>)>,
}

impl Files {
    pub(crate) fn read(folder: &Path, vault: &Vault) -> Result<Self> {
        let texts = |part: &str| texts(&folder.join(part), vault);
        Ok(Self { templates: texts("templates")?, files: texts("files")? })
    }
}

/// Reads all texts below a folder; other files are skipped.
fn texts(folder: &Path, vault: &Vault) -> Result<BTreeMap<String, (PathBuf, Arc<str>)>> {
    let mut texts = BTreeMap::new();
    for path in walk(folder)? {
        let name = path.strip_prefix(folder).expect("it is below").to_string_lossy().into_owned();
        match yaml::text(&path, vault) {
            Ok(text) => drop(texts.insert(name, (path, text.into()))),
            Err(Error::Read { reason: std::io::ErrorKind::InvalidData, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(texts)
}

/// Returns all files below a folder, sorted; none if the folder does not exist.
pub(crate) fn walk(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        let entries = fs::read_dir(&folder).map_err(|error| Error::read(&folder, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| Error::read(&folder, &error))?.path();
            match path.is_dir() {
                true if depth < MAX_DEPTH => folders.push((path, depth + 1)),
                true => return Err(Error::file(&path, format_args!("folders are nested deeper than {MAX_DEPTH}"))),
                false => found.push(path),
            }
        }
        if found.len() > MAX_FILES {
            return Err(Error::file(&folder, format_args!("more than {MAX_FILES} files")));
        }
    }
    found.sort();
    Ok(found)
}
