//! Lines that exceed 120 columns.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};

/// Maximum number of characters of a line, as in `rustfmt.toml`.
pub(crate) const MAX_WIDTH: usize = 120;

/// Returns errors for the lines of a file that exceed the limit.
///
/// Lines that cannot be broken are exempt: lines of string literals, rows of Markdown tables, and comments with a URL.
pub(crate) fn errors(file: &str, text: &str) -> Vec<String> {
    let wide = |line: &str| line.chars().count() > MAX_WIDTH;
    if !text.lines().any(wide) {
        return Vec::new();
    }
    let mut literals = BTreeSet::new();
    let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
    lines_of_literals(text, tokens, &mut literals);
    let is_exempt = |number: usize, line: &str| {
        let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!', ' ']));
        literals.contains(&number) || comment.is_some_and(|text| text.starts_with('|') || text.contains("://"))
    };
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines
        .filter(|(number, line)| wide(line) && !is_exempt(*number, line))
        .map(|(number, line)| format!("{file}:{number}: {} columns, {MAX_WIDTH} at most", line.chars().count()))
        .collect()
}

/// Collects the lines of string literals, other than doc comments, which are literals as well.
fn lines_of_literals(text: &str, tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => lines_of_literals(text, group.stream(), lines),
            TokenTree::Literal(literal) if literal.to_string().contains('"') => {
                let (start, end) = (literal.span().start(), literal.span().end());
                let first = text.lines().nth(start.line - 1).unwrap_or_default();
                if !first.chars().skip(start.column).collect::<String>().starts_with("//") {
                    lines.extend(start.line..=end.line);
                }
            }
            _ => {}
        }
    }
}
