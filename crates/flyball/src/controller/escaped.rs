//! Text in a line of the log.

use std::fmt::{self, Display, Formatter, Write};

/// Displays a text without control characters: users determine parts of errors, and must not forge lines of the log or
/// control the terminal that shows it.
pub(super) struct Escaped<T>(pub(super) T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut written = 0;
        // Line and paragraph separators and directional formatting are not control characters of Unicode.
        let is_unsafe = |c: char| {
            c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        for (at, c) in text.char_indices().filter(|(_, c)| is_unsafe(*c)) {
            self.0.write_str(&text[written..at])?;
            write!(self.0, "{}", c.escape_default())?;
            written = at + c.len_utf8();
        }
        self.0.write_str(&text[written..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_others_remain() {
        let forged = "task \"é\\ü\": no\r\n2026-01-01 INFO granted\u{1b}[2J\u{9b}\u{202e}\u{2028}\0.";
        let escaped = "task \"é\\ü\": no\\r\\n2026-01-01 INFO granted\\u{1b}[2J\\u{9b}\\u{202e}\\u{2028}\\u{0}.";
        assert_eq!(Escaped(forged).to_string(), escaped);
    }
}
