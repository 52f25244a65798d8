//! The files of a process that outlives its command: in the directory for state, named after a control plane.
//!
//! The process holds a lock for as long as it runs, so that no other process can be mistaken for it. Its record remains
//! after a crash.

use super::private;
use crate::error::{Result, ResultExt};
use flyball_files::Lock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::PathBuf;

/// The files whose names begin with the name of a control plane.
#[derive(Clone, Debug)]
pub(crate) struct StateFiles {
    folder: PathBuf,
    name: String,
}

impl StateFiles {
    pub(crate) fn of(name: &str) -> Result<Self> {
        Ok(Self { folder: private::state_directory()?, name: name.to_owned() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.name))
    }

    /// Creates the directory.
    pub(crate) fn prepare(&self) -> Result<()> {
        let created = flyball_files::private_directory().recursive(true).create(&self.folder);
        created.context(format!("cannot create {}", self.folder.display()))
    }

    /// Acquires a lock; `None` if a running process holds it.
    pub(crate) fn lock(&self, ending: &str) -> Result<Option<Lock>> {
        let path = self.path(ending);
        flyball_files::try_lock(&path).context(format!("cannot lock {}", path.display()))
    }

    /// Returns true if a running process holds a lock.
    pub(crate) fn is_locked(&self, ending: &str) -> Result<bool> {
        Ok(self.folder.exists() && self.lock(ending)?.is_none())
    }

    /// Reads a record, if it exists.
    pub(crate) fn read<T: DeserializeOwned>(&self, ending: &str) -> Result<Option<T>> {
        let path = self.path(ending);
        let what = format!("cannot read {}", path.display());
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).context(what).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context(what),
        }
    }

    /// Replaces a record.
    pub(crate) fn write(&self, ending: &str, record: &impl Serialize) -> Result<()> {
        let path = self.path(ending);
        let written = serde_json::to_vec_pretty(record).map_err(std::io::Error::other);
        written.and_then(|text| private::write(&path, &text)).context(format!("cannot write {}", path.display()))
    }

    /// Creates an empty log, or empties it.
    pub(crate) fn create_log(&self, ending: &str) -> Result<File> {
        let path = self.path(ending);
        let log = flyball_files::private(OpenOptions::new().write(true).create(true).truncate(true)).open(&path);
        log.context(format!("cannot write {}", path.display()))
    }

    /// Returns the last lines of a log.
    pub(crate) fn log_tail(&self, ending: &str, count: usize) -> String {
        let log = fs::read_to_string(self.path(ending)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    pub(crate) fn remove(&self, endings: &[&str]) {
        for ending in endings {
            let _ = fs::remove_file(self.path(ending));
        }
    }
}
