//! `.indexignore`: files that are not part of a catalog, in the syntax of `.gitignore`.
//!
//! See <https://olm.operatorframework.io/docs/reference/file-based-catalogs/#indexignore> and
//! <https://git-scm.com/docs/gitignore#_pattern_format>.

use crate::files::Files;
use regex::{Regex, RegexBuilder};

const NAME: &str = ".indexignore";
/// Maximum number of patterns. Further ones are ignored.
const MAX_PATTERNS: usize = 1_000;
/// Maximum length of a pattern.
const MAX_PATTERN_BYTES: usize = 1_000;

struct Pattern {
    /// The folder of the file, with a slash at the end; empty for the root.
    folder: String,
    expression: Regex,
    is_negated: bool,
    /// Matches folders only.
    is_folder: bool,
}

/// The patterns of all files `.indexignore`.
pub(super) struct Ignore {
    patterns: Vec<Pattern>,
}

impl Ignore {
    pub(super) fn new(files: &Files) -> Self {
        let mut patterns = Vec::new();
        for (path, content) in files.iter() {
            let Some(folder) = path.strip_suffix(NAME).filter(|folder| folder.is_empty() || folder.ends_with('/'))
            else {
                continue;
            };
            let text = String::from_utf8_lossy(content);
            let parsed = text.lines().filter_map(|line| Pattern::parse(folder, line));
            patterns.extend(parsed.take(MAX_PATTERNS - patterns.len().min(MAX_PATTERNS)));
        }
        // Deeper files decide over those above; the order within a file remains.
        patterns.sort_by_key(|pattern| pattern.folder.len());
        Self { patterns }
    }

    /// Returns true if a file is excluded: the last pattern that matches it or a folder above decides.
    pub(super) fn excludes(&self, path: &str) -> bool {
        let is_ignore_file = path == NAME || path.ends_with(&format!("/{NAME}"));
        let deciding = self.patterns.iter().rev().find(|pattern| pattern.matches(path));
        is_ignore_file || deciding.is_some_and(|pattern| !pattern.is_negated)
    }
}

impl Pattern {
    fn parse(folder: &str, line: &str) -> Option<Self> {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') || line.len() > MAX_PATTERN_BYTES {
            return None;
        }
        let (is_negated, line) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (is_folder, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
        let is_anchored = line.contains('/');
        let line = line.strip_prefix('/').unwrap_or(line);
        let start = if is_anchored { "^" } else { "^(?:.*/)?" };
        let expression = format!("{start}{}$", translate(line));
        let expression = RegexBuilder::new(&expression).size_limit(1 << 20).build().ok()?;
        Some(Self { folder: folder.to_owned(), expression, is_negated, is_folder })
    }

    fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix(&self.folder) else { return false };
        let mut folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        folders.any(|folder| self.expression.is_match(folder)) || (!self.is_folder && self.expression.is_match(path))
    }
}

/// Translates a pattern into a regular expression.
fn translate(pattern: &str) -> String {
    let mut expression = String::new();
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("**/") {
            (expression, rest) = (expression + "(?:.*/)?", behind);
            continue;
        }
        if let Some(behind) = rest.strip_prefix("**") {
            (expression, rest) = (expression + ".*", behind);
            continue;
        }
        rest = &rest[next.len_utf8()..];
        match next {
            '*' => expression += "[^/]*",
            '?' => expression += "[^/]",
            '[' => match class(rest) {
                Some((class, behind)) => (expression, rest) = (expression + &class, behind),
                None => expression += r"\[",
            },
            '\\' => {
                let escaped = rest.chars().next().unwrap_or('\\');
                rest = rest.strip_prefix(escaped).unwrap_or(rest);
                expression += &regex::escape(&escaped.to_string());
            }
            other => expression += &regex::escape(&other.to_string()),
        }
    }
    expression
}

/// Translates a class of characters after its bracket, and returns the rest of the pattern.
fn class(rest: &str) -> Option<(String, &str)> {
    let end = rest.char_indices().skip(1).find(|(_, character)| *character == ']')?.0;
    let (inner, behind) = (&rest[..end], &rest[end + 1..]);
    let (negation, inner) = match inner.strip_prefix(['!', '^']) {
        Some(inner) => ("^/", inner),
        None => ("", inner),
    };
    let escaped: String =
        inner.chars().map(|c| if c == '-' { "-".to_owned() } else { regex::escape(&c.to_string()) }).collect();
    Some((format!("[{negation}{escaped}]"), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_gitignore() {
        for (patterns, path, expected) in [
            ("*.md", "a/b/README.md", true),
            ("*.md", "README.yaml", false),
            ("/docs", "docs/a.yaml", true),
            ("/docs", "a/docs/b.yaml", false),
            ("docs/", "a/docs/b.yaml", true),
            ("docs/", "docs", false),
            ("a/*.yaml", "a/b.yaml", true),
            ("a/*.yaml", "a/b/c.yaml", false),
            ("a/**/c.yaml", "a/c.yaml", true),
            ("a/**/c.yaml", "a/b/d/c.yaml", true),
            ("**/c.yaml", "x/c.yaml", true),
            ("[ab]?.json", "a1.json", true),
            ("[!ab]?.json", "a1.json", false),
            ("# *.md", "x.md", false),
            (r"\#x", "#x", true),
            ("*.yaml\n!keep.yaml", "keep.yaml", false),
            ("*.yaml\n!keep.yaml", "other.yaml", true),
            ("[", "[", true),
        ] {
            let mut files = Files::default();
            files.insert(NAME, patterns.as_bytes().to_vec()).unwrap();
            assert_eq!(Ignore::new(&files).excludes(path), expected, "{patterns:?} {path}");
        }
        let mut files = Files::default();
        files.insert("a/.indexignore", b"*.yaml".to_vec()).unwrap();
        let ignore = Ignore::new(&files);
        assert!(ignore.excludes("a/b/c.yaml") && !ignore.excludes("c.yaml") && ignore.excludes("a/.indexignore"));
    }
}
