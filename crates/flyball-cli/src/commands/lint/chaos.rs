//! Results of a project's chaos suite: outcomes of its tests, and the faults that they report in a file.
//!
//! The name of a test selects it for the suite; the injected faults are reported by `flyball_cluster::testing`.

use crate::error::{Result, ResultExt};
use crate::files::private::PrivateDirectory;
use crate::testing::{CHAOS, Outcome, Report, Suite, Test, TestOutput, cargo_test, run};
use serde::Deserialize;
use std::fs;

/// Environment variable with the file for reports of injected faults.
const FILE: &str = "FLYBALL_TEST_CHAOS";
/// Minimum downtime of an operator in seconds, for a meaningful test.
const MIN_OUTAGE_SECONDS: u64 = 600;

/// Results of the suite.
pub(super) struct Chaos {
    report: Report,
    succeeded: bool,
    runs: Vec<ChaosRun>,
}

/// A fault that was injected into an operator.
#[derive(Deserialize)]
struct ChaosRun {
    #[serde(rename = "done")]
    fault: Fault,
    passed: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Fault {
    Crashes(u64),
    Outage { seconds: u64 },
}

impl Chaos {
    /// Runs the suite of the project in this directory, with cargo's output.
    pub(super) fn run() -> Result<Self> {
        let folder = PrivateDirectory::new("flyball-lint")?;
        let file = folder.path().join("chaos");
        let mut cargo = cargo_test();
        // The suite never runs on a real cluster.
        cargo.args(["--tests", "--", CHAOS]).env(FILE, &file).env_remove("FLYBALL_TEST_KUBECONFIG");
        let (report, succeeded) = run(cargo, TestOutput::Failures)?;
        let chaos_report = fs::read_to_string(&file).unwrap_or_default();
        let runs = chaos_report.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        Ok(Self { report, succeeded, runs: runs.context("cannot read a test's report of the operator")? })
    }

    /// Returns the reason why the suite is missing or fails.
    pub(super) fn suite_problem(&self) -> Option<String> {
        let tests: Vec<&Test> = self.report.tests().filter(|test| test.suite == Suite::Chaos).collect();
        let named = |outcome| tests.iter().filter(move |test| test.outcome == outcome).map(|test| test.name.as_str());
        let failed: Vec<&str> = named(Outcome::Failed).collect();
        let did = self.runs.iter().any(|run| !matches!(run.fault, Fault::Crashes(0)));
        match () {
            () if !failed.is_empty() => Some(format!("{} failed: fix the operator or the test", failed.join(", "))),
            () if !self.succeeded => Some("cannot run the tests; see cargo's output above".into()),
            () if named(Outcome::Passed).next().is_none() => Some(format!(
                "no test has a name that begins with {CHAOS}: add one, see the tests that `flyball create api` writes"
            )),
            () if !did => Some(format!("tests named {CHAOS}… inject no fault: call explore_crashes")),
            () => None,
        }
    }

    /// Returns the reason why the suite does not prove that an outage of the operator is harmless.
    pub(super) fn outage_problem(&self) -> Option<String> {
        let outages = || {
            self.runs.iter().filter_map(|run| match run.fault {
                Fault::Outage { seconds } => Some((seconds, run.passed)),
                Fault::Crashes(_) => None,
            })
        };
        if let Some((seconds, _)) = outages().find(|(_, passed)| !passed) {
            return Some(format!("an outage of {seconds} s changed objects: see the failed test"));
        }
        match outages().map(|(seconds, _)| seconds).max() {
            Some(seconds) if seconds >= MIN_OUTAGE_SECONDS => None,
            longest => Some(format!(
                "the longest outage in a {CHAOS}… test is {} s: call Test::assert_outage_is_harmless with {MIN_OUTAGE_SECONDS} s",
                longest.unwrap_or_default()
            )),
        }
    }
}
