//! Findings: violated rules.

use serde::Serialize;
use std::fmt;

/// Maximum number of findings.
const MAX_FINDINGS: usize = 500;

/// The consequence of a violated rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The bundle cannot be installed or published.
    Error,
    /// The bundle can be improved.
    Warning,
}

/// A violated rule of a bundle, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The consequence.
    pub severity: Severity,
    /// The object and its field.
    pub field: String,
    /// The reason.
    pub why: String,
    /// The change that solves it.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.why, self.remedy)
    }
}

/// Collects findings.
#[derive(Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn error(&mut self, field: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) {
        self.push(Severity::Error, field.into(), why.into(), remedy.into());
    }

    pub(super) fn warn(&mut self, field: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) {
        self.push(Severity::Warning, field.into(), why.into(), remedy.into());
    }

    fn push(&mut self, severity: Severity, field: String, why: String, remedy: String) {
        let finding = Finding { severity, field, why, remedy };
        if self.0.len() < MAX_FINDINGS && !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    /// Returns the findings, errors first.
    pub(super) fn sorted(mut self) -> Vec<Finding> {
        self.0.sort_by_key(|finding| finding.severity);
        self.0
    }
}
