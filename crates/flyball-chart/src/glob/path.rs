//! Patterns of `path/filepath`: `*` and `?` match within a directory, `[a-z]` matches any of the characters.

/// A parsed pattern. Charts match all of their files with each rule of `.helmignore`, so matching must be fast.
#[derive(Debug)]
pub(crate) struct PathPattern(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Char(char),
    /// `?`
    AnyChar,
    /// `*`
    Star,
    Class {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl PathPattern {
    /// `None` if the pattern is invalid.
    pub(crate) fn new(pattern: &str) -> Option<PathPattern> {
        let mut pieces = Vec::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            pieces.push(match c {
                '*' => Piece::Star,
                '?' => Piece::AnyChar,
                '[' => class(&mut rest)?,
                '\\' => Piece::Char(rest.next()?),
                c => Piece::Char(c),
            });
        }
        Some(PathPattern(pieces))
    }

    /// Like Go's `filepath.Match`.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let pieces = &self.0;
        let (mut piece, mut at) = (0, 0);
        // The piece after the last star, and the end of the text that the star matches.
        let mut star: Option<(usize, usize)> = None;
        loop {
            let next = path[at..].chars().next();
            match (pieces.get(piece), next) {
                (Some(Piece::Star), _) => {
                    piece += 1;
                    star = Some((piece, at));
                    continue;
                }
                (None, None) => return true,
                (Some(expected), Some(c)) if expected.matches(c) => {
                    piece += 1;
                    at += c.len_utf8();
                    continue;
                }
                _ => {}
            }
            // The star matches one more character.
            let Some((after, end)) = star else { return false };
            match path[end..].chars().next() {
                None | Some('/') => return false,
                Some(c) => (piece, at) = (after, end + c.len_utf8()),
            }
            star = Some((piece, at));
        }
    }
}

impl Piece {
    fn matches(&self, c: char) -> bool {
        match self {
            Piece::Char(expected) => *expected == c,
            Piece::AnyChar => c != '/',
            Piece::Star => false,
            Piece::Class { is_negated, ranges } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *is_negated
            }
        }
    }
}

/// Parses a class after its `[`.
fn class(rest: &mut std::str::Chars<'_>) -> Option<Piece> {
    let is_negated = rest.as_str().starts_with('^');
    if is_negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        let from = match rest.next()? {
            ']' if !ranges.is_empty() => return Some(Piece::Class { is_negated, ranges }),
            '-' | ']' => return None,
            '\\' => rest.next()?,
            c => c,
        };
        let mut to = from;
        if rest.as_str().starts_with('-') {
            rest.next();
            to = match rest.next()? {
                '-' | ']' => return None,
                '\\' => rest.next()?,
                c => c,
            };
        }
        ranges.push((from, to));
    }
}

/// Go's `filepath.Match`; `None` if the pattern is invalid.
pub(crate) fn path_match(pattern: &str, path: &str) -> Option<bool> {
    PathPattern::new(pattern).map(|pattern| pattern.matches(path))
}

#[cfg(test)]
mod tests {
    use super::path_match;

    /// Examples of Go's documentation and tests.
    #[test]
    fn patterns_match_as_in_go() {
        let check = |pattern: &str, path: &str, expected: Option<bool>| {
            assert_eq!(path_match(pattern, path), expected, "{pattern} {path}");
        };
        for (pattern, path) in [
            ("abc", "abc"),
            ("*", "abc"),
            ("*c", "abc"),
            ("a*", "a"),
            ("a*/b", "abc/b"),
            ("a*b*c*d*e*/f", "axbxcxdxe/f"),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/f"),
            ("a*b?c*x", "abxbbxdbxebxczzx"),
            ("ab[c]", "abc"),
            ("ab[b-d]", "abc"),
            ("ab[^e-g]", "abc"),
            ("a\\*b", "a*b"),
            ("a?b", "a☺b"),
            ("a[^a]b", "a☺b"),
            ("[a-ζ]*", "α"),
            ("[\\]a]", "]"),
            ("[x\\-]", "-"),
            ("*x", "xxx"),
            ("", ""),
        ] {
            check(pattern, path, Some(true));
        }
        for (pattern, path) in [
            ("a*", "ab/c"),
            ("a*/b", "a/c/b"),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/fff"),
            ("a*b?c*x", "abxbbxdbxebxczzy"),
            ("ab[e-g]", "abc"),
            ("ab[^b-d]", "abc"),
            ("a???b", "a☺b"),
            ("*[a-ζ]", "A"),
            ("a?b", "a/b"),
            ("[d-a]", "c"),
            ("abc", "abcd"),
            ("*", "a/b"),
        ] {
            check(pattern, path, Some(false));
        }
        for pattern in ["[]a]", "[-]", "[x-]", "[-x]", "[^-]", "[", "[^", "[^bc", "a[", "a\\", "[a-b-c]", "[\\"] {
            check(pattern, "a", None);
        }
    }

    #[test]
    fn stars_take_linear_time() {
        let (pattern, path) = ("*a".repeat(500), "a".repeat(499));
        assert_eq!(path_match(&pattern, &path), Some(false));
    }
}
