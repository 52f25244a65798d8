//! The report of the coverage of a project.

use serde::Serialize;
use std::path::PathBuf;

/// Tasks of a project that the built-in executor runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Coverage {
    /// Number of tasks and handlers.
    pub tasks: usize,
    /// Number of those that the built-in executor runs.
    pub built_in: usize,
    /// Roles and playbooks, by path.
    pub parts: Vec<PartCoverage>,
}

/// Tasks of a role or playbook that the built-in executor runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartCoverage {
    /// Path of the role or playbook within the project.
    pub path: PathBuf,
    /// Number of tasks and handlers.
    pub tasks: usize,
    /// Number of those that the built-in executor runs.
    pub built_in: usize,
    /// The first reason to use `ansible-playbook` for this part, including the roles that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// Missing features of the built-in executor.
    pub gaps: Vec<Gap>,
}

/// A feature that the built-in executor lacks.
#[derive(Debug, Serialize)]
pub struct Gap {
    /// Type of the feature.
    pub kind: GapKind,
    /// Its name, or the problem.
    pub name: String,
    /// Number of uses.
    pub count: usize,
    /// The uses.
    pub places: Vec<Line>,
}

/// The type of a missing feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum GapKind {
    /// A module.
    Module,
    /// A keyword of a task.
    Keyword,
    /// A filter.
    Filter,
    /// A test, used with `is`.
    Test,
    /// A lookup.
    Lookup,
    /// A function or method.
    Function,
    /// A variable that Ansible sets, such as a fact of the host.
    Variable,
    /// Arguments of a supported module, syntax, or a missing file.
    Other,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Line {
    /// Path within the project.
    pub file: PathBuf,
    /// Line number, from 1 on.
    pub line: usize,
}
