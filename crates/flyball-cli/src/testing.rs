//! What `cargo test` says, as data: test programs, their tests, and what became of them.
//!
//! On a stable toolchain a test program speaks to people only. Its lines have been the same for years; what is not understood
//! is passed over, and a program that ends before it has told of all its tests is noticed.

mod run;

pub(crate) use run::{Voice, cargo_test, run};

use serde::Serialize;
use std::fmt::Write;

/// What the tests of a project's chaos suite are called.
pub(crate) const CHAOS: &str = "chaos_";

/// What became of all tests.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) suites: Vec<Suite>,
    /// The test whose name was told, and its end not yet.
    #[serde(skip)]
    open: Option<String>,
    /// Whose output is being told.
    #[serde(skip)]
    speaker: Option<(usize, usize)>,
}

/// One test program.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) tests: Vec<Test>,
    /// How long it took.
    pub(crate) seconds: f64,
    /// How many tests it has, by its own word.
    #[serde(skip)]
    announced: usize,
    /// Whether it came to its end.
    #[serde(skip)]
    is_over: bool,
}

/// One test.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// What a test that failed said.
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
    pub(crate) fn word(self) -> &'static str {
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
        self.name.rsplit("::").next().unwrap_or_default()
    }

    /// Tells whether it is one of the chaos suite.
    pub(crate) fn is_chaos(&self) -> bool {
        self.own_name().starts_with(CHAOS)
    }
}

impl Report {
    /// Returns all tests.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &Test> {
        self.suites.iter().flat_map(|suite| &suite.tests)
    }

    /// Takes in a line of what cargo and the test programs say.
    pub(crate) fn hear(&mut self, line: &str) {
        let line = &plain(line);
        let trimmed = line.trim_start();
        if let Some(name) = suite(trimmed) {
            (self.open, self.speaker) = (None, None);
            self.suites.push(Suite { name, ..Suite::default() });
            return;
        }
        // Where cargo's own words are not heard, programs have no names.
        if line.starts_with("running ") && self.suites.last().is_none_or(|last| last.name.is_empty() && last.is_over) {
            self.suites.push(Suite::default());
        }
        let at = self.suites.len().wrapping_sub(1);
        let Some(suite) = self.suites.last_mut() else { return };
        if let Some(rest) = line.strip_prefix("running ")
            && let Some(count) = rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test"))
        {
            suite.announced += count.parse::<usize>().unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            let seconds = rest.rsplit_once("finished in ").and_then(|(_, text)| text.trim().strip_suffix('s'));
            suite.seconds += seconds.and_then(|seconds| seconds.parse::<f64>().ok()).unwrap_or_default();
            suite.is_over = true;
            (self.open, self.speaker) = (None, None);
        } else if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----")) {
            let name = name.strip_suffix(" stdout").unwrap_or(name);
            self.speaker = suite.tests.iter().position(|test| test.name == name).map(|test| (at, test));
        } else if line == "failures:" || line == "successes:" {
            self.speaker = None;
        } else if let Some((suite_at, test)) = self.speaker {
            if let Some(test) = self.suites.get_mut(suite_at).and_then(|suite| suite.tests.get_mut(test)) {
                test.output.push_str(line);
                test.output.push('\n');
            }
        } else if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            // The harness says more of a test behind its name, such as that it should panic.
            let name = name.strip_suffix(" - should panic").unwrap_or(name).to_owned();
            match outcome(end) {
                Some(outcome) => suite.tests.push(Test { name, outcome, output: String::new() }),
                None => self.open = Some(name),
            }
        } else if let Some(outcome) = outcome(line).filter(|_| self.open.is_some()) {
            // One at a time, a test may say something between its name and its end.
            let name = self.open.take().unwrap_or_default();
            suite.tests.push(Test { name, outcome, output: String::new() });
        }
    }

    /// Takes note that nothing more comes: programs that did not come to their end have failed.
    pub(crate) fn end(&mut self) {
        let open = self.open.take();
        for suite in &mut self.suites {
            for test in &mut suite.tests {
                test.output = test.output.trim().to_owned();
            }
            if !suite.is_over {
                let missing = suite.announced.saturating_sub(suite.tests.len()).max(1);
                let name = open.clone().unwrap_or_else(|| "(the test program)".into());
                let output = format!("the test program ended before it was done; {missing} tests have no outcome");
                suite.tests.push(Test { name, outcome: Outcome::Failed, output });
            }
        }
    }

    /// Counts the tests with an outcome.
    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.suites.iter().map(|suite| suite.count(outcome)).sum()
    }

    /// Writes it as JUnit's XML, which nobody has specified and all read alike: <https://github.com/testmoapp/junitxml>.
    pub(crate) fn junit(&self) -> String {
        let total: usize = self.suites.iter().map(|suite| suite.tests.len()).sum();
        let counts = |tests: usize, failed: usize, ignored: usize, seconds: f64| {
            format!("tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" skipped=\"{ignored}\" time=\"{seconds:.3}\"")
        };
        let seconds = self.suites.iter().map(|suite| suite.seconds).sum();
        let all = counts(total, self.count(Outcome::Failed), self.count(Outcome::Ignored), seconds);
        let mut xml = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"flyball test\" {all}>\n");
        for suite in &self.suites {
            let name = escape(&suite.name);
            let failed = suite.count(Outcome::Failed);
            let counts = counts(suite.tests.len(), failed, suite.count(Outcome::Ignored), suite.seconds);
            let _ = writeln!(xml, "  <testsuite name=\"{name}\" {counts}>");
            for test in &suite.tests {
                let case = format!("    <testcase name=\"{}\" classname=\"{name}\"", escape(&test.name));
                let _ = match test.outcome {
                    Outcome::Passed => writeln!(xml, "{case}/>"),
                    Outcome::Ignored => writeln!(xml, "{case}><skipped/></testcase>"),
                    Outcome::Failed => {
                        let message = test.output.lines().find(|line| !line.trim().is_empty()).unwrap_or("failed");
                        let (message, output) = (escape(message), escape(&test.output));
                        writeln!(xml, "{case}><failure message=\"{message}\">{output}</failure></testcase>")
                    }
                };
            }
            xml.push_str("  </testsuite>\n");
        }
        xml + "</testsuites>\n"
    }
}

impl Suite {
    fn count(&self, outcome: Outcome) -> usize {
        self.tests.iter().filter(|test| test.outcome == outcome).count()
    }
}

/// Reads which test program begins: `Running tests/it/main.rs (target/debug/deps/it-0123456789abcdef)`.
fn suite(line: &str) -> Option<String> {
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{name} (examples in documentation)"));
    }
    let (source, program) = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?;
    let file = program.rsplit(['/', '\\']).next()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _hash)| name);
    Some(format!("{name} ({})", source.trim_start_matches("unittests ")))
}

fn outcome(end: &str) -> Option<Outcome> {
    // With a time behind it, if the harness was asked for one.
    let word = end.split([' ', ',']).next().unwrap_or_default();
    match word {
        "ok" => Some(Outcome::Passed),
        "FAILED" => Some(Outcome::Failed),
        "ignored" => Some(Outcome::Ignored),
        _ => None,
    }
}

/// Takes colours off.
fn plain(line: &str) -> String {
    let mut in_colour = false;
    let keep = |c: &char| {
        let skip = in_colour || *c == '\x1b';
        in_colour = skip && !c.is_ascii_alphabetic();
        !skip
    };
    line.chars().filter(keep).collect()
}

/// Writes text as XML has it, without the characters that it has no way to write.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            '\t' => escaped.push('\t'),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "   Compiling op v0.1.0 (/op)
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
test first ... hello
ok
test second ... about to abort
error: test failed, to rerun pass `--test it`
   Doc-tests op

running 1 test
test src/lib.rs - (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    #[test]
    fn what_cargo_says_becomes_data() {
        let mut report = Report::default();
        SAID.lines().for_each(|line| report.hear(line));
        report.end();
        let names: Vec<&str> = report.suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(names, ["op (src/lib.rs)", "it (tests/it.rs)", "op (examples in documentation)"]);
        let told = |suite: usize| -> Vec<(&str, Outcome)> {
            report.suites[suite].tests.iter().map(|test| (test.name.as_str(), test.outcome)).collect()
        };
        use Outcome::{Failed, Ignored, Passed};
        assert_eq!(told(0), [("tests::good", Passed), ("tests::slow", Ignored), ("tests::bad", Failed)]);
        assert_eq!(told(1)[0], ("first", Passed));
        assert_eq!(report.suites[1].tests.len(), 2, "the one that has no outcome counts as failed");
        assert_eq!(told(2), [("src/lib.rs - (line 3)", Passed)]);
        assert!(report.suites[0].tests[2].output.contains("1 < 2 & \"x\""), "{report:?}");

        let xml = report.junit();
        assert!(
            xml.contains("<testsuites name=\"flyball test\" tests=\"6\" failures=\"2\" errors=\"0\" skipped=\"1\""),
            "{xml}"
        );
        assert!(xml.contains("1 &lt; 2 &amp; &quot;x&quot;"), "{xml}");
        assert_eq!(escape("a\u{1b}[0m\u{0}"), "a\u{fffd}[0m\u{fffd}");
    }
}
