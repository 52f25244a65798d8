//! A report in JUnit's XML, which has no official specification: <https://github.com/testmoapp/junitxml>.

use super::{Outcome, Report};
use std::fmt::Write;

impl Report {
    /// Writes it as XML; the class of a test is its suite and its program.
    pub(crate) fn junit(&self) -> String {
        let total: usize = self.programs.iter().map(|program| program.tests.len()).sum();
        let counts = |tests: usize, failed: usize, ignored: usize, seconds: f64| {
            format!("tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" skipped=\"{ignored}\" time=\"{seconds:.3}\"")
        };
        let seconds = self.programs.iter().map(|program| program.seconds).sum();
        let all = counts(total, self.count(Outcome::Failed), self.count(Outcome::Ignored), seconds);
        let mut xml = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"flyball test\" {all}>\n");
        for program in &self.programs {
            let name = escape(&program.name);
            let failed = program.count(Outcome::Failed);
            let counts = counts(program.tests.len(), failed, program.count(Outcome::Ignored), program.seconds);
            let _ = writeln!(xml, "  <testsuite name=\"{name}\" {counts}>");
            for test in &program.tests {
                let case = format!(
                    "    <testcase name=\"{}\" classname=\"{}: {name}\"",
                    escape(&test.name),
                    test.suite.as_str()
                );
                let _ = match test.outcome {
                    Outcome::Passed => writeln!(xml, "{case}/>"),
                    Outcome::Ignored if test.output.is_empty() => writeln!(xml, "{case}><skipped/></testcase>"),
                    Outcome::Ignored => {
                        writeln!(xml, "{case}><skipped message=\"{}\"/></testcase>", escape(&test.output))
                    }
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

/// Escapes text for XML and removes characters that XML does not allow.
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
    use crate::scorecard::{Check, CheckOutcome};
    use std::time::Duration;

    #[test]
    fn checks_are_reported_as_tests() {
        let check = |name, found| Check { name, found };
        let failed = CheckOutcome::Failed { why: "a & b".into(), remedy: "do c".into() };
        let skipped = CheckOutcome::Skipped { why: "no d".into() };
        let checks = [check("one", CheckOutcome::Passed), check("two", failed), check("three", skipped)];
        let xml = Report::of_scorecard(&checks, Duration::from_secs(2)).junit();
        for line in [
            "tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\" time=\"2.000\"",
            "<failure message=\"a &amp; b\">a &amp; b\ndo c</failure>",
            "<testcase name=\"three\" classname=\"scorecard: the operator's program\"><skipped message=\"no d\"/></testcase>",
        ] {
            assert!(xml.contains(line), "{line}: {xml}");
        }
    }

    #[test]
    fn characters_invalid_in_xml_are_replaced() {
        assert_eq!(escape("a\u{1b}[0m\u{0}"), "a\u{fffd}[0m\u{fffd}");
    }
}
