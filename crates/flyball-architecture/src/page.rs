//! Lines that exceed 120 columns, and banned words, in the prose of Markdown pages.

use crate::width::MAX_WIDTH;

/// Archaic, personifying and vague phrases, in lower case.
const PHRASES: &[&str] = &["any more", "begun", "is awaited", "says so", "whoever"];

/// Returns errors for wide lines and banned phrases of a page.
///
/// Code blocks are exempt from both rules. Rows of tables and HTML comments, which cannot be broken, may be wide.
pub(crate) fn errors(file: &str, text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let mut paragraph = Paragraph::default();
    for (number, line) in prose(text) {
        let is_comment = line.trim_start().starts_with("<!--");
        let columns = line.chars().count();
        if columns > MAX_WIDTH && !is_comment && !line.trim_start().starts_with('|') {
            errors.push(format!("{file}:{number}: {columns} columns, {MAX_WIDTH} at most"));
        }
        if line.trim().is_empty() || is_comment || paragraph.last + 1 < number {
            paragraph.report(file, &mut errors);
        }
        if !is_comment {
            paragraph.add(number, line);
        }
    }
    paragraph.report(file, &mut errors);
    errors
}

/// Returns the lines outside of fenced and indented code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let (mut is_fenced, mut is_indented, mut is_after_blank) = (false, false, true);
    let is_prose = move |(_, line): &(usize, &str)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        is_indented = line.starts_with("    ") && (is_indented || is_after_blank);
        is_after_blank = line.trim().is_empty();
        !(is_fenced || is_fence || is_indented)
    };
    text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(is_prose)
}

/// Lines whose line breaks are spaces.
#[derive(Default)]
struct Paragraph {
    text: String,
    /// The number of each line, and the position in the text after it.
    ends: Vec<(usize, usize)>,
    last: usize,
}

impl Paragraph {
    fn add(&mut self, number: usize, line: &str) {
        self.text.push_str(&line.trim().to_lowercase());
        self.text.push(' ');
        self.ends.push((number, self.text.len()));
        self.last = number;
    }

    /// Adds errors for the banned phrases, and starts an empty paragraph.
    fn report(&mut self, file: &str, errors: &mut Vec<String>) {
        for phrase in PHRASES {
            for (at, _) in self.text.match_indices(phrase) {
                let is_boundary = |char: Option<char>| char.is_none_or(|char| !char.is_alphanumeric());
                let (before, after) =
                    (self.text[..at].chars().next_back(), self.text[at + phrase.len()..].chars().next());
                if is_boundary(before) && is_boundary(after) {
                    let number = self.ends.iter().find(|(_, end)| at < *end).map_or(self.last, |(number, _)| *number);
                    errors.push(format!("{file}:{number}: the phrase {phrase:?} is banned"));
                }
            }
        }
        *self = Self::default();
    }
}
