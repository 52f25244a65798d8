//! The command `helm lint` as a function from arguments to findings.

use super::cluster::ClusterFlags;
use super::values::{ValueArgs, values};
use crate::lint::{Lint, LintOptions, Source};
use crate::quote::quote;
use crate::{Capabilities, HelmVersion, LintMessage, Seed, Severity};
use flyball_core::Clock;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Nesting depth of directories in which subcharts are searched.
const DEPTH: usize = 50;

/// The arguments of `helm lint`. See <https://helm.sh/docs/helm/helm_lint/>.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct LintArgs {
    /// Charts: directories or archives
    #[arg(value_name = "CHART")]
    pub charts: Vec<String>,
    /// Fail on warnings
    #[arg(long)]
    pub strict: bool,
    /// Print warnings and errors only
    #[arg(long)]
    pub quiet: bool,
    /// Lint the subcharts as well
    #[arg(long)]
    pub with_subcharts: bool,
    /// Flags of values.
    #[command(flatten)]
    pub values: ValueArgs,
    /// Namespace of the release
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Do not validate values against the schema
    #[arg(long)]
    pub skip_schema_validation: bool,
    /// Kubernetes version, for capabilities and deprecated APIs
    #[arg(long, value_name = "VERSION")]
    pub kube_version: Option<String>,
    /// Lint as Helm 3 or as Helm 4 does
    #[arg(long, value_name = "VERSION", default_value = "3")]
    pub helm_version: HelmVersion,
    /// Apply the rules of Helm only, without an API server
    #[arg(long)]
    pub helm_rules_only: bool,
    /// Output format: json
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json"])]
    pub output: Option<String>,
    /// Flags that select the sources of the charts.
    #[command(flatten)]
    pub path: super::ChartPathArgs,
    #[arg(long, hide = true)]
    debug: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

impl LintArgs {
    /// Parses the arguments after `helm lint`.
    ///
    /// # Errors
    ///
    /// Fails if a flag is unknown or lacks its value; or with the help text, if requested.
    pub fn parse(arguments: &[String]) -> Result<LintArgs, String> {
        super::flags::parse(arguments)
    }
}

/// Findings of `helm lint` for all charts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LintReport {
    /// Number of charts with errors; with `--strict`, also of those with warnings.
    pub failed: usize,
    /// Charts, in the order of the arguments.
    pub charts: Vec<LintedChart>,
    /// Warnings for standard error.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// Findings for one chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LintedChart {
    /// Path of the chart, as passed in the arguments.
    pub path: String,
    /// True if a finding is an error or, with `--strict`, a warning.
    pub failed: bool,
    /// The reason why the rules were not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Findings.
    pub messages: Vec<LintMessage>,
}

impl LintReport {
    /// Returns the text for standard output.
    pub fn text(&self, args: &LintArgs) -> String {
        let mut text = String::new();
        let mut are_fine = true;
        for chart in &self.charts {
            let has_problems = chart.error.is_some() || chart.messages.iter().any(|one| one.severity > Severity::Info);
            are_fine &= !has_problems;
            if args.quiet && !has_problems {
                continue;
            }
            // Writing to a String cannot fail.
            let _ = writeln!(text, "==> Linting {}", chart.path);
            if let Some(error) = &chart.error {
                let _ = writeln!(text, "Error {error}");
            }
            for message in chart.messages.iter().filter(|one| !args.quiet || one.severity > Severity::Info) {
                let _ = writeln!(text, "{message}");
            }
            text.push('\n');
        }
        if self.failed == 0 && !(args.quiet && are_fine) {
            let _ = writeln!(text, "{}", self.summary());
        }
        text
    }

    /// Returns the summary with the numbers of charts, which is Helm's error if any chart failed.
    pub fn summary(&self) -> String {
        format!("{} chart(s) linted, {} chart(s) failed", self.charts.len(), self.failed)
    }
}

/// Runs `helm lint`; paths are relative to a directory. `check` returns additional findings for a chart.
///
/// # Errors
///
/// Returns Helm's message about the arguments, without the prefix `Error: `.
pub fn lint(
    args: &LintArgs,
    folder: &Path,
    clock: &Clock,
    seed: &Seed,
    check: &mut dyn FnMut(&Lint) -> Vec<LintMessage>,
) -> Result<LintReport, String> {
    let helm = args.helm_version;
    let mut paths = args.charts.clone();
    if paths.is_empty() {
        if helm == HelmVersion::V4 {
            return Err("\"helm lint\" requires at least 1 argument\n\nUsage:  helm lint PATH [flags]".to_owned());
        }
        paths.push(".".to_owned());
    }
    let mut capabilities = Capabilities::of(helm);
    if let Some(version) = &args.kube_version {
        let set = capabilities.set_kube_version(version);
        set.map_err(|message| format!("invalid kube version '{version}': {message}"))?;
    }
    if args.with_subcharts {
        for path in paths.clone() {
            subcharts(folder, &join(&path, "charts"), 0, &mut paths);
        }
    }
    let values = values(&args.values, helm, folder)?;
    let options = LintOptions {
        values: &values,
        namespace: &args.namespace,
        capabilities: &capabilities,
        skip_schema_validation: args.skip_schema_validation,
        clock: clock.clone(),
        seed: seed.clone(),
    };
    let mut report = LintReport::default();
    for path in paths {
        let mut chart = LintedChart { path, failed: false, error: None, messages: Vec::new() };
        match Source::open(folder, &chart.path) {
            Ok(source) => {
                let mut lint = Lint::of(&source, &options);
                report.warnings.extend(lint.warnings.drain(..).map(|warning| logged(warning, helm)));
                if !args.helm_rules_only {
                    lint.check_documents();
                    let found = check(&lint);
                    lint.messages.extend(found);
                }
                chart.messages.append(&mut lint.messages);
            }
            Err(error) => chart.error = Some(error),
        }
        let least = if args.strict { Severity::Warning } else { Severity::Error };
        chart.failed = chart.error.is_some() || chart.messages.iter().any(|message| message.severity >= least);
        report.failed += usize::from(chart.failed);
        report.charts.push(chart);
    }
    Ok(report)
}

/// Returns a warning as logged by Helm; Helm 4 writes a log record for each warning.
fn logged(warning: String, helm: HelmVersion) -> String {
    match helm == HelmVersion::V3 || warning.starts_with("level=") {
        true => warning,
        false => format!("level=INFO msg={}", quote(warning.as_bytes())),
    }
}

fn join(path: &str, name: &str) -> String {
    match path.trim_start_matches("./").trim_end_matches('/') {
        "" | "." => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}

/// Finds the charts below a directory, in the order of names. Links are not followed.
fn subcharts(folder: &Path, path: &str, depth: usize, found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder.join(path)) else { return };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    for name in names {
        let inner = format!("{path}/{name}");
        let is_directory = std::fs::symlink_metadata(folder.join(&inner)).is_ok_and(|found| found.is_dir());
        if name == "Chart.yaml" {
            found.push(path.to_owned());
        } else if name.ends_with(".tgz") || name.ends_with(".tar.gz") {
            found.push(inner.clone());
        }
        if is_directory && depth < DEPTH {
            subcharts(folder, &inner, depth + 1, found);
        }
    }
}
