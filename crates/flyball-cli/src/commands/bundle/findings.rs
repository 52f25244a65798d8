//! Findings of a validation on the terminal.

use crate::error::Error;
use crate::render::terminal::{Style, one_line, paint, print_line};
use flyball_lifecycle::validation::{Finding, Severity};

/// Prints findings with their remedies.
pub(super) fn print(findings: &[Finding]) {
    for finding in findings {
        let word = match finding.severity {
            Severity::Error => paint(Style::Bad, "error:"),
            Severity::Warning => paint(Style::Busy, "warning:"),
        };
        let (text, hint) = (format!("{}: {}", finding.field, finding.why), format!("hint: {}", finding.remedy));
        print_line(&format!("{word} {}", one_line(&text)));
        print_line(&format!("  {}", paint(Style::Faint, &one_line(&hint))));
    }
}

/// Returns the number of findings of a severity.
pub(super) fn number(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

/// Returns `2 errors, 1 warning`.
pub(super) fn summary(findings: &[Finding]) -> String {
    let text = |severity, word: &str| match number(findings, severity) {
        1 => format!("1 {word}"),
        count => format!("{count} {word}s"),
    };
    format!("{}, {}", text(Severity::Error, "error"), text(Severity::Warning, "warning"))
}

/// Returns the error of a bundle with errors; also of one with warnings, if they count.
pub(super) fn failure(findings: &[Finding], name: &str, warnings_count: bool) -> Option<Error> {
    let errors = number(findings, Severity::Error);
    let fails = errors > 0 || warnings_count && !findings.is_empty();
    fails.then(|| Error::new(format!("bundle {name} has {}", summary(findings))))
}
