//! `cargo test` as a process, whose words become a [`Report`].

use super::{Outcome, Report};
use crate::error::{Result, ResultExt};
use crate::render::terminal::{complain, say};
use std::io::{BufRead, BufReader, Read, Write, pipe, stderr};
use std::process::{Command, Stdio};

/// Longer lines are split.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Destination of the output of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputMode {
    /// The whole output.
    Aloud,
    /// The same on standard error, since standard output is for programs.
    Aside,
    /// Build messages and the output of failed tests, on standard error.
    Quiet,
}

impl OutputMode {
    pub(crate) fn say(self, text: &str) {
        match self {
            Self::Aloud => say(text),
            // A closed pipe is not an error.
            Self::Aside => drop(writeln!(stderr(), "{text}")),
            Self::Quiet => {}
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
pub(crate) fn run(mut cargo: Command, voice: OutputMode) -> Result<(Report, bool)> {
    let (reader, writer) = pipe().when("cannot create a pipe")?;
    if voice != OutputMode::Quiet {
        // One pipe for both, so that the output stays in order.
        cargo.stderr(writer.try_clone().when("cannot create a pipe")?);
    }
    cargo.stdout(writer);
    let mut child =
        cargo.spawn().when("cannot start cargo").map_err(|error| error.hint("install Rust from https://rustup.rs"))?;
    // It holds the other end of the pipe, which must be closed when cargo exits.
    drop(cargo);
    let (mut report, mut reader, mut line) = (Report::default(), BufReader::new(reader), Vec::new());
    loop {
        line.clear();
        if (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).when("cannot read the output of cargo")? == 0
        {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        report.hear(text);
        voice.say(text);
    }
    report.end();
    if voice == OutputMode::Quiet {
        for test in report.tests().filter(|test| test.outcome == Outcome::Failed) {
            complain("failed", &format!("{}\n{}", test.name, test.output));
        }
    }
    Ok((report, child.wait().when("cannot wait for cargo")?.success()))
}
