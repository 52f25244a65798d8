//! How the program speaks: in colours and in place on a terminal, in plain lines elsewhere.
#![expect(clippy::print_stdout, reason = "the one place that speaks to people")]

use std::io::{IsTerminal, Write, stderr, stdout};

/// A colour, or how strongly something is said.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    Strong,
    Faint,
    Good,
    Bad,
    Busy,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Bad => "1;31",
            Self::Busy => "33",
        }
    }
}

/// Tells whether standard output is a terminal that shows colours, see <https://no-color.org>.
pub(crate) fn is_lively() -> bool {
    let term = std::env::var_os("TERM");
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() && term.is_none_or(|term| term != "dumb")
}

/// Paints a text if it goes to a terminal.
pub(crate) fn paint(style: Style, text: &str) -> String {
    if is_lively() { format!("\x1b[{}m{text}\x1b[0m", style.code()) } else { text.to_owned() }
}

/// Says a line.
pub(crate) fn say(text: &str) {
    // A reader that went away is no reason to stop what is being done.
    let _ = writeln!(stdout(), "{text}");
}

/// Says a line on standard error, with a word in front.
pub(crate) fn complain(word: &str, text: &str) {
    let word = match stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        true if word == "error" => format!("\x1b[1;31m{word}:\x1b[0m"),
        true => format!("\x1b[1m{word}:\x1b[0m"),
        false => format!("{word}:"),
    };
    let _ = writeln!(stderr(), "{word} {text}");
}

/// Lines that are shown again when they change: in place on a terminal, one after the other elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Board {
    shown: Vec<String>,
}

impl Board {
    /// Shows these lines, the first of which is a heading.
    pub(crate) fn show(&mut self, lines: Vec<String>) {
        if lines == self.shown {
            return;
        }
        if is_lively() {
            if !self.shown.is_empty() {
                print!("\x1b[{}A\x1b[J", self.shown.len());
            }
            for line in &lines {
                print!("{line}\r\n");
            }
            let _ = stdout().flush();
        } else {
            let same_heading = self.shown.first() == lines.first();
            for line in lines.iter().skip(usize::from(same_heading)) {
                say(line);
            }
        }
        self.shown = lines;
    }
}
