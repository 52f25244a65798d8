//! The report of an exploration, for people and for programs.

use crate::cost::Cost;
use crate::history::{Actor, Change};
use crate::hub::Occurrence;
use crate::oracle::{Oracle, Violation};
use crate::run::Outcome;
use crate::schedule::Schedule;
use crate::site::Site;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Limit of the lines of output in a timeline.
const MAX_OUTPUT: usize = 20;
/// Limit of the lines of a timeline.
const MAX_LINES: usize = 80;

/// A rule that the operator violates, with the smallest schedule that shows it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub oracle: Oracle,
    /// The object, such as `persistentvolumeclaims/data-web-0`.
    pub object: String,
    /// The JSON pointer of the field, empty if several are concerned or none.
    pub field: String,
    /// The violation in words.
    pub text: String,
    /// The smallest schedule that was found.
    pub schedule: Schedule,
    /// The schedule in which it was found.
    pub original: Schedule,
    /// Number of schedules until it was found.
    pub schedules: usize,
    /// Time until it was found.
    pub found_after: Duration,
    /// Number of runs of the shrinking.
    pub shrink_runs: usize,
    /// The number of runs of the smallest schedule that show the violation, and the number of runs, for an operator in
    /// another process.
    pub rate: Option<(usize, usize)>,
    /// The run of the smallest schedule.
    pub timeline: Vec<String>,
}

/// The number of sites at which a fault occurred, by port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoverageRow {
    /// The name of the fault.
    pub fault: &'static str,
    /// The port and the number of sites.
    pub sites: Vec<(&'static str, usize)>,
}

/// The result of an exploration.
#[derive(Clone, Debug)]
#[must_use = "findings are in the report"]
pub struct Report {
    pub(crate) operator: String,
    pub(crate) findings: Vec<Finding>,
    pub(crate) schedules: usize,
    pub(crate) runs: usize,
    pub(crate) elapsed: Duration,
    pub(crate) traces: usize,
    pub(crate) states: usize,
    pub(crate) coverage: Vec<CoverageRow>,
    pub(crate) warnings: Vec<String>,
    pub(crate) error: Option<String>,
    pub(crate) sites: Vec<Site>,
    pub(crate) trace: Vec<String>,
    pub(crate) cost: Cost,
    pub(crate) request_counts: BTreeMap<String, u64>,
}

impl Report {
    /// Returns the violated rules.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the number of different schedules that were tried.
    pub fn schedules(&self) -> usize {
        self.schedules
    }

    /// Returns the number of runs, with those of references and shrinking.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Returns the duration of the exploration.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the number of runs per minute.
    pub fn runs_per_minute(&self) -> f64 {
        let runs = u32::try_from(self.runs).unwrap_or(u32::MAX);
        f64::from(runs) / self.elapsed.as_secs_f64().max(0.001) * 60.0
    }

    /// Returns the faults that occurred.
    pub fn coverage(&self) -> &[CoverageRow] {
        &self.coverage
    }

    /// Returns remarks about undisturbed runs.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the reason if the operator cannot be explored.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns the sites that a [replayed](crate::Explorer::replay) run crossed, in order.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Returns the messages of a [replayed](crate::Explorer::replay) run, in order: microseconds since its start, site,
    /// and content.
    pub fn trace(&self) -> &[String] {
        &self.trace
    }

    /// Returns the cost of the runs of schedules, without those of references.
    pub fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Returns the number of requests of all clients in a [replayed](crate::Explorer::replay) run, by verb and
    /// resource, such as `LIST pods`. Empty for operators in other processes.
    pub fn request_counts(&self) -> &BTreeMap<String, u64> {
        &self.request_counts
    }

    /// Asserts that no rule is violated.
    ///
    /// # Panics
    ///
    /// With the report, if a rule is violated, or if the operator could not be explored.
    pub fn assert_clean(&self) {
        assert!(self.error.is_none() && self.findings.is_empty(), "{self}");
    }

    /// Returns the report as JSON.
    pub fn to_json(&self) -> Value {
        let finding = |finding: &Finding| {
            json!({
                "oracle": finding.oracle.name(),
                "rule": finding.oracle.rule(),
                "object": finding.object,
                "field": finding.field,
                "text": finding.text,
                "schedule": finding.schedule.to_string(),
                "original": finding.original.to_string(),
                "schedules": finding.schedules,
                "foundAfterSeconds": finding.found_after.as_secs_f64(),
                "shrinkRuns": finding.shrink_runs,
                "rate": finding.rate.map(|(seen, runs)| json!({"seen": seen, "runs": runs})),
                "timeline": finding.timeline,
            })
        };
        let row = |row: &CoverageRow| json!({"fault": row.fault, "sites": row.sites});
        json!({
            "operator": self.operator,
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "schedules": self.schedules,
            "runs": self.runs,
            "seconds": self.elapsed.as_secs_f64(),
            "traces": self.traces,
            "states": self.states,
            "coverage": self.coverage.iter().map(row).collect::<Vec<_>>(),
            "warnings": self.warnings,
            "error": self.error,
        })
    }

    /// Writes the report to a folder, as JSON and as JUnit XML.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{}-{}-{}", self.operator, std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        std::fs::write(folder.join(format!("{name}.json")), self.to_json().to_string())?;
        std::fs::write(folder.join(format!("{name}.xml")), self.to_junit())
    }

    /// Returns the report as JUnit XML: each oracle is a test case.
    pub fn to_junit(&self) -> String {
        let failing = |oracle: Oracle| self.findings.iter().filter(move |finding| finding.oracle == oracle);
        let failures = Oracle::ALL.into_iter().filter(|oracle| failing(*oracle).next().is_some()).count();
        let errors = usize::from(self.error.is_some());
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        // Writing to a string cannot fail.
        let _ = writeln!(
            xml,
            "<testsuite name=\"explore {}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{:.3}\">",
            xml_escaped(&self.operator),
            Oracle::ALL.len() + errors,
            self.elapsed.as_secs_f64()
        );
        for oracle in Oracle::ALL {
            let texts: Vec<String> = failing(oracle).map(describe).collect();
            let open = format!("  <testcase classname=\"explore\" name=\"{oracle}\"");
            let _ = match texts.is_empty() {
                true => writeln!(xml, "{open}/>"),
                false => {
                    let text = xml_escaped(&texts.join("\n"));
                    writeln!(xml, "{open}><failure message=\"{}\">{text}</failure></testcase>", oracle.rule())
                }
            };
        }
        if let Some(error) = &self.error {
            let text = xml_escaped(error);
            let _ = writeln!(xml, "  <testcase classname=\"explore\" name=\"setup\"><error>{text}</error></testcase>");
        }
        xml + "</testsuite>\n"
    }
}

fn xml_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Describes a finding with its timeline.
fn describe(finding: &Finding) -> String {
    let faults = match finding.schedule.injections.len() {
        0 => "no fault".to_owned(),
        1 => "1 fault".to_owned(),
        faults => format!("{faults} faults"),
    };
    let mut text = format!("FAIL  {}: {}: {}\n", finding.oracle, finding.object, finding.text);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "rule: {}", finding.oracle.rule());
    let _ = writeln!(
        text,
        "found after {} schedules, {:.1} s; shrunk from {} to {faults} in {} runs",
        finding.schedules,
        finding.found_after.as_secs_f64(),
        finding.original.injections.len(),
        finding.shrink_runs
    );
    let _ = match finding.rate {
        None => writeln!(text, "replay: FLYBALL_SCHEDULE='{}'", finding.schedule),
        Some((seen, runs)) => {
            writeln!(text, "seen in {seen} of {runs} runs\nreplay: flyball explore … --replay '{}'", finding.schedule)
        }
    };
    finding.timeline.iter().for_each(|line| {
        let _ = writeln!(text, "{line}");
    });
    text
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            writeln!(f, "error: the operator {} cannot be explored: {error}", self.operator)?;
        }
        self.findings.iter().try_for_each(|finding| writeln!(f, "{}", describe(finding)))?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))?;
        writeln!(
            f,
            "{}: {} findings in {} schedules ({} runs, {} different traces, {} final states) in {:.1} s, {:.0} runs per \
             minute",
            self.operator,
            self.findings.len(),
            self.schedules,
            self.runs,
            self.traces,
            self.states,
            self.elapsed.as_secs_f64(),
            self.runs_per_minute()
        )?;
        for CoverageRow { fault, sites } in &self.coverage {
            let sites: Vec<String> = sites.iter().map(|(port, count)| format!("{port} {count}")).collect();
            writeln!(f, "  {fault:<20} {}", sites.join(", "))?;
        }
        Ok(())
    }
}

/// Returns the timeline of a run: faults, writes of users and the operator, and all changes of the violated object.
pub(crate) fn timeline(outcome: &Outcome, violation: &Violation) -> Vec<String> {
    let mut lines = vec!["  time        step  actor          write".to_owned()];
    let mut faults = outcome.occurrences.iter().peekable();
    for (n, change) in outcome.history.iter().enumerate() {
        while let Some(fault) = faults.next_if(|fault| fault.writes <= n) {
            lines.push(fault_line(fault));
        }
        let name = change.stable_name();
        let concerns = name == violation.object;
        if concerns || change.actor != Actor::ControlPlane {
            lines.push(change_line(change, &name, concerns));
        }
    }
    lines.extend(faults.map(fault_line));
    if lines.len() > MAX_LINES {
        let omitted = lines.len() - MAX_LINES;
        lines.splice(MAX_LINES / 2..MAX_LINES / 2 + omitted, [format!("  … {omitted} lines …")]);
    }
    lines.extend(output_lines(&outcome.process.output));
    lines.extend(outcome.errors.iter().take(5).map(|(error, count)| format!("  {count} × error of {error}")));
    lines
}

/// Returns the last lines of the output of an operator in another process.
fn output_lines(output: &[(Duration, String)]) -> Vec<String> {
    if output.is_empty() {
        return Vec::new();
    }
    let last = &output[output.len().saturating_sub(MAX_OUTPUT)..];
    let line = |(at, line): &(Duration, String)| format!("  {} │ {line}", time(*at));
    std::iter::once("  output of the operator, last lines:".to_owned()).chain(last.iter().map(line)).collect()
}

fn fault_line(fault: &Occurrence) -> String {
    format!("  {} ✱       FAULT          {} at {}", time(fault.at), fault.fault, fault.site)
}

fn change_line(change: &Change, name: &str, concerns: bool) -> String {
    let actor = match change.actor {
        Actor::User => "user".to_owned(),
        Actor::Operator(0) => "operator".to_owned(),
        Actor::Operator(process) => format!("operator/{process}"),
        Actor::Fault => "another user".to_owned(),
        Actor::ControlPlane => "control plane".to_owned(),
    };
    let uid = &change.meta().uid;
    let what = match (change.is_creation(), change.is_removal, change.begins_deletion()) {
        (true, ..) => "create",
        (_, true, _) => "removal of",
        (_, _, true) => "delete",
        _ => "update",
    };
    let mark = if concerns { '✗' } else { ' ' };
    let uid = uid.split('-').next().unwrap_or_default();
    format!(
        "  {} {mark} {:<4}  {actor:<13}  {what} {name}  (revision {}, uid {uid})",
        time(change.at),
        change.step,
        change.revision
    )
}

fn time(at: Duration) -> String {
    format!("{:02}:{:02}.{:03}", at.as_secs() / 60, at.as_secs() % 60, at.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let schedule: Schedule = "default; seed=1; patch:apps/statefulsets/web#2 crash-after".parse().unwrap();
        let finding = Finding {
            oracle: Oracle::History,
            object: "pods/a".to_owned(),
            field: String::new(),
            text: "it was deleted <once>".to_owned(),
            original: schedule.clone(),
            schedule,
            schedules: 7,
            found_after: Duration::from_millis(900),
            shrink_runs: 3,
            rate: None,
            timeline: vec!["  00:00.001".to_owned()],
        };
        Report {
            operator: "web".to_owned(),
            findings: vec![finding],
            schedules: 7,
            runs: 10,
            elapsed: Duration::from_secs(1),
            traces: 7,
            states: 2,
            coverage: vec![CoverageRow { fault: "crash-after", sites: vec![("patch", 3)] }],
            warnings: Vec::new(),
            error: None,
            sites: Vec::new(),
            trace: Vec::new(),
            cost: Cost::default(),
            request_counts: BTreeMap::new(),
        }
    }

    #[test]
    fn report_names_rule_object_and_replay() {
        let text = report().to_string();
        for part in [
            "FAIL  history: pods/a: it was deleted <once>",
            "rule: no object is created or deleted more often",
            "replay: FLYBALL_SCHEDULE='default; seed=1; patch:apps/statefulsets/web#2 crash-after'",
            "crash-after          patch 3",
            "600 runs per minute",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn junit_has_a_case_for_each_oracle() {
        let xml = report().to_junit();
        assert!(xml.contains("tests=\"18\" failures=\"1\"") && xml.contains("deleted &lt;once&gt;"), "{xml}");
        assert_eq!(xml.matches("<testcase ").count(), Oracle::ALL.len());
        assert_eq!(report().to_json()["findings"][0]["oracle"], "history");
    }
}
