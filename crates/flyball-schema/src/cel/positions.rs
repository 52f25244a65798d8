//! Source positions of the parts of an expression, which the parser does not report.
//!
//! A traversal of the syntax tree in source order requests the position of each part in turn.

use std::collections::{BTreeMap, VecDeque};

/// The byte positions of names and operators that have not been visited yet.
#[derive(Debug, Default)]
pub(super) struct SourcePositions(BTreeMap<String, VecDeque<usize>>);

/// Operators, the longer ones first, with their names in the syntax tree.
const OPERATORS: [(&str, &str); 15] = [
    ("==", "_==_"),
    ("!=", "_!=_"),
    ("<=", "_<=_"),
    (">=", "_>=_"),
    ("&&", "_&&_"),
    ("||", "_||_"),
    ("<", "_<_"),
    (">", "_>_"),
    ("+", "_+_"),
    ("-", "_-_"),
    ("*", "_*_"),
    ("/", "_/_"),
    ("%", "_%_"),
    ("?", "_?_:_"),
    ("[", "_[_]"),
];

impl SourcePositions {
    pub(super) fn of(text: &str) -> Self {
        let mut positions = Self::default();
        let mut at = 0;
        let mut dot = None;
        // True after a value, where `-` and `[` are binary operators.
        let mut value = false;
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            let mut length = c.len_utf8();
            if c == '"' || c == '\'' {
                length = quoted(rest, c);
                (dot, value) = (None, true);
            } else if rest.starts_with("//") {
                length = rest.find('\n').unwrap_or(rest.len());
            } else if c.is_ascii_digit() {
                length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
                (dot, value) = (None, true);
            } else if c.is_ascii_alphabetic() || c == '_' || c == '`' {
                length = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '`')
                    .unwrap_or(rest.len())
                    .max(1);
                let name = rest[..length].trim_matches('`');
                let after = rest[length..].trim_start();
                value = name != "in";
                if after.starts_with(['{', ':']) {
                    positions.note(format!("{name}{}", &after[..1]), text.len() - after.len());
                }
                match dot.take() {
                    _ if after.starts_with('(') => positions.note(format!("{name}("), text.len() - after.len()),
                    Some(dot) => positions.note(format!(".{name}"), dot),
                    None if name == "in" => positions.note("@in".into(), at),
                    None => positions.note(name.to_owned(), at),
                }
            } else if c == '.' {
                dot = Some(at);
            } else if c == '?' && !value {
                // Part of `.?`, `[?` or `{?`, which are not conditionals.
            } else if c == '?' && dot.is_some() {
                // The field name follows.
            } else if let Some((sign, name)) = OPERATORS.iter().find(|(sign, _)| rest.starts_with(sign)) {
                length = sign.len();
                if value || !matches!(*sign, "-" | "[") {
                    positions.note((*name).to_owned(), at);
                }
                value = false;
            } else if !c.is_whitespace() {
                value = matches!(c, ')' | ']' | '}');
            }
            at += length;
        }
        positions
    }

    fn note(&mut self, part: String, at: usize) {
        self.0.entry(part).or_default().push_back(at);
    }

    /// Returns the position of the next part with this name.
    pub(super) fn next(&mut self, part: &str) -> usize {
        self.0.get_mut(part).and_then(VecDeque::pop_front).unwrap_or_default()
    }
}

/// Returns the length of a quoted string.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::SourcePositions;

    #[test]
    fn operators_are_located_in_source_order() {
        let mut positions = SourcePositions::of("self.a[0] - 1 == -2 && 'a.b == c' in self.a.f(self.a)");
        assert_eq!(
            ["_[_]", "_-_", "_==_", "_&&_", "@in", "f("].map(|part| positions.next(part)),
            [6, 10, 14, 20, 34, 45]
        );
        assert_eq!([".a", ".a", ".a", ".a"].map(|part| positions.next(part)), [4, 41, 50, 0]);
    }
}
