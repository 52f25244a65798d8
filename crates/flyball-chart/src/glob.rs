//! File patterns of `.Files.Glob` (gobwas/glob), and of `path/filepath` for `.helmignore` and `--show-only`.

mod path;

pub(crate) use path::{PathPattern, path_match};

use regex::Regex;

/// A pattern of `.Files.Glob`: `*` matches within a directory, `**` across directories, `{a,b}` are alternatives.
pub(crate) struct Glob(Option<Regex>);

impl Glob {
    /// `None` if the pattern is invalid.
    pub(crate) fn new(pattern: &str) -> Option<Glob> {
        let mut text = String::from("(?s)^");
        let mut chars = pattern.chars().peekable();
        let mut alternatives = 0;
        while let Some(c) = chars.next() {
            match c {
                '*' if chars.peek() == Some(&'*') => {
                    chars.next();
                    text.push_str(".*");
                }
                '*' => text.push_str("[^/]*"),
                '?' => text.push_str("[^/]"),
                '[' => {
                    text.push('[');
                    if chars.peek() == Some(&'!') {
                        chars.next();
                        text.push('^');
                    }
                    loop {
                        match chars.next()? {
                            ']' => break,
                            '\\' => push_class(&mut text, chars.next()?),
                            '-' => text.push('-'),
                            c => push_class(&mut text, c),
                        }
                    }
                    text.push(']');
                }
                '{' => {
                    alternatives += 1;
                    text.push_str("(?:");
                }
                '}' if alternatives > 0 => {
                    alternatives -= 1;
                    text.push(')');
                }
                ',' if alternatives > 0 => text.push('|'),
                '\\' => text.push_str(&regex::escape(&chars.next()?.to_string())),
                c => text.push_str(&regex::escape(&c.to_string())),
            }
        }
        text.push('$');
        (alternatives == 0).then(|| Regex::new(&text).ok()).flatten().map(|regex| Glob(Some(regex)))
    }

    /// The pattern that Helm uses instead of an invalid one.
    pub(crate) fn everything() -> Glob {
        Glob(None)
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        self.0.as_ref().is_none_or(|regex| regex.is_match(path))
    }
}

fn push_class(text: &mut String, c: char) {
    if matches!(c, '[' | ']' | '\\' | '^' | '&' | '~' | '-') {
        text.push('\\');
    }
    text.push(c);
}
