//! The rules of `helm lint`, with its messages.
//!
//! The rules check the files of the chart, and its rendered templates with `required` and `fail` disabled. The findings
//! are [`LintMessage`]s. The rendered objects are returned as well, for checks that need an API server.

mod addresses;
mod crds;
mod dependencies;
mod deprecations;
mod metadata;
mod names;
mod source;
mod strict;
mod templates;
mod values;

pub(crate) use source::Source;

use crate::capabilities::Capabilities;
use crate::chart::CrdFile;
use crate::helm::HelmVersion;
use crate::render::Manifest;
use crate::seed::Seed;
use crate::text::Text;
use crate::values::Values;
use flyball_core::Clock;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Outputs of templates, by path.
type Files = BTreeMap<String, Text>;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A recommendation.
    Info,
    /// A violation of conventions that probably works.
    Warning,
    /// An error that makes an installation fail.
    Error,
}

/// A finding of `helm lint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LintMessage {
    /// Severity.
    pub severity: Severity,
    /// The file within the chart, such as `templates/service.yaml`, or another subject of the rule.
    pub path: String,
    /// The problem.
    #[serde(rename = "message")]
    pub text: String,
}

impl fmt::Display for LintMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Info => "INFO",
            Severity::Warning => "WARNING",
            Severity::Error => "ERROR",
        };
        write!(f, "[{word}] {}: {}", self.path, self.text)
    }
}

/// Inputs of the rules in addition to the chart.
pub(crate) struct LintOptions<'o> {
    pub(crate) values: &'o Values,
    pub(crate) namespace: &'o str,
    pub(crate) capabilities: &'o Capabilities,
    pub(crate) skip_schema_validation: bool,
    pub(crate) clock: Clock,
    pub(crate) seed: Seed,
}

impl LintOptions<'_> {
    fn helm(&self) -> HelmVersion {
        self.capabilities.helm()
    }
}

/// The result of linting a chart.
#[derive(Debug, Clone, Default)]
pub struct Lint {
    /// Findings, in the order of the rules.
    pub messages: Vec<LintMessage>,
    /// Warnings of loading and rendering, as logged by Helm.
    pub warnings: Vec<String>,
    /// Rendered objects, including hooks, with paths within the chart. Empty if the chart does not render.
    pub objects: Vec<Manifest>,
    /// Files of `crds/`, with paths within the chart.
    pub crds: Vec<CrdFile>,
    /// True if `required` or `fail` would have stopped an installation.
    pub is_incomplete: bool,
    /// Outputs of templates that are not objects, by path, with the reason.
    problems: Vec<(String, String)>,
}

impl Lint {
    /// Applies all rules to a chart.
    pub(crate) fn of(source: &Source, options: &LintOptions<'_>) -> Lint {
        let mut lint = Lint::default();
        metadata::check(source, options.helm(), &mut lint);
        values::check(source, options, &mut lint);
        templates::check(source, options, &mut lint);
        dependencies::check(source, options.helm(), &mut lint);
        if options.helm() == HelmVersion::V4 {
            crds::check(source, &mut lint);
        }
        lint
    }

    /// Reports documents that are not YAML or not objects and that no rule of Helm covers: those of subcharts, and
    /// those after the first invalid one.
    pub(crate) fn check_documents(&mut self) {
        for (path, message) in std::mem::take(&mut self.problems) {
            let is_known = |one: &LintMessage| one.severity == Severity::Error && one.path == path;
            if !self.messages.iter().any(is_known) {
                self.rule(Severity::Error, &path, Err(format!("unable to parse YAML: {message}")));
            }
        }
    }

    /// Adds a finding if there is a problem; returns true if there is none.
    fn rule(&mut self, severity: Severity, path: &str, outcome: Result<(), String>) -> bool {
        let Err(text) = outcome else { return true };
        self.messages.push(LintMessage { severity, path: path.to_owned(), text });
        false
    }
}
