//! Errors in a project.

use std::fmt;
use std::path::{Path, PathBuf};

/// Error of loading a `watches.yaml` or a file that it refers to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        reason: std::io::ErrorKind,
    },
    /// A file has invalid content.
    #[error("{}: {problem}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The problem and the remedy.
        problem: String,
    },
    /// An entry of a `watches.yaml` is invalid.
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
    /// A task is not supported by the built-in executor.
    #[error("{}: task {task}: {problem}", path.display())]
    Task {
        /// The file.
        path: PathBuf,
        /// Its name, or its position in the file.
        task: String,
        /// The problem and the remedy.
        problem: String,
    },
}

fn of(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!(": {field}") }
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

/// The result of loading a project.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
