//! The templates and files of a role, for lookups.

use super::check::literal_files;
use super::includes::{Includes, included_in};
use crate::error::{Error, Result};
use crate::vault::Vault;
use crate::yaml;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Limits of files of one kind in a role, and of the nesting depth of its directories.
const MAX_FILES: usize = 2000;
const MAX_DEPTH: usize = 16;

/// Files in the directories `templates` and `files` of a role, or beside a playbook: read once at load time, so that
/// lookups cannot access other files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Texts by their paths within the directory, with their full paths.
    pub(crate) templates: BTreeMap<String, (PathBuf, Arc<str>)>,
    pub(crate) files: BTreeMap<String, (PathBuf, Arc<str>)>,
    /// Files that cannot be decrypted, by their paths within the directory, and the problem.
    pub(super) locked: BTreeMap<String, String>,
    /// The engines for templates that include others.
    pub(super) includes: Option<Includes>,
}

impl Files {
    pub(crate) fn read(folder: &Path, vault: &Vault) -> Result<Self> {
        let mut locked = BTreeMap::new();
        let templates = texts(&folder.join("templates"), vault, &mut locked)?;
        let files = texts(&folder.join("files"), vault, &mut locked)?;
        Ok(Self { templates, files, locked, includes: None })
    }

    /// Adds files of other roles of the project that texts name literally, such as `../common/templates/labels.j2`.
    pub(crate) fn link<'t>(
        &mut self,
        folder: &Path,
        project: &Path,
        vault: &Vault,
        texts: impl Iterator<Item = &'t str>,
    ) -> Result<()> {
        let own = self.templates.values().flat_map(|(_, text)| literal_files(text));
        let mut names: Vec<(bool, String)> = texts.flat_map(literal_files).chain(own).collect();
        while let Some((is_template, name)) = names.pop() {
            let (part, known) = match is_template {
                true => ("templates", &mut self.templates),
                false => ("files", &mut self.files),
            };
            if !name.contains("..") || known.contains_key(&name) {
                continue;
            }
            let places = [folder.join(part).join(&name), folder.join(&name)].map(|place| normal(&place));
            let Some(path) = places.into_iter().find(|place| is_within(place, project) && place.is_file()) else {
                continue;
            };
            let text = yaml::read_text(&path, vault)?;
            if is_template {
                names.extend(literal_files(&text));
            }
            known.insert(name, (path, text.into()));
            if known.len() > MAX_FILES {
                return Err(Error::file(folder, format_args!("more than {MAX_FILES} files")));
            }
        }
        Ok(())
    }

    /// Creates the engines for templates that include others.
    ///
    /// # Errors
    /// If a template includes one that does not exist, or by a computed name.
    pub(crate) fn with_includes(mut self) -> Result<Self> {
        self.includes = Includes::of(&self.templates)?;
        Ok(self)
    }

    /// Rejects a template that includes one that does not exist, or by a computed name.
    pub(crate) fn check_includes(&self, name: &str, text: &str) -> Result<(), String> {
        included_in(&self.templates, name, text).map(drop)
    }

    /// Returns the reason why a file is not available.
    pub(crate) fn absence(&self, name: &str) -> String {
        match self.locked.get(name) {
            Some(problem) => format!("{name}: {problem}"),
            None => format!("{name} not found"),
        }
    }

    pub(crate) fn template(&self, name: &str) -> Option<&(PathBuf, Arc<str>)> {
        find(&self.templates, "templates", name)
    }

    pub(crate) fn file(&self, name: &str) -> Option<&(PathBuf, Arc<str>)> {
        find(&self.files, "files", name)
    }
}

/// Finds a text by its path within a directory, or within the directory around it.
fn find<'f>(
    texts: &'f BTreeMap<String, (PathBuf, Arc<str>)>,
    part: &str,
    name: &str,
) -> Option<&'f (PathBuf, Arc<str>)> {
    texts.get(name).or_else(|| {
        let path = normal(Path::new(name));
        texts.get(path.strip_prefix(part).unwrap_or(&path).to_str()?)
    })
}

/// Resolves `.` and `..` without file system access.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => drop(normal.pop()),
            other => normal.push(other),
        }
    }
    normal
}

/// Returns true if a normal path is below a directory.
fn is_within(path: &Path, folder: &Path) -> bool {
    let inside = path.strip_prefix(normal(folder));
    path.is_absolute() == folder.is_absolute()
        && inside.is_ok_and(|inside| !inside.components().any(|part| part == Component::ParentDir))
}

/// Reads all texts below a directory; other files, and those that cannot be decrypted, are skipped.
fn texts(
    folder: &Path,
    vault: &Vault,
    locked: &mut BTreeMap<String, String>,
) -> Result<BTreeMap<String, (PathBuf, Arc<str>)>> {
    let mut texts = BTreeMap::new();
    for path in walk(folder)? {
        let name = path.strip_prefix(folder).expect("it is below").to_string_lossy().into_owned();
        match yaml::read_text(&path, vault) {
            Ok(text) => drop(texts.insert(name, (path, text.into()))),
            Err(Error::Vault { problem, .. }) => drop(locked.insert(name, problem)),
            Err(Error::Read { reason: std::io::ErrorKind::InvalidData, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(texts)
}

/// Returns all files below a directory, sorted; none if the directory does not exist.
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
                true => return Err(Error::file(&path, format_args!("directories are nested deeper than {MAX_DEPTH}"))),
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
