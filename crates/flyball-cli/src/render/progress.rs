//! Progress of a transfer or of a wait, in one line of a terminal. Nothing is printed elsewhere.

use super::terminal::{one_line, shows_colors};
use std::io::{Write, stderr};

/// The line, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    is_shown: bool,
    line: String,
}

impl Progress {
    /// Starts a transfer or a wait.
    pub(crate) fn new(what: &str) -> Self {
        let mut progress = Self { what: what.to_owned(), is_shown: shows_colors(&stderr()), line: String::new() };
        progress.show(what.to_owned());
        progress
    }

    /// Shows the received bytes, of a total if it is known.
    pub(crate) fn update(&mut self, received: u64, total: Option<u64>) {
        let of = total.map(|total| format!(" of {}", mebibytes(total))).unwrap_or_default();
        self.show(format!("{}: {}{of} MiB", self.what, mebibytes(received)));
    }

    /// Replaces the line.
    pub(crate) fn show(&mut self, line: String) {
        if self.is_shown && line != self.line {
            // A terminal that is gone must not interrupt the command.
            let _ = write!(stderr(), "{}", replacement(&line)).and_then(|()| stderr().flush());
            self.line = line;
        }
    }

    /// Removes the line, so that something else can be printed. The next one is shown again.
    pub(crate) fn hide(&mut self) {
        if self.is_shown && !self.line.is_empty() {
            let _ = write!(stderr(), "\r\x1b[K").and_then(|()| stderr().flush());
            self.line.clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.hide();
    }
}

/// Returns what replaces the line: lines contain messages of others.
fn replacement(line: &str) -> String {
    format!("\r\x1b[K{}", one_line(line))
}

/// Returns a number of MiB with one digit behind the point.
fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_others_change_nothing_else_on_the_terminal() {
        assert_eq!(replacement("memo.v1: \x1b[2J\ndone\u{9b}1A"), "\r\x1b[Kmemo.v1: ^[[2J^Jdone<9b>1A");
    }

    #[test]
    fn sizes_have_one_digit() {
        for (bytes, expected) in [(0, "0.0"), (1 << 20, "1.0"), ((3 << 20) / 2, "1.5"), (u64::MAX, "1759218604441.5")] {
            assert_eq!(mebibytes(bytes), expected, "{bytes}");
        }
    }
}
