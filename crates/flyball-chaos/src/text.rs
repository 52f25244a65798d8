//! Text of others, such as names and messages of a cluster, for reports.

/// Maximum length of a text in characters.
const MAX_CHARS: usize = 500;

/// Replaces control characters, also those that change the direction of text, and bounds the length.
pub(crate) fn clean(text: &str) -> String {
    let is_control = |char: char| {
        char.is_control() || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut cleaned: String =
        text.chars().take(MAX_CHARS).map(|char| if is_control(char) { '\u{fffd}' } else { char }).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        cleaned.push_str("...");
    }
    cleaned
}

/// Escapes a cleaned text for XML.
pub(crate) fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_bounded_and_plain() {
        assert_eq!(clean("a\x1b[2J\u{9b}b\u{202e}c\nd"), "a\u{fffd}[2J\u{fffd}b\u{fffd}c\u{fffd}d");
        assert_eq!(clean(&"x".repeat(MAX_CHARS + 1)), "x".repeat(MAX_CHARS) + "...");
        assert_eq!(xml("<a b=\"c\">&\x07"), "&lt;a b=&quot;c&quot;&gt;&amp;\u{fffd}");
    }
}
