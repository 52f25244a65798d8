//! The state file: each change is on disk before it is made, and marked once it is undone.
//!
//! The file is private, replaced atomically, and locked while a run uses it: `flyball chaos undo` cannot interfere with
//! a run that still works, and the lock of a killed process is free. The file is removed after everything is undone.

use crate::change::{Change, Progress};
use crate::error::{Error, Result};
use flyball_files::{Durability, Lock, Replace};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Version of the format.
const VERSION: u32 = 1;
/// Maximum size of a state file.
const MAX_BYTES: u64 = 64 << 20;

/// Contents of a state file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    version: u32,
    /// Name of the run, also a label of created objects.
    pub run: String,
    /// UID of the cluster.
    pub cluster: String,
    /// Operator with its namespace.
    pub operator: String,
    /// Start in RFC 3339.
    pub started: String,
    /// Changes in order.
    pub entries: Vec<Entry>,
}

/// A change and its progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Name of the experiment.
    pub experiment: String,
    /// The change.
    pub change: Change,
    /// Its progress.
    pub progress: Progress,
}

/// An open and locked state file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    state: State,
    lock: Lock,
}

impl Journal {
    /// Creates the state file of a run.
    ///
    /// # Errors
    ///
    /// If it exists, or cannot be written.
    pub fn create(path: &Path, run: &str, cluster: &str, operator: &str, started: &str) -> Result<Self> {
        let error = |source| Error::StateFile { action: "create", path: path.to_owned(), source };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            flyball_files::private_directory().recursive(true).create(folder).map_err(error)?;
        }
        let lock = lock(path)?;
        if path.exists() {
            let problem = "exists already: undo its run with `flyball chaos undo FILE`, or pass another file";
            return Err(Error::StateContent { path: path.to_owned(), problem: problem.to_owned() });
        }
        let state = State {
            version: VERSION,
            run: run.to_owned(),
            cluster: cluster.to_owned(),
            operator: operator.to_owned(),
            started: started.to_owned(),
            entries: Vec::new(),
        };
        let journal = Self { path: path.to_owned(), state, lock };
        journal.write()?;
        Ok(journal)
    }

    /// Opens the state file of a run that has ended.
    ///
    /// # Errors
    ///
    /// If the run is still working, or the file is not valid.
    pub fn open(path: &Path) -> Result<Self> {
        let error = |source| Error::StateFile { action: "read", path: path.to_owned(), source };
        let content = |problem: String| Error::StateContent { path: path.to_owned(), problem };
        let metadata = fs::metadata(path).map_err(error)?;
        if metadata.mode() & 0o022 != 0 {
            return Err(content("can be written by other users: it may not be the one of a run".to_owned()));
        }
        let size = metadata.len();
        if size > MAX_BYTES {
            return Err(content(format!("has {size} bytes; a state file has at most {MAX_BYTES}")));
        }
        let lock = lock(path)?;
        let text = fs::read_to_string(path).map_err(error)?;
        let state: State =
            serde_json::from_str(&text).map_err(|error| content(format!("is not valid: {}", position(&error))))?;
        if state.version != VERSION {
            return Err(content(format!("has version {}: use the release of flyball that wrote it", state.version)));
        }
        Ok(Self { path: path.to_owned(), state, lock })
    }

    /// Returns the contents.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records changes before they are made. Returns the index of the first one.
    pub(crate) fn plan(&mut self, experiment: &str, changes: &[Change]) -> Result<usize> {
        let first = self.state.entries.len();
        self.state.entries.extend(changes.iter().map(|change| Entry {
            experiment: experiment.to_owned(),
            change: change.clone(),
            progress: Progress::Planned,
        }));
        self.write()?;
        Ok(first)
    }

    /// Records that a change is made, as the API server stored it.
    pub(crate) fn confirm(&mut self, index: usize, change: Change) -> Result<()> {
        if let Some(entry) = self.state.entries.get_mut(index) {
            entry.change = change;
            entry.progress = Progress::Made;
        }
        self.write()
    }

    /// Returns the number of recorded changes.
    pub(crate) fn len(&self) -> usize {
        self.state.entries.len()
    }

    /// Returns the changes from an index on that are not undone, with their indexes.
    pub(crate) fn pending(&self, first: usize) -> Vec<(usize, Entry)> {
        let entries = self.state.entries.iter().enumerate().skip(first);
        entries
            .filter(|(_, entry)| entry.progress != Progress::Undone)
            .map(|(index, entry)| (index, entry.clone()))
            .collect()
    }

    /// Marks a change as undone.
    pub(crate) fn finish(&mut self, index: usize) -> Result<()> {
        if let Some(entry) = self.state.entries.get_mut(index) {
            entry.progress = Progress::Undone;
        }
        self.write()
    }

    /// Returns true if nothing is left to undo.
    pub fn is_finished(&self) -> bool {
        self.state.entries.iter().all(|entry| entry.progress == Progress::Undone)
    }

    /// Removes the file if nothing is left to undo. Returns the path otherwise.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn close(self) -> Result<Option<PathBuf>> {
        if !self.is_finished() {
            return Ok(Some(self.path));
        }
        let error = |source| Error::StateFile { action: "remove", path: self.path.clone(), source };
        fs::remove_file(&self.path).map_err(error)?;
        let _ = fs::remove_file(lock_path(&self.path));
        drop(self.lock);
        Ok(None)
    }

    fn write(&self) -> Result<()> {
        let error = |source| Error::StateFile { action: "write", path: self.path.clone(), source };
        let content = serde_json::to_vec(&self.state).map_err(|cause| error(cause.into()))?;
        let replace = Replace { is_private: true, durability: Durability::Name, is_locked: true };
        replace.write(&self.path, content).map_err(error)
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn lock(path: &Path) -> Result<Lock> {
    let error = |source| Error::StateFile { action: "lock", path: path.to_owned(), source };
    flyball_files::try_lock(&lock_path(path)).map_err(error)?.ok_or_else(|| Error::StateContent {
        path: path.to_owned(),
        problem: "is in use by a running command: stop it with Ctrl-C, which undoes its changes".to_owned(),
    })
}

/// Returns the position of an error, without the excerpt of the file that a message may contain.
fn position(error: &serde_json::Error) -> String {
    format!("{:?} error at line {}, column {}", error.classify(), error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn changes_are_on_disk_before_they_are_made() {
        let folder = std::env::temp_dir().join(format!("flyball-chaos-journal-{}", std::process::id()));
        let path = folder.join("run.json");
        let mut journal = Journal::create(&path, "r1", "uid", "a/b", "2026-01-01T00:00:00Z").unwrap();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let index = journal.plan("x", &[Change::Create { object }]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Journal::open(&path).unwrap_err().to_string().contains("in use by a running command"));
        // As after the death of the process, which frees the lock.
        drop(journal);
        let mut journal = Journal::open(&path).unwrap();
        assert!(!journal.is_finished() && journal.state().entries[0].experiment == "x");
        journal.finish(index).unwrap();
        assert_eq!(journal.close().unwrap(), None);
        assert!(!path.exists());
        fs::write(&path, "{\"version\": \"secret\"}").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(Journal::open(&path).unwrap_err().to_string().contains("written by other users"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = Journal::open(&path).unwrap_err().to_string();
        assert!(error.contains("is not valid") && !error.contains("secret"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}
