//! Terminal output: colors and updates in place on a terminal, plain lines elsewhere.
//!
//! Objects, logs and messages contain text of others. On a terminal, control characters in it are visible, so that it
//! cannot change what is displayed; elsewhere, lines are printed as they are. Lines that a command composes of such
//! text contain it as [`one_line`], as cells of tables in kubectl: with visible colors and line breaks, everywhere.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};

/// The status line below all others on a terminal; empty if there is none.
static STATUS_LINE: Mutex<String> = Mutex::new(String::new());

/// A color or emphasis.
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

/// Returns true if a stream is a terminal that shows colors, see <https://no-color.org>.
pub(crate) fn shows_colors(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    stream.is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Returns true if standard output is such a terminal, where lines may change as well.
pub(crate) fn is_interactive() -> bool {
    shows_colors(&stdout())
}

/// Styles a string if the output is a terminal.
pub(crate) fn paint(style: Style, text: &str) -> String {
    if is_interactive() { format!("\x1b[{}m{text}\x1b[0m", style.code()) } else { text.to_owned() }
}

/// The first error of standard output. A closed pipe is none: it must not interrupt the command.
static OUTPUT_ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a line.
pub(crate) fn print_line(text: &str) {
    let text = visible_on(&stdout(), text);
    write_above_status_line(|| {
        record_error(writeln!(stdout(), "{text}"));
    });
}

/// Prints text as it is.
pub(crate) fn print_text(text: &str) {
    write_above_status_line(|| {
        record_error(stdout().write_all(text.as_bytes()));
    });
}

/// Records an error of standard output for [`check_output`]; returns true if there is none.
fn record_error(written: io::Result<()>) -> bool {
    let Err(error) = written else { return true };
    if error.kind() != ErrorKind::BrokenPipe {
        OUTPUT_ERROR.lock().get_or_insert(error);
    }
    false
}

/// Fails if something could not be printed.
pub(crate) fn check_output() -> Result<()> {
    record_error(stdout().flush());
    match OUTPUT_ERROR.lock().take() {
        Some(error) => Err(Error::caused("cannot write to standard output", error)),
        None => Ok(()),
    }
}

/// Prints a line of endless output; returns false if the reader has closed it.
pub(crate) fn try_print_line(text: &str) -> bool {
    record_error(writeln!(stdout(), "{}", visible_on(&stdout(), text)))
}

fn visible_on<'t>(stream: &impl IsTerminal, text: &'t str) -> Cow<'t, str> {
    if stream.is_terminal() { escape_controls(text, Colors::Keep) } else { Cow::Borrowed(text) }
}

/// The treatment of color codes in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colors {
    Keep,
    Escape,
}

/// Makes control characters visible: `^[` for ESC, `<9b>` for C1 controls and for characters that are invisible or
/// change the direction of text. Line breaks, tabs, and joiners, which words and emoji contain, stay.
#[doc(alias = "EscapeTerminal")]
pub(crate) fn escape_controls(text: &str, colors: Colors) -> Cow<'_, str> {
    let stays = |char: char| matches!(char, '\n' | '\t' | '\u{200c}' | '\u{200d}');
    escape(text, colors, |char| !stays(char) && (char.is_control() || is_invisible(char)))
}

/// Makes text of others a part of a line: control characters are visible, also color codes, line breaks (`^J`) and
/// tabs. A line that contains no other text of others has only the colors and breaks of this program.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escape(text, Colors::Escape, |char| char.is_control() || is_invisible(char))
}

/// Returns true for characters that are not displayed, although they are no controls: they separate lines, change the
/// direction of text, or format it. See the categories Cf, Zl and Zp of Unicode.
fn is_invisible(char: char) -> bool {
    matches!(
        char,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Escapes the characters in JSON that could control a terminal; they are parts of strings, whose values stay the same.
pub(crate) fn escape_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |char: char| char != '\n' && (char.is_control() || is_invisible(char));
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for char in json.chars() {
        match is_escaped(char) {
            true => char.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}"))),
            false => escaped.push(char),
        }
    }
    Cow::Owned(escaped)
}

fn escape(text: &str, colors: Colors, is_control: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_control = &is_control;
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let (mut escaped, mut rest) = (String::with_capacity(text.len() + 8), text);
    while let Some(at) = rest.find(is_control) {
        let (before, from) = rest.split_at(at);
        escaped.push_str(before);
        let color = color_code(from).filter(|_| colors == Colors::Keep);
        let char = from.chars().next().unwrap_or_default();
        match (color, char) {
            (Some(code), _) => escaped.push_str(code),
            (None, '\0'..='\x1f' | '\x7f') => escaped.extend(['^', char::from(char as u8 ^ 0x40)]),
            (None, _) => escaped.push_str(&format!("<{:x}>", u32::from(char))),
        }
        rest = &from[color.map_or(char.len_utf8(), str::len)..];
    }
    escaped.push_str(rest);
    Cow::Owned(escaped)
}

/// Returns the color code at the start of a text.
fn color_code(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|char: char| !char.is_ascii_digit() && char != ';')?;
    parameters[end..].starts_with('m').then(|| &text[..end + 3])
}

/// Prints a line with the name of its source, for several concurrent sources.
pub(crate) fn print_prefixed(prefix: &str, style: Style, text: &str) {
    print_line(&format!("{} {text}", paint(style, &format!("{prefix:>8} |"))));
}

/// Sets the status line below all others on a terminal, truncated to its width; empty removes it.
pub(crate) fn set_status_line(text: &str) {
    if !is_interactive() {
        return;
    }
    let screen = rustix::termios::tcgetwinsize(stdout()).map_or(80, |size| usize::from(size.ws_col)).max(2);
    let cut: String = text.chars().take(screen - 1).collect();
    let mut status_line = STATUS_LINE.lock();
    let cut = escape_controls(&cut, Colors::Escape);
    *status_line = if cut.is_empty() { String::new() } else { paint(Style::Faint, &cut) };
    let _ = write!(stdout(), "\r\x1b[K{status_line}").and_then(|()| stdout().flush());
}

fn write_above_status_line(write: impl FnOnce()) {
    let status_line = STATUS_LINE.lock();
    if status_line.is_empty() {
        return write();
    }
    let _ = write!(stdout(), "\r\x1b[K").and_then(|()| stdout().flush());
    write();
    let _ = write!(stdout(), "{status_line}").and_then(|()| stdout().flush());
}

/// Prints a line with a prefix to standard error.
pub(crate) fn print_labeled(word: &str, text: &str) {
    let word = match shows_colors(&stderr()) {
        true if word == "error" => format!("\x1b[1;31m{word}:\x1b[0m"),
        true => format!("\x1b[1m{word}:\x1b[0m"),
        false => format!("{word}:"),
    };
    // Messages quote text of others, and have no colors of their own.
    let text = if stderr().is_terminal() { escape_controls(text, Colors::Escape) } else { Cow::Borrowed(text) };
    write_above_status_line(|| drop(writeln!(stderr(), "{word} {text}")));
}

/// Prints the standard error of another program.
pub(crate) fn forward_stderr(text: &str) {
    let print = |line| writeln!(stderr(), "{}", visible_on(&stderr(), line));
    text.lines().for_each(|line| write_above_status_line(|| drop(print(line))));
}

/// Prints an error and its hints on standard error.
pub(crate) fn print_error(error: &Error) {
    print_labeled("error", &error.to_string());
    error.hints().iter().for_each(|hint| print_labeled("hint", hint));
}

/// Lines that are shown again when they change: in place on a terminal, one after the other elsewhere.
#[derive(Debug, Default)]
pub(crate) struct LiveLines {
    shown: Vec<String>,
}

impl LiveLines {
    /// Prints these lines, the first of which is a heading.
    pub(crate) fn show(&mut self, lines: Vec<String>) {
        if lines == self.shown {
            return;
        }
        if is_interactive() {
            let screen = rustix::termios::tcgetwinsize(stdout()).map_or(80, |size| usize::from(size.ws_col)).max(1);
            let rows: usize = self.shown.iter().map(|line| width(line).max(1).div_ceil(screen)).sum();
            if rows > 0 {
                let _ = write!(stdout(), "\x1b[{rows}A\x1b[J");
            }
            print_line(&lines.join("\n"));
        } else {
            let same_heading = self.shown.first() == lines.first();
            for line in lines.iter().skip(usize::from(same_heading)) {
                print_line(line);
            }
        }
        self.shown = lines;
    }
}

/// Formats rows with columns as wide as their longest cell.
pub(crate) fn columns(rows: Vec<Vec<String>>) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..count)
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell)).max().unwrap_or(0))
        .collect();
    let lay = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, wide)| cell.clone() + &" ".repeat(wide + 3 - width(cell)));
        cells.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(lay).collect()
}

/// Returns the width of a line on a terminal, without color codes.
fn width(line: &str) -> usize {
    let mut in_color = false;
    let visible = line.chars().filter(|&c| {
        let skip = in_color || c == '\x1b';
        in_color = skip && c != 'm';
        !skip
    });
    visible.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_does_not_control_the_terminal() {
        let check = |text: &str, expected: &str| assert_eq!(escape_controls(text, Colors::Keep), expected, "{text:?}");
        check("plain\ttext\n", "plain\ttext\n");
        check("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m");
        check("\x1b[2J\x1b]0;title\x07\r\x1b", "^[[2J^[]0;title^G^M^[");
        check("\u{9b}2J \u{202e}\x7fä", "<9b>2J <202e>^?ä");
        check("\u{200f}\u{61c}\u{2067}\u{feff}\u{2028}", "<200f><61c><2067><feff><2028>");
        check("\u{1f468}\u{200d}\u{1f467} می\u{200c}خواهم", "\u{1f468}\u{200d}\u{1f467} می\u{200c}خواهم");
        let value = serde_json::json!({"a": "\u{9b}2J\u{202e}\x1b \u{e0020}\n", "b": 1});
        let json = serde_json::to_string_pretty(&value).expect("JSON");
        let escaped = escape_json(&json);
        assert!(!escaped.contains(|char: char| char != '\n' && (char.is_control() || is_invisible(char))), "{escaped}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).expect("JSON"), value);
        assert_eq!(escape_controls("\x1b[31mred", Colors::Escape), "^[[31mred");
    }

    #[test]
    fn text_of_others_stays_in_its_line_and_has_no_colors() {
        let check = |text: &str, expected: &str| assert_eq!(one_line(text), expected, "{text:?}");
        check("plain ä", "plain ä");
        check("a\nnode/b is ready\r\tc", "a^Jnode/b is ready^M^Ic");
        check("\x1b[32mready\x1b[0m \u{9b}1m", "^[[32mready^[[0m <9b>1m");
        check("\u{200f}\u{61c}\u{202e}\u{200d}\u{e0041}", "<200f><61c><202e><200d><e0041>");
    }

    #[test]
    fn colors_have_no_width() {
        for (line, expected) in [("", 0), ("plain", 5), ("\x1b[1;31mred\x1b[0m and more", 12), ("\x1b[0m", 0)] {
            assert_eq!(width(line), expected, "{line:?}");
        }
    }
}
