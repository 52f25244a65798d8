//! Output of `cargo test` as data: test programs, tests and results.
//!
//! On a stable toolchain, test programs print text for people only. The format has been stable for years; unknown lines
//! are skipped, and a program that exits before it has reported all of its tests is detected.

mod junit;
mod run;
mod targets;

pub(crate) use run::{TestOutput, cargo_test, run, run_with};
pub(crate) use targets::Targets;

use crate::scorecard::{Check, CheckOutcome};
use clap::ValueEnum;
use serde::Serialize;
use std::time::Duration;

/// Name prefix of tests of the chaos suite.
pub(crate) const CHAOS: &str = "chaos_";

/// Results of all tests.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) programs: Vec<Program>,
    /// The test whose name was printed, but not its result.
    #[serde(skip)]
    open: Option<String>,
    /// The test whose output is being printed.
    #[serde(skip)]
    failure: Option<(usize, usize)>,
}

/// Suite of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Suite {
    /// Unit tests and examples in documentation
    #[default]
    Unit,
    /// Integration tests, whose operators run on control planes; with a watches.yaml, the cases in tests/e2e
    Cluster,
    /// All tests whose names begin with chaos_
    Chaos,
    /// Checks of `flyball scorecard`
    Scorecard,
}

/// Counts of outcomes of a suite.
#[derive(Debug, Serialize)]
pub(crate) struct Count {
    pub(crate) suite: Suite,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

/// One test program.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// Default suite of its tests.
    #[serde(skip)]
    suite: Suite,
    pub(crate) tests: Vec<Test>,
    /// Duration.
    pub(crate) seconds: f64,
    /// Number of tests as reported.
    #[serde(skip)]
    announced: usize,
    /// Set if it completed.
    #[serde(skip)]
    is_over: bool,
}

/// One test.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) suite: Suite,
    pub(crate) outcome: Outcome,
    /// Output of a failed test, or reason of a skipped one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) output: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Ignored,
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Ignored => "ignored",
        }
    }
}

impl Test {
    /// Returns its name without that of its modules.
    pub(crate) fn own_name(&self) -> &str {
        own_name(&self.name)
    }
}

impl Report {
    /// Creates the report of test cases in a directory: their names, and the messages of those that failed.
    pub(crate) fn of_cases<'c>(
        folder: &str,
        cases: impl IntoIterator<Item = (&'c str, Option<&'c str>)>,
        took: Duration,
    ) -> Self {
        let mut program = Program { name: folder.into(), suite: Suite::Cluster, ..Program::default() };
        (program.seconds, program.is_over) = (took.as_secs_f64(), true);
        for (name, failure) in cases {
            let outcome = if failure.is_some() { Outcome::Failed } else { Outcome::Passed };
            program.add(name.to_owned(), outcome, failure.unwrap_or_default().to_owned());
        }
        Self { programs: vec![program], ..Self::default() }
    }

    /// Creates the report of a scorecard with this duration.
    pub(crate) fn of_scorecard(checks: &[Check], took: Duration) -> Self {
        let mut program =
            Program { name: "the operator's program".into(), suite: Suite::Scorecard, ..Program::default() };
        (program.seconds, program.is_over) = (took.as_secs_f64(), true);
        for Check { name, found } in checks {
            let (outcome, output) = match found {
                CheckOutcome::Passed => (Outcome::Passed, String::new()),
                CheckOutcome::Failed { why, remedy } => (Outcome::Failed, format!("{why}\n{remedy}")),
                CheckOutcome::Skipped { why } => (Outcome::Ignored, why.clone()),
            };
            program.add((*name).to_owned(), outcome, output);
        }
        Self { programs: vec![program], ..Self::default() }
    }

    /// Adds the report of another directory.
    pub(crate) fn add(&mut self, other: Self) {
        self.programs.extend(other.programs);
    }

    /// Returns all tests.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &Test> {
        self.programs.iter().flat_map(|program| &program.tests)
    }

    /// Counts the tests of each suite that has any.
    pub(crate) fn counts(&self) -> Vec<Count> {
        let suites = Suite::value_variants().iter().copied();
        let has_any = suites.filter(|suite| self.tests().any(|test| test.suite == *suite));
        let of = |suite, outcome| self.tests().filter(|test| (test.suite, test.outcome) == (suite, outcome)).count();
        let count = |suite| Count {
            suite,
            passed: of(suite, Outcome::Passed),
            failed: of(suite, Outcome::Failed),
            ignored: of(suite, Outcome::Ignored),
        };
        has_any.map(count).collect()
    }

    /// Parses a line of output of cargo and the test programs.
    pub(crate) fn parse_line(&mut self, line: &str) {
        let line = &plain(line);
        let trimmed = line.trim_start();
        if let Some((name, suite)) = program(trimmed) {
            (self.open, self.failure) = (None, None);
            self.programs.push(Program { name, suite, ..Program::default() });
            return;
        }
        let announced = line.strip_prefix("running ");
        let announced = announced.and_then(|rest| rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test")));
        // Without the output of cargo, programs have no names.
        if announced.is_some() && self.programs.last().is_none_or(|last| last.name.is_empty()) {
            (self.open, self.failure) = (None, None);
            self.programs.push(Program::default());
        }
        let at = self.programs.len().wrapping_sub(1);
        let Some(program) = self.programs.last_mut() else { return };
        if let Some(count) = announced {
            program.announced += count.parse::<usize>().unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            let seconds = rest.rsplit_once("finished in ").and_then(|(_, text)| text.trim().strip_suffix('s'));
            program.seconds += seconds.and_then(|seconds| seconds.parse::<f64>().ok()).unwrap_or_default();
            program.is_over = true;
            (self.open, self.failure) = (None, None);
        } else if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----")) {
            let name = name.strip_suffix(" stdout").unwrap_or(name);
            self.failure = program.tests.iter().position(|test| test.name == name).map(|test| (at, test));
        } else if line == "failures:" || line == "successes:" {
            self.failure = None;
        } else if let Some((program_at, test)) = self.failure {
            if let Some(test) = self.programs.get_mut(program_at).and_then(|program| program.tests.get_mut(test)) {
                test.output.push_str(line);
                test.output.push('\n');
            }
        } else if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            // The harness adds remarks after the name of a test, such as that it should panic.
            let name = name.strip_suffix(" - should panic").unwrap_or(name).to_owned();
            match outcome(end) {
                Some(outcome) => program.add(name, outcome, String::new()),
                None => self.open = Some(name),
            }
        } else if let Some(outcome) = outcome(line).filter(|_| self.open.is_some()) {
            // With one test thread, a test may print between its name and its result.
            let name = self.open.take().unwrap_or_default();
            program.add(name, outcome, String::new());
        }
    }

    /// Handles the end of the output: unfinished test programs have failed.
    pub(crate) fn finish(&mut self) {
        let open = self.open.take();
        for program in &mut self.programs {
            for test in &mut program.tests {
                test.output = test.output.trim().to_owned();
            }
            if !program.is_over {
                let missing = program.announced.saturating_sub(program.tests.len()).max(1);
                let name = open.clone().unwrap_or_else(|| "(the test program)".into());
                let output = format!("the test program exited early; {missing} tests have no outcome");
                program.add(name, Outcome::Failed, output);
            }
        }
    }

    /// Counts the tests with an outcome.
    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.programs.iter().map(|program| program.count(outcome)).sum()
    }
}

impl Suite {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Cluster => "cluster",
            Self::Chaos => "chaos",
            Self::Scorecard => "scorecard",
        }
    }
}

fn own_name(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or_default()
}

impl Program {
    fn add(&mut self, name: String, outcome: Outcome, output: String) {
        let suite = if own_name(&name).starts_with(CHAOS) { Suite::Chaos } else { self.suite };
        self.tests.push(Test { name, suite, outcome, output });
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.tests.iter().filter(|test| test.outcome == outcome).count()
    }
}

/// Reads which test program begins: `Running tests/it/main.rs (target/debug/deps/it-0123456789abcdef)`.
fn program(line: &str) -> Option<(String, Suite)> {
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some((format!("{name} (examples in documentation)"), Suite::Unit));
    }
    let (source, program) = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?;
    let file = program.rsplit(['/', '\\']).next()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _hash)| name);
    let (source, suite) = match source.strip_prefix("unittests ") {
        Some(source) => (source, Suite::Unit),
        None => (source, Suite::Cluster),
    };
    Some((format!("{name} ({source})"), suite))
}

fn outcome(end: &str) -> Option<Outcome> {
    // With a time, if the harness reports times.
    let word = end.split([' ', ',']).next().unwrap_or_default();
    match word {
        "ok" => Some(Outcome::Passed),
        "FAILED" => Some(Outcome::Failed),
        "ignored" => Some(Outcome::Ignored),
        _ => None,
    }
}

/// Removes color codes.
fn plain(line: &str) -> String {
    let mut in_color = false;
    let keep = |c: &char| {
        let skip = in_color || *c == '\x1b';
        in_color = skip && !c.is_ascii_alphabetic();
        !skip
    };
    line.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARGO_OUTPUT: &str = "   Compiling op v0.1.0 (/op)
\x1b[1m\x1b[32m     Running\x1b[0m unittests src/lib.rs (target/debug/deps/op-0123456789abcdef)

running 3 tests
test tests::good ... ok
test tests::slow ... ignored, takes long
test tests::bad - should panic ... FAILED

failures:

---- tests::bad stdout ----

thread 'tests::bad' panicked at src/lib.rs:7:5:
1 < 2 & \"x\"
test result: is what a test may say

failures:
    tests::bad

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.25s

     Running tests/it.rs (target/debug/deps/it-fedcba9876543210)

running 2 tests
test a::chaos_first ... hello
ok
test second ... about to abort
error: test failed, to rerun pass `--test it`
   Doc-tests op

running 1 test
test src/lib.rs - (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    #[test]
    fn cargo_output_is_parsed() {
        let mut report = Report::default();
        CARGO_OUTPUT.lines().for_each(|line| report.parse_line(line));
        report.finish();
        let names: Vec<&str> = report.programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["op (src/lib.rs)", "it (tests/it.rs)", "op (examples in documentation)"]);
        let results = |program: usize| -> Vec<(&str, Outcome)> {
            report.programs[program].tests.iter().map(|test| (test.name.as_str(), test.outcome)).collect()
        };
        use Outcome::{Failed, Ignored, Passed};
        assert_eq!(results(0), [("tests::good", Passed), ("tests::slow", Ignored), ("tests::bad", Failed)]);
        assert_eq!(results(1)[0], ("a::chaos_first", Passed));
        assert_eq!(report.programs[1].tests.len(), 2, "the one that has no outcome counts as failed");
        assert_eq!(results(2), [("src/lib.rs - (line 3)", Passed)]);
        assert!(report.programs[0].tests[2].output.contains("1 < 2 & \"x\""), "{report:?}");

        // Programs are distinguished without cargo's output.
        let mut unnamed = Report::default();
        let mine = |line: &&str| !line.contains("Running") && !line.contains("Doc-tests");
        CARGO_OUTPUT.lines().filter(mine).for_each(|line| unnamed.parse_line(line));
        unnamed.finish();
        let outcomes =
            |report: &Report| report.tests().map(|test| (test.name.clone(), test.outcome)).collect::<Vec<_>>();
        assert_eq!(outcomes(&unnamed), outcomes(&report));

        let counts: Vec<_> = report.counts().iter().map(|count| (count.suite, count.passed, count.failed)).collect();
        assert_eq!(counts, [(Suite::Unit, 2, 1), (Suite::Cluster, 0, 1), (Suite::Chaos, 1, 0)]);

        let xml = report.junit();
        assert!(
            xml.contains("<testsuites name=\"flyball test\" tests=\"6\" failures=\"2\" errors=\"0\" skipped=\"1\""),
            "{xml}"
        );
        assert!(xml.contains("1 &lt; 2 &amp; &quot;x&quot;"), "{xml}");
    }
}
