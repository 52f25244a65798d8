//! Errors of expressions with their source position, formatted like in cel-go (`common/error.go`).

/// Maximum length of a source line in an error, in bytes, as in cel-go.
const MAX_SNIPPET_LENGTH: usize = 16_384;

/// Formats an error at a line and column, both counted from 1, with that line of the source and a mark below it.
///
/// A column beyond the line marks its end. Wide characters have wide dots below them.
pub(super) fn located(source: &str, line: usize, column: usize, message: &str) -> String {
    let mut text = format!("ERROR: <input>:{line}:{column}: {message}");
    let snippet = source.lines().nth(line.saturating_sub(1)).filter(|snippet| snippet.len() <= MAX_SNIPPET_LENGTH);
    if let Some(snippet) = snippet {
        let mut rest = snippet.chars();
        let dots = rest.by_ref().take(column.saturating_sub(1)).map(|c| if c.is_ascii() { '.' } else { '．' });
        let dots: String = dots.collect();
        let mark = if rest.next().is_none_or(|c| c.is_ascii()) { '^' } else { '＾' };
        text += &format!("\n | {}\n | {dots}{mark}", snippet.replace('\t', " "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_the_line_and_a_marker() {
        assert_eq!(located("a\nb\t&& c", 2, 3, "no"), "ERROR: <input>:2:3: no\n | b && c\n | ..^");
        assert_eq!(located("'é' ü", 1, 5, "no"), "ERROR: <input>:1:5: no\n | 'é' ü\n | .．..＾");
        assert_eq!(located("a", 1, 9, "no"), "ERROR: <input>:1:9: no\n | a\n | .^");
        assert_eq!(located("a", 0, 0, "no"), "ERROR: <input>:0:0: no\n | a\n | ^");
    }

    #[test]
    fn long_lines_are_not_shown() {
        let long = "a".repeat(MAX_SNIPPET_LENGTH + 1);
        assert_eq!(located(&long, 1, 70_000, "no"), "ERROR: <input>:1:70000: no");
    }
}
