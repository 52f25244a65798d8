//! Why a project cannot be an operator.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a `watches.yaml`, or what it names, cannot be made an operator of.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("{}: cannot be read: {reason}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Why.
        reason: std::io::ErrorKind,
    },
    /// A file says what it may not.
    #[error("{}: {problem}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The problem and the remedy.
        problem: String,
    },
    /// An entry of a `watches.yaml` says what it may not.
    #[error("{}: entry {entry}{}: {problem}", path.display(), of(field))]
    Entry {
        /// The file.
        path: PathBuf,
        /// Number of the entry, from 1 on, and its kind if it has one.
        entry: String,
        /// Name of the field; empty for the entry as a whole.
        field: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// A task is nothing that the built-in executor can run.
    #[error("{}: task {task}: {problem}", path.display())]
    Task {
        /// The file.
        path: PathBuf,
        /// Its name, or its place in the file.
        task: String,
        /// The problem and the remedy.
        problem: String,
    },
}

fn of(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!(", field {field}") }
}

impl Error {
    pub(crate) fn read(path: &Path, error: &std::io::Error) -> Self {
        Self::Read { path: path.to_owned(), reason: error.kind() }
    }

    pub(crate) fn file(path: &Path, problem: impl fmt::Display) -> Self {
        Self::File { path: path.to_owned(), problem: problem.to_string() }
    }

    pub(crate) fn task(path: &Path, task: &str, problem: impl fmt::Display) -> Self {
        Self::Task { path: path.to_owned(), task: task.to_owned(), problem: problem.to_string() }
    }
}

/// The result of loading.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
