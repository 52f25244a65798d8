//! Coverage of a project by the built-in executor: the tasks that it runs, and the features that the others need.
//!
//! The loader decides on each task alone, so that one report has all gaps. All roles and playbooks of a project count,
//! including those that no task and no `watches.yaml` names literally.

mod gaps;
mod report;
mod survey;

pub use report::{Coverage, Gap, GapKind, Line, PartCoverage};

use super::load::load;
use crate::error::{Error, Result};
use crate::template::normal;
use crate::value::Value;
use crate::vault::Vault;
use crate::watches::{Runs, Watch, read_each};
use crate::yaml::{self, is_yaml};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use survey::{Survey, is_list};

/// Nesting limit of folders with roles.
const MAX_DEPTH: usize = 3;
/// The file that maps kinds to roles and playbooks.
const WATCHES: &str = "watches.yaml";

/// Examines all roles and playbooks of a project.
///
/// Passwords of vaults and services are those of the entries of `watches.yaml` that name the role or playbook; of all
/// entries for others.
///
/// # Errors
/// If a file cannot be read, or is invalid YAML.
pub fn coverage(project: &Path) -> Result<Coverage> {
    let watches = project.join(WATCHES);
    let entries = if watches.is_file() { read_each(&watches)? } else { Vec::new() };
    let (mut invalid, mut valid) = (Vec::new(), Vec::new());
    for (line, entry) in entries {
        match entry {
            Ok(watch) => valid.push(watch),
            // A missing role, for example.
            Err(error) => invalid.push((line, error)),
        }
    }
    let settings = Settings::of(project, &valid);
    let mut parts = Vec::from_iter((!invalid.is_empty()).then(|| of_watches(invalid)));
    let mut folders = roles(&project.join("roles"), 0)?;
    let mut files = playbooks(project, &settings.all)?;
    for runs in valid.iter().flat_map(runs_of) {
        match runs {
            Runs::Role(folder) => folders.push(normal(folder)),
            Runs::Playbook(file) => files.push(normal(file)),
        }
    }
    for folder in BTreeSet::from_iter(folders) {
        let runs = Runs::Role(folder.clone());
        let (vault, services) = settings.of_runs(&runs);
        let survey = Survey::of_role(project, &folder, &vault, services)?;
        parts.push(survey.part(&folder, load(&runs, project, &vault, services).err()));
    }
    for file in BTreeSet::from_iter(files) {
        let runs = Runs::Playbook(file.clone());
        let (vault, services) = settings.of_runs(&runs);
        let survey = Survey::of_playbook(project, &file, &vault, services)?;
        parts.push(survey.part(&file, load(&runs, project, &vault, services).err()));
    }
    let sum = |count: fn(&PartCoverage) -> usize| parts.iter().map(count).sum();
    Ok(Coverage { tasks: sum(|part| part.tasks), built_in: sum(|part| part.built_in), parts })
}

/// Returns the roles and playbooks that an entry names.
fn runs_of(watch: &Watch) -> impl Iterator<Item = &Runs> {
    let finalizer = watch.finalizer.as_ref().and_then(|finalizer| finalizer.runs.as_ref());
    std::iter::once(&watch.runs).chain(finalizer)
}

/// Reports the invalid entries of `watches.yaml`.
fn of_watches(invalid: Vec<(usize, Error)>) -> PartCoverage {
    let gap = |(line, error): &(usize, Error)| Gap {
        kind: GapKind::Other,
        name: match error {
            Error::Entry { field, problem, .. } if !field.is_empty() => format!("{field}: {problem}"),
            Error::Entry { problem, .. } => problem.clone(),
            other => other.to_string(),
        },
        count: 1,
        places: vec![Line { file: WATCHES.into(), line: *line }],
    };
    PartCoverage {
        path: WATCHES.into(),
        tasks: 0,
        built_in: 0,
        rejected: invalid.first().map(|(_, error)| error.to_string()),
        gaps: invalid.iter().map(gap).collect(),
    }
}

/// The settings of the entries of `watches.yaml`, for the roles and playbooks that they name.
struct Settings<'w> {
    entries: &'w [Watch],
    /// All passwords.
    all: Vault,
}

impl<'w> Settings<'w> {
    fn of(project: &Path, entries: &'w [Watch]) -> Self {
        let mut all = Vault::of_environment(project).unwrap_or_default();
        entries.iter().for_each(|watch| all.join(&watch.vault));
        Self { entries, all }
    }

    /// Returns the password, and true if services are declared.
    fn of_runs(&self, runs: &Runs) -> (Vault, bool) {
        let path = |runs: &Runs| match runs {
            Runs::Role(path) | Runs::Playbook(path) => normal(path),
        };
        let names = |watch: &&Watch| runs_of(watch).any(|named| path(named) == path(runs));
        let (mut vault, mut is_named, mut services) = (Vault::default(), false, false);
        for watch in self.entries.iter().filter(names) {
            vault.join(&watch.vault);
            is_named = true;
            services |= !watch.services.is_empty();
        }
        if is_named { (vault, services) } else { (self.all.clone(), services) }
    }
}

/// Returns the roles below a folder, which may be in folders such as those of versions.
fn roles(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() || depth > MAX_DEPTH {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(|error| Error::read(folder, &error))?;
    let mut folders = entries.map(|entry| Ok(normal(&entry?.path()))).collect::<std::io::Result<Vec<_>>>();
    let folders = folders.as_mut().map_err(|error| Error::read(folder, error))?;
    folders.sort();
    let mut found = Vec::new();
    for folder in folders.drain(..).filter(|folder| folder.is_dir()) {
        match ["tasks", "defaults", "vars", "handlers", "meta"].iter().any(|part| folder.join(part).is_dir()) {
            true => found.push(folder),
            false => found.extend(roles(&folder, depth + 1)?),
        }
    }
    Ok(found)
}

/// Returns the playbooks in the project's folder and in `playbooks`.
fn playbooks(project: &Path, vault: &Vault) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in [project.to_owned(), project.join("playbooks")] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = normal(&entry.path());
            if !path.is_file() || !is_yaml(&path) {
                continue;
            }
            let documents = match yaml::read_documents(&path, vault) {
                // Other files in these folders are not read by Ansible, such as those of tools.
                Err(_) if !has_plays(&path) => continue,
                // The playbook notes the problem.
                Err(Error::Vault { .. }) => {
                    found.push(path);
                    continue;
                }
                documents => documents?,
            };
            let plays = documents.first().and_then(Value::as_array);
            let is_playbook = plays.is_some_and(|plays| plays.iter().any(|play| play.get("hosts").is_some()));
            found.extend(is_playbook.then_some(path));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns true if the text of a file, which need not be valid, begins with a list that has plays.
fn has_plays(file: &Path) -> bool {
    let is_hosts = |line: &str| line.trim_start_matches(['-', ' ']).starts_with("hosts:");
    yaml::read_encrypted(file).is_ok_and(|text| is_list(&text) && text.lines().any(is_hosts))
}
