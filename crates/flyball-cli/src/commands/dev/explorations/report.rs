//! The results of explorations, for the page.

use super::display;
use crate::operator::program::Program;
use flyball_console::{FinishedExploration, FoundViolation, RunningExploration};
use flyball_explore::{Finding, Report};
use std::path::PathBuf;

/// Limit of the messages of a run.
const MAX_MESSAGES: usize = 400;
/// Limits of texts.
const MAX_TEXT_CHARS: usize = 2_000;

/// The parts of a command that repeats an exploration.
pub(super) struct Repetition<'a> {
    pub(super) program: &'a Program,
    pub(super) samples: &'a [PathBuf],
    pub(super) args: &'a [String],
}

impl Repetition<'_> {
    /// Returns the command line that replays a schedule.
    fn command(&self, schedule: &str) -> String {
        let mut line = format!("flyball explore --program {}", quoted(&display(self.program)));
        for path in self.samples {
            line += &format!(" --samples {}", quoted(&path.display().to_string()));
        }
        line += &format!(" --replay {}", quoted(schedule));
        if !self.args.is_empty() {
            line += " --";
            self.args.iter().for_each(|arg| line += &format!(" {}", quoted(arg)));
        }
        line
    }
}

/// Quotes a word for a shell, if needed.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Describes the result of an exploration, without its number and end.
pub(super) fn finished(
    shown: &RunningExploration,
    explored: Result<Report, String>,
    repetition: &Repetition<'_>,
) -> FinishedExploration {
    let mut finished = FinishedExploration {
        number: 0,
        task: shown.task,
        sample: shown.sample.clone(),
        schedule: shown.schedule.clone(),
        ended: String::new(),
        seconds: shown.seconds,
        schedules: 0,
        runs: 0,
        error: String::new(),
        warnings: Vec::new(),
        findings: Vec::new(),
        coverage: Vec::new(),
        trace: Vec::new(),
        trace_omitted: 0,
        is_stopped: shown.is_stopping,
    };
    match explored {
        Err(error) => finished.error = bounded(&error),
        Ok(report) => {
            (finished.schedules, finished.runs) = (report.schedules(), report.runs());
            finished.error = report.error().map(bounded).unwrap_or_default();
            finished.warnings = report.warnings().iter().map(|text| bounded(text)).collect();
            finished.findings = report.findings().iter().map(|found| violation(found, repetition)).collect();
            let sites = |row: &flyball_explore::CoverageRow| row.sites.iter().map(|(_, count)| count).sum();
            finished.coverage = report.coverage().iter().map(|row| (row.fault.to_owned(), sites(row))).collect();
            finished.trace = report.trace().iter().take(MAX_MESSAGES).map(|line| without_body(line)).collect();
            finished.trace_omitted = report.trace().len().saturating_sub(MAX_MESSAGES);
        }
    }
    finished
}

fn violation(found: &Finding, repetition: &Repetition<'_>) -> FoundViolation {
    let schedule = found.schedule.to_string();
    FoundViolation {
        oracle: found.oracle.name().to_owned(),
        rule: found.oracle.rule().to_owned(),
        object: bounded(&found.object),
        field: bounded(&found.field),
        text: bounded(&found.text),
        command: repetition.command(&schedule),
        schedule,
        rate: found.rate,
        timeline: found.timeline.iter().map(|line| bounded(line)).collect(),
    }
}

/// Removes the body of a message, which may contain a Secret.
fn without_body(line: &str) -> String {
    let end = line.find(" {").unwrap_or(line.len());
    bounded(line[..end].trim_end())
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_repeats_a_schedule_in_a_shell() {
        let program = Program::File("target/debug/site operator".into());
        let (samples, args) = ([PathBuf::from("config/samples/a.yaml")], ["--resync".to_owned(), "1's".to_owned()]);
        let repetition = Repetition { program: &program, samples: &samples, args: &args };
        assert_eq!(
            repetition.command("default; seed=1; create:pods/*#1 crash-after"),
            "flyball explore --program 'target/debug/site operator' --samples config/samples/a.yaml \
             --replay 'default; seed=1; create:pods/*#1 crash-after' -- --resync '1'\\''s'"
        );
    }

    #[test]
    fn messages_have_no_bodies() {
        let line = r#"4711 create:secrets/a#1 → 201 {"data": {"password": "s3cret"}}"#;
        assert_eq!(without_body(line), "4711 create:secrets/a#1 → 201");
        assert_eq!(without_body("4711 step:2#1 "), "4711 step:2#1");
    }
}
