//! The report of a run: names of objects and fields, never values.

use crate::text::xml;
use crate::verdict::Verdict;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Result of an experiment, with its reasons, effects and changes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Name of the experiment.
    pub name: String,
    /// Name of the fault.
    pub fault: String,
    /// The result.
    pub verdict: Verdict,
    /// Time to recover.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds")]
    pub recovery_seconds: Option<Duration>,
    /// Reasons of the result.
    pub reasons: Vec<String>,
    /// Effects of the fault while it was in place.
    pub effects: Vec<String>,
    /// Injected changes.
    pub changes: Vec<String>,
    /// The error of the undo, if changes are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_error: Option<String>,
}

/// Report of a run: the result of each experiment, and notes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Operator with its namespace.
    pub operator: String,
    /// Name of the run.
    pub run: String,
    /// Start in RFC 3339.
    pub started: String,
    /// Results in order.
    pub outcomes: Vec<Outcome>,
    /// Remarks about the operator.
    pub notes: Vec<String>,
    /// True if a signal ended the run.
    pub interrupted: bool,
}

fn seconds<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0),
        None => serializer.serialize_none(),
    }
}

impl Report {
    /// Returns the worst result; skipped experiments do not count.
    pub fn worst(&self) -> Option<Verdict> {
        self.outcomes.iter().map(|outcome| outcome.verdict).max().filter(|verdict| *verdict != Verdict::Skipped)
    }

    /// Returns the number of experiments with a result.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.verdict == verdict).count()
    }

    /// Formats the report in JUnit's XML. Degraded, inconclusive and failed experiments are failures.
    pub fn junit(&self) -> String {
        let failures = self.outcomes.iter().filter(|one| one.verdict > Verdict::Resilient).count();
        let (tests, skipped) = (self.outcomes.len(), self.count(Verdict::Skipped));
        let name = xml(&self.operator);
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"flyball chaos\">\n  <testsuite \
             name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">\n"
        );
        for outcome in &self.outcomes {
            let time = outcome.recovery_seconds.unwrap_or_default().as_secs_f64();
            let case = format!(
                "    <testcase name=\"{}\" classname=\"{name}: {}\" time=\"{time:.3}\"",
                xml(&outcome.name),
                xml(&outcome.fault)
            );
            let reasons = xml(&outcome.reasons.join("\n"));
            let _ = match outcome.verdict {
                Verdict::Resilient => writeln!(text, "{case}/>"),
                Verdict::Skipped => writeln!(text, "{case}><skipped message=\"{reasons}\"/></testcase>"),
                verdict => writeln!(text, "{case}><failure message=\"{verdict}\">{reasons}</failure></testcase>"),
            };
        }
        text + "  </testsuite>\n</testsuites>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_counts_verdicts() {
        let outcome = |name: &str, verdict| Outcome {
            name: name.into(),
            fault: "PodKill".into(),
            verdict,
            recovery_seconds: Some(Duration::from_millis(1500)),
            reasons: vec!["a < b".into()],
            effects: Vec::new(),
            changes: Vec::new(),
            undo_error: None,
        };
        let report = Report {
            operator: "a/b".into(),
            run: "r".into(),
            started: String::new(),
            outcomes: vec![
                outcome("one", Verdict::Resilient),
                outcome("two", Verdict::Failed),
                outcome("three", Verdict::Skipped),
            ],
            notes: Vec::new(),
            interrupted: false,
        };
        let xml = report.junit();
        for part in [
            "tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\"",
            "<testcase name=\"one\" classname=\"a/b: PodKill\" time=\"1.500\"/>",
            "<failure message=\"Failed\">a &lt; b</failure>",
        ] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
        assert_eq!(report.worst(), Some(Verdict::Failed));
    }
}
