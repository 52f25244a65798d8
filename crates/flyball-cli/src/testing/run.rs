//! `cargo test` as a process, whose words become a [`Report`].

use super::{Outcome, Report};
use crate::error::{Result, ResultExt};
use crate::render::terminal::{print_labeled, print_line};
use std::io::{BufRead, BufReader, Read, Write, pipe, stderr};
use std::process::{Command, Stdio};

/// Longer lines are split.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Destination of the output of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestOutput {
    /// The whole output.
    Stdout,
    /// The same on standard error, since standard output is for programs.
    Stderr,
    /// Build messages and the output of failed tests, on standard error.
    Failures,
}

impl TestOutput {
    pub(crate) fn print(self, text: &str) {
        match self {
            Self::Stdout => print_line(text),
            // A closed pipe is not an error.
            Self::Stderr => drop(writeln!(stderr(), "{text}")),
            Self::Failures => {}
        }
    }
}

/// Builds a command that runs all tests, even after failures.
pub(crate) fn cargo_test() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--no-fail-fast"]).stdin(Stdio::null());
    cargo
}

/// Runs it; returns the test results, and true if cargo succeeded.
pub(crate) fn run(cargo: Command, test_output: TestOutput) -> Result<(Report, bool)> {
    run_with(cargo, test_output, |print| print())
}

/// Runs it as [`run`]; `on_line` is called with a function that prints a line.
pub(crate) fn run_with(
    mut cargo: Command,
    test_output: TestOutput,
    on_line: impl Fn(&dyn Fn()),
) -> Result<(Report, bool)> {
    let (reader, writer) = pipe().context("cannot create a pipe")?;
    if test_output != TestOutput::Failures {
        // One pipe for both, so that the output stays in order.
        cargo.stderr(writer.try_clone().context("cannot create a pipe")?);
    }
    cargo.stdout(writer);
    let mut child = cargo
        .spawn()
        .context("cannot start cargo")
        .map_err(|error| error.hint("install Rust from https://rustup.rs"))?;
    // It holds the other end of the pipe, which must be closed when cargo exits.
    drop(cargo);
    let (mut report, mut reader, mut line) = (Report::default(), BufReader::new(reader), Vec::new());
    loop {
        line.clear();
        if (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).context("cannot read the output of cargo")?
            == 0
        {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        report.parse_line(text);
        on_line(&|| test_output.print(text));
    }
    report.finish();
    if test_output == TestOutput::Failures {
        for test in report.tests().filter(|test| test.outcome == Outcome::Failed) {
            print_labeled("failed", &format!("{}\n{}", test.name, test.output));
        }
    }
    Ok((report, child.wait().context("cannot wait for cargo")?.success()))
}
