//! A directory of generated files, in which users may have files of their own.
//!
//! Generated files begin with a header line. Files without it belong to the user, and are never changed; files with it
//! that are no longer generated are removed.

use super::entries;
use crate::error::{Result, ResultExt};
use crate::render::diff;
use flyball_files::Replace;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Change of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Step {
    Written,
    Unchanged,
    Removed,
    /// The file belongs to the user.
    Kept,
}

/// One file and its change.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) path: PathBuf,
    pub(crate) step: Step,
    old: String,
    new: String,
}

impl Change {
    /// Returns the change of the file as a unified diff.
    pub(crate) fn diff(&self) -> String {
        diff::unified(&self.path.display().to_string(), &self.old, &self.new)
    }

    pub(crate) fn is_change(&self) -> bool {
        matches!(self.step, Step::Written | Step::Removed)
    }
}

/// Computes the changes of a directory to contain these files, each of which begins with the header.
pub(crate) fn compare(folder: &Path, files: &BTreeMap<String, String>, header: &str) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (name, new) in files {
        let path = folder.join(name);
        let old = read(&path)?;
        let step = match &old {
            Some(old) if old == new => Step::Unchanged,
            Some(old) if !old.starts_with(header) => Step::Kept,
            _ => Step::Written,
        };
        changes.push(Change { path, step, old: old.unwrap_or_default(), new: new.clone() });
    }
    let folders: BTreeSet<PathBuf> = subdirectories(folder)?;
    for path in folders.iter().map(|folder| list(folder)).collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        let is_generated =
            path.strip_prefix(folder).ok().and_then(Path::to_str).is_some_and(|name| files.contains_key(name));
        if !is_generated
            && path.extension().is_some_and(|end| end == "yaml")
            && let Some(old) = read(&path)?.filter(|old| old.starts_with(header))
        {
            changes.push(Change { path, step: Step::Removed, old, new: String::new() });
        }
    }
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changes)
}

/// Carries out changes.
pub(crate) fn write_changes(changes: &[Change]) -> Result<()> {
    for Change { path, step, new, .. } in changes {
        let what = || format!("cannot write {}", path.display());
        match step {
            Step::Written => {
                let folder = path.parent().unwrap_or(Path::new("."));
                fs::create_dir_all(folder)
                    .context(what())
                    .map_err(|error| error.hint(format!("{} must exist and be writable", folder.display())))?;
                Replace::default().write(path, new).context(what())?;
            }
            Step::Removed => fs::remove_file(path).context(format!("cannot remove {}", path.display()))?,
            Step::Unchanged | Step::Kept => {}
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        // Generated text is always UTF-8, so other files belong to the user.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context(format!("cannot read {}", path.display())),
    }
}

/// Lists the files of a directory, in the order of their names; none if there is no such directory.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.is_file()).collect())
}

fn subdirectories(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.is_dir()).collect())
}
