//! Printed reports and plans.

use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_labeled, print_line};
use crate::render::yaml;
use clap::ValueEnum;
use flyball_chaos::{Experiment, Outcome, Report, Verdict};
use serde_json::{Value, json};

/// Maximum number of reasons of an outcome in a table.
const MAX_REASONS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
    Yaml,
    Junit,
}

/// A planned experiment.
pub(super) struct Plan {
    experiment: Experiment,
    changes: Result<Vec<String>, String>,
}

impl Plan {
    pub(super) fn new(experiment: &Experiment, planned: Result<flyball_chaos::Plan, String>) -> Self {
        let changes =
            planned.map(|planned| planned.changes.iter().chain(&planned.later).map(ToString::to_string).collect());
        Self { experiment: experiment.clone(), changes }
    }
}

/// Formats plans.
pub(super) fn print_plans(plans: &[Plan], format: Format) -> Vec<String> {
    match format {
        Format::Yaml => {
            let documents: Vec<String> = plans.iter().map(|plan| yaml::write(&plan.experiment.to_object())).collect();
            vec![documents.join("---\n").trim_end().to_owned()]
        }
        Format::Json => {
            let value = |plan: &Plan| {
                let (changes, reason) = match &plan.changes {
                    Ok(changes) => (changes.clone(), Value::Null),
                    Err(reason) => (Vec::new(), json!(reason)),
                };
                let fault = &plan.experiment.spec.fault;
                let experiment = plan.experiment.to_object();
                json!({"experiment": experiment, "risk": fault.risk(), "changes": changes, "skipped": reason})
            };
            vec![format!("{:#}", json!({"plans": plans.iter().map(value).collect::<Vec<_>>()}))]
        }
        Format::Text | Format::Junit => plans.iter().flat_map(lines).collect(),
    }
}

fn lines(plan: &Plan) -> Vec<String> {
    let fault = &plan.experiment.spec.fault;
    let risk = format!("{:?}", fault.risk()).to_lowercase();
    let mut lines = vec![format!("{} ({}, risk {risk})", paint(Style::Strong, &plan.experiment.name), fault.name())];
    match &plan.changes {
        Ok(changes) => lines.extend(changes.iter().map(|change| format!("  {change}"))),
        Err(reason) => lines.push(format!("  skipped: {reason}")),
    }
    lines
}

/// Formats the end of an experiment as a line.
pub(super) fn line(outcome: &Outcome) -> String {
    let time = recovery(outcome);
    let after = if time.is_empty() { String::new() } else { format!(" after {time}") };
    let undo = outcome.undo_error.as_ref().map(|error| format!("; not undone: {error}")).unwrap_or_default();
    format!("{}: {}{after}{undo}", outcome.name, outcome.verdict)
}

fn recovery(outcome: &Outcome) -> String {
    outcome.recovery_seconds.map(|time| format!("{:.1}s", time.as_secs_f64())).unwrap_or_default()
}

/// Prints a report to standard output.
pub(super) fn print(report: &Report, format: Format) {
    match format {
        Format::Json | Format::Yaml => drop(Output::Json.print(report)),
        Format::Junit => print_line(report.junit().trim_end()),
        Format::Text => print_text(report),
    }
}

fn print_text(report: &Report) {
    let head = ["EXPERIMENT", "FAULT", "RESULT", "RECOVERY", "REASON"].map(str::to_owned).to_vec();
    let rows = report.outcomes.iter().map(|outcome| {
        let mut reasons = outcome.reasons.iter().take(MAX_REASONS).cloned().collect::<Vec<_>>().join("; ");
        if outcome.reasons.len() > MAX_REASONS {
            reasons += &format!("; and {} more", outcome.reasons.len() - MAX_REASONS);
        }
        let style = match outcome.verdict {
            Verdict::Resilient => Style::Good,
            Verdict::Skipped => Style::Faint,
            Verdict::Degraded | Verdict::Inconclusive => Style::Busy,
            Verdict::Failed => Style::Bad,
        };
        let verdict = paint(style, &outcome.verdict.to_string());
        vec![outcome.name.clone(), outcome.fault.clone(), verdict, recovery(outcome), reasons]
    });
    columns(std::iter::once(head).chain(rows).collect()).iter().for_each(|line| print_line(line));
    let count = |verdict: Verdict| (verdict, report.count(verdict));
    let verdicts =
        [Verdict::Resilient, Verdict::Degraded, Verdict::Failed, Verdict::Inconclusive, Verdict::Skipped].map(count);
    let counts = verdicts.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> =
        counts.map(|(verdict, count)| format!("{count} {}", verdict.to_string().to_lowercase())).collect();
    print_line(&format!("{}: {}", report.operator, counts.join(", ")));
    report.notes.iter().for_each(|note| print_labeled("note", note));
}
