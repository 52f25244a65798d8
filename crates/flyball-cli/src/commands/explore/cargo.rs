//! Explorations of a project in Rust: its tests whose names begin with `explore_`.

use super::progress::SearchProgress;
use super::{ExploreArgs, Format, Reports};
use crate::error::{Error, Result, ResultExt};
use crate::explore::kept;
use crate::files::entries;
use crate::files::private::PrivateDirectory;
use crate::operator::program;
use crate::project::enter_project;
use crate::testing::{Outcome, TestOutput, cargo_test, run_with};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

/// Name prefix of the tests.
const PREFIX: &str = "explore_";

/// Runs the tests, and collects the reports that they write.
pub(super) fn explore(args: &ExploreArgs, kept: &[String]) -> Result<Reports> {
    args.check_flags()?;
    enter_project(std::iter::empty())?;
    program::check_project()?;
    let folder = PrivateDirectory::new("flyball-explore")?;
    let mut cargo = cargo_test();
    cargo.arg(PREFIX).args(&args.args);
    cargo.env("FLYBALL_EXPLORE_BUDGET", args.budget.to_string());
    cargo.env("FLYBALL_EXPLORE_SEED", args.seed.to_string());
    cargo.env("FLYBALL_EXPLORE_REPORTS", folder.path());
    cargo.env("FLYBALL_EXPLORE_KEPT", kept.join("\n"));
    cargo.envs(args.replay.as_ref().map(|line| ("FLYBALL_SCHEDULE", line)));
    if args.pause {
        cargo.stdin(Stdio::inherit()).env("FLYBALL_EXPLORE_PAUSE", "1").env("RUST_TEST_THREADS", "1");
    }
    let output = if args.output == Format::Text { TestOutput::Stdout } else { TestOutput::Stderr };
    let (tests, succeeded) = {
        let progress = args.replay.is_none().then(|| SearchProgress::start(folder.path()));
        run_with(cargo, output, |print| match &progress {
            Some(progress) => progress.interrupt(print),
            None => print(),
        })?
    };
    let mut reports = Reports::default();
    for path in entries(folder.path())? {
        let text = fs::read_to_string(&path).context(format!("cannot read {}", path.display()))?;
        match path.extension().and_then(|end| end.to_str()) {
            Some("json") => reports.values.push(serde_json::from_str(&text).context("a report is not valid JSON")?),
            Some("xml") => reports.suites.push(text),
            _ => {}
        }
    }
    reports.texts = reports.values.iter().map(summary).collect();
    let failed = tests.count(Outcome::Failed);
    match reports.values.is_empty() {
        true if tests.count(Outcome::Passed) + failed == 0 && succeeded => {
            Err(Error::usage(format!("no test explores an operator: none begins with {PREFIX}"))
                .hint("add one that calls flyball_explore::Explorer, see docs/explore.md"))
        }
        true if failed > 0 => Err(Error::new(format!("{failed} tests failed before they explored"))),
        true => Err(Error::usage("cannot run the tests")),
        false => Ok(reports),
    }
}

impl ExploreArgs {
    /// Rejects the flags of processes.
    fn check_flags(&self) -> Result<()> {
        let given = [
            ("--samples", !self.samples.is_empty()),
            ("--scenario", !self.scenario.is_empty()),
            ("--wait", !self.wait.is_empty()),
            ("--campaigns", self.campaigns),
            ("--jobs", self.jobs.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((flag, _)) => {
                Err(Error::usage(format!("{flag} needs --exec or --program: tests in Rust declare it themselves"))
                    .hint("see flyball_explore::Explorer, or pass --program FILE or --exec COMMAND"))
            }
        }
    }
}

/// Returns a line about a report.
fn summary(report: &Value) -> String {
    let count = report["findings"].as_array().map_or(0, Vec::len);
    let (operator, seconds) = (report["operator"].as_str().unwrap_or_default(), report["seconds"].as_f64());
    format!(
        "{operator}: {count} findings in {} schedules, {:.1} s{}",
        report["schedules"],
        seconds.unwrap_or_default(),
        if count > 0 {
            format!("; keep them: flyball explore --keep NAME writes {}", kept::FILE)
        } else {
            String::new()
        }
    )
}
