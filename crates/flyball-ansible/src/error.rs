//! Errors in a project.

use std::fmt;
use std::path::{Path, PathBuf};

/// Error of loading a `watches.yaml` or a file that it refers to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read.
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
    /// A file, or a value in it, cannot be decrypted.
    #[error("{}{}: {problem}", path.display(), at(*line))]
    Vault {
        /// Path of the file.
        path: PathBuf,
        /// The line of the value; 0 for the whole file.
        line: usize,
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
    /// A task is invalid, or not supported by the built-in executor.
    #[error("{}{}: task {task}: {problem}", path.display(), at(*line))]
    Task {
        /// The file.
        path: PathBuf,
        /// The line in which the task begins; 0 if unknown.
        line: usize,
        /// Its name, or its position in the file.
        task: String,
        /// The problem and the remedy.
        problem: String,
        /// The feature that the built-in executor lacks, such as `module ansible.builtin.copy`, if it has a name.
        feature: Option<String>,
        /// True if no executor runs the task, since it is invalid for Ansible.
        is_invalid: bool,
    },
}

fn at(line: usize) -> String {
    if line == 0 { String::new() } else { format!(":{line}") }
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

    pub(crate) fn vault(path: &Path, line: usize, problem: impl fmt::Display) -> Self {
        Self::Vault { path: path.to_owned(), line, problem: problem.to_string() }
    }

    /// Returns true if a file cannot be decrypted.
    pub(crate) fn is_vault(&self) -> bool {
        matches!(self, Self::Vault { .. })
    }

    /// Returns the error of an entry, by its index, whose files have a problem.
    pub(crate) fn entry(path: &Path, number: usize, kind: &str, problem: impl fmt::Display) -> Self {
        let entry = format!("{} ({kind})", number + 1);
        Self::Entry { path: path.to_owned(), entry, field: String::new(), problem: problem.to_string() }
    }

    pub(crate) fn task(path: &Path, task: &str, problem: impl fmt::Display) -> Self {
        let (path, task, problem) = (path.to_owned(), task.to_owned(), problem.to_string());
        Self::Task { path, line: 0, task, problem, feature: None, is_invalid: false }
    }

    /// Marks the task as invalid for Ansible, so that no other executor is tried or suggested.
    pub(crate) fn for_all_executors(mut self) -> Self {
        if let Self::Task { is_invalid, .. } = &mut self {
            *is_invalid = true;
        }
        self
    }

    /// Returns true if no executor runs the task.
    pub(crate) fn is_invalid(&self) -> bool {
        matches!(self, Self::Task { is_invalid: true, .. })
    }

    /// Sets the line of the task, unless it is known: that of an inner task is more precise.
    pub(crate) fn at_line(mut self, number: usize) -> Self {
        if let Self::Task { line, .. } = &mut self
            && *line == 0
        {
            *line = number;
        }
        self
    }

    /// Returns the file and the line of the problem, as far as they are known.
    pub(crate) fn position(&self) -> Option<(&Path, usize)> {
        match self {
            Self::Read { path, .. } | Self::File { path, .. } | Self::Entry { path, .. } => Some((path, 0)),
            Self::Vault { path, line, .. } | Self::Task { path, line, .. } => Some((path, *line)),
        }
    }

    /// Returns the kind and the name of the feature that the built-in executor lacks, such as `module` and `copy`.
    pub(crate) fn feature(&self) -> Option<(&str, &str)> {
        match self {
            Self::Task { feature: Some(feature), .. } => feature.split_once(' '),
            _ => None,
        }
    }

    /// Returns the problem without its position.
    pub(crate) fn problem(&self) -> String {
        match self {
            Self::File { problem, .. } | Self::Vault { problem, .. } | Self::Task { problem, .. } => problem.clone(),
            Self::Read { .. } | Self::Entry { .. } => self.to_string(),
        }
    }

    /// Names the feature that the built-in executor lacks.
    pub(crate) fn with_feature(mut self, name: String) -> Self {
        if let Self::Task { feature, .. } = &mut self {
            *feature = Some(name);
        }
        self
    }

    /// Returns the error of a role that only `ansible-playbook` could run, if it is not installed.
    pub(crate) fn without_ansible(mut self, command: &str) -> Self {
        if let Self::Task { problem, feature: Some(feature), .. } = &mut self {
            *problem = format!("{feature} needs ansible-playbook, which is not on the PATH: {command}");
        }
        self
    }

    /// Returns the feature that the built-in executor lacks, with its place, or the problem as it is.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Task { path, line, feature: Some(feature), .. } => {
                format!("does not support {feature} ({}{})", path.display(), at(*line))
            }
            other => format!("rejects it: {other}"),
        }
    }
}

/// The result of loading a project.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
