//! The syntax of regular expressions in Go, with its words for what is none.
//!
//! Patterns are run by the `regex` crate, whose syntax is close to Go's. This only says whether Go takes a pattern, and
//! if not, why: clients are told so. See <https://pkg.go.dev/regexp/syntax>.

use std::fmt;

/// The error of a pattern, with the part that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    what: &'static str,
    part: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.what, self.part)
    }
}

impl std::error::Error for Error {}

/// The most that one repetition may say, and all within one another.
const MAX_REPEAT: u32 = 1000;

/// Nesting depth of groups.
const MAX_DEPTH: usize = 1000;

/// Checks the syntax of a pattern.
///
/// # Errors
///
/// If Go does not compile the pattern.
pub fn check(pattern: &str) -> Result<(), Error> {
    Parser { whole: pattern, rest: pattern, depth: 0, last: Last::Nothing }.run()
}

/// The element before a position in a pattern.
enum Last<'p> {
    Nothing,
    Item,
    /// A repetition, from its operator on.
    Repeated(&'p str),
}

struct Parser<'p> {
    whole: &'p str,
    rest: &'p str,
    /// Number of open groups.
    depth: usize,
    last: Last<'p>,
}

fn error<T>(what: &'static str, part: &str) -> Result<T, Error> {
    Err(Error { what, part: part.to_owned() })
}

impl<'p> Parser<'p> {
    fn run(mut self) -> Result<(), Error> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '(' => self.open()?,
                ')' => {
                    if self.depth == 0 {
                        return error("unexpected )", self.whole);
                    }
                    self.depth -= 1;
                    self.atom(1);
                }
                '|' => {
                    self.skip(1);
                    self.last = Last::Nothing;
                }
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    let lazy = usize::from(self.rest[1..].starts_with('?'));
                    self.repeat(1 + lazy)?;
                }
                '{' => match count(self.rest) {
                    None => self.atom(1),
                    Some((least, most, length)) => {
                        let too_large =
                            least > MAX_REPEAT || most.is_some_and(|most| most > MAX_REPEAT || most < least);
                        if too_large {
                            return error("invalid repeat count", &self.rest[..length]);
                        }
                        let lazy = usize::from(self.rest[length..].starts_with('?'));
                        self.repeat(length + lazy)?;
                    }
                },
                '\\' => self.escape()?,
                c => self.atom(c.len_utf8()),
            }
        }
        if self.depth == 0 { Ok(()) } else { error("missing closing )", self.whole) }
    }

    fn skip(&mut self, length: usize) {
        self.rest = &self.rest[length..];
    }

    /// Skips an atom, which can be repeated.
    fn atom(&mut self, length: usize) {
        self.skip(length);
        self.last = Last::Item;
    }

    fn repeat(&mut self, length: usize) -> Result<(), Error> {
        let operator = self.rest;
        match self.last {
            Last::Nothing => return error("missing argument to repetition operator", &operator[..length]),
            Last::Repeated(before) => {
                let both = before.len() - operator.len() + length;
                return error("invalid nested repetition operator", &before[..both]);
            }
            Last::Item => {}
        }
        self.skip(length);
        self.last = Last::Repeated(operator);
        Ok(())
    }

    fn open(&mut self) -> Result<(), Error> {
        if self.depth >= MAX_DEPTH {
            return error("expression nests too deeply", self.whole);
        }
        let Some(flags) = self.rest.strip_prefix("(?") else {
            self.skip(1);
            self.depth += 1;
            self.last = Last::Nothing;
            return Ok(());
        };
        if let Some(name) = flags.strip_prefix("P<").or_else(|| flags.strip_prefix('<')) {
            let Some(end) = name.find('>') else { return error("invalid named capture", self.rest) };
            let length = self.rest.len() - name.len() + end + 1;
            let word = |c: char| c == '_' || c.is_alphanumeric();
            if end == 0 || !name[..end].chars().all(word) {
                return error("invalid named capture", &self.rest[..length]);
            }
            self.skip(length);
            self.depth += 1;
            self.last = Last::Nothing;
            return Ok(());
        }
        let (mut minus, mut any) = (false, false);
        for (i, c) in flags.char_indices() {
            match c {
                'i' | 'm' | 's' | 'U' => any = true,
                '-' if !minus => (minus, any) = (true, false),
                ':' | ')' if !minus || any => {
                    self.skip(2 + i + 1);
                    if c == ':' {
                        self.depth += 1;
                        self.last = Last::Nothing;
                    }
                    return Ok(());
                }
                _ => return error("invalid or unsupported Perl syntax", &self.rest[..2 + i + c.len_utf8()]),
            }
        }
        error("missing argument to repetition operator", "?")
    }

    /// Reads an escape outside of a class.
    fn escape(&mut self) -> Result<(), Error> {
        if let Some(quoted) = self.rest.strip_prefix("\\Q") {
            match quoted.find("\\E") {
                Some(end) => self.skip(2 + end + 2),
                None => self.rest = "",
            }
            self.last = Last::Item;
            return Ok(());
        }
        let length = match self.rest[1..].chars().next() {
            Some('A' | 'b' | 'B' | 'C' | 'z' | 'd' | 'D' | 's' | 'S' | 'w' | 'W') => 2,
            Some('p' | 'P') => property(self.rest)?,
            _ => character(self.rest)?,
        };
        self.atom(length);
        Ok(())
    }

    fn class(&mut self) -> Result<(), Error> {
        let whole = self.rest;
        let mut rest = &whole[1..];
        rest = rest.strip_prefix('^').unwrap_or(rest);
        let mut first = true;
        while first || !rest.starts_with(']') {
            let Some(c) = rest.chars().next() else { return error("missing closing ]", whole) };
            // A minus sign stands for itself at either end.
            if c == '-' && !first && !rest[1..].starts_with(']') {
                let after = rest[1..].chars().next().map_or(0, char::len_utf8);
                return error("invalid character class range", &rest[..1 + after]);
            }
            first = false;
            let named = rest.strip_prefix("[:").and_then(|named| Some(&named[..named.find(":]")?]));
            if let Some(named) = named {
                let length = 2 + named.len() + 2;
                if !CLASSES.contains(&named.strip_prefix('^').unwrap_or(named)) {
                    return error("invalid character class range", &rest[..length]);
                }
                rest = &rest[length..];
                continue;
            }
            if rest.starts_with("\\p") || rest.starts_with("\\P") {
                rest = &rest[property(rest)?..];
                continue;
            }
            if ["\\d", "\\D", "\\s", "\\S", "\\w", "\\W"].iter().any(|class| rest.starts_with(class)) {
                rest = &rest[2..];
                continue;
            }
            let range = rest;
            let low = &rest[..class_character(rest, whole)?];
            rest = &rest[low.len()..];
            if rest.starts_with('-') && rest.len() >= 2 && !rest[1..].starts_with(']') {
                rest = &rest[1..];
                let high = &rest[..class_character(rest, whole)?];
                rest = &rest[high.len()..];
                if value(high) < value(low) {
                    return error("invalid character class range", &range[..range.len() - rest.len()]);
                }
            }
        }
        self.rest = &rest[1..];
        self.last = Last::Item;
        Ok(())
    }
}

/// The named classes of ASCII.
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Reads `{2}`, `{2,}` or `{2,5}`: the least, the most and the length; `None` if it is none of them.
fn count(text: &str) -> Option<(u32, Option<u32>, usize)> {
    let end = text.find('}')?;
    let (least, most) = match text[1..end].split_once(',') {
        Some((least, "")) => (least, None),
        Some((least, most)) => (least, Some(most)),
        None => (&text[1..end], Some(&text[1..end])),
    };
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits.len() == 1 || !digits.starts_with('0'));
        (plain && !digits.is_empty()).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let most = match most {
        Some(most) => Some(number(most)?),
        None => None,
    };
    Some((number(least)?, most, end + 1))
}

/// Returns the length of `\pL` or `\p{Greek}`.
fn property(text: &str) -> Result<usize, Error> {
    let Some(c) = text[2..].chars().next() else { return error("invalid character class range", text) };
    if c != '{' {
        return Ok(2 + c.len_utf8());
    }
    match text.find('}') {
        Some(end) => Ok(end + 1),
        None => error("invalid character class range", text),
    }
}

/// Returns the length of a character of a class.
fn class_character(text: &str, class: &str) -> Result<usize, Error> {
    match text.chars().next() {
        None => error("missing closing ]", class),
        Some('\\') => character(text),
        Some(c) => Ok(c.len_utf8()),
    }
}

/// Returns the length of an escape that stands for one character.
fn character(text: &str) -> Result<usize, Error> {
    let Some(c) = text[1..].chars().next() else { return error("trailing backslash at end of expression", "") };
    let wrong = |length: usize| error("invalid escape sequence", &text[..length]);
    match c {
        '1'..='7' if !text[2..].starts_with(|next: char| matches!(next, '0'..='7')) => wrong(2),
        '0'..='7' => Ok(2 + text[2..].bytes().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count()),
        'x' => {
            if let Some(digits) = text[2..].strip_prefix('{') {
                let length = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
                let closed = digits[length..].starts_with('}');
                let known = u32::from_str_radix(&digits[..length], 16).is_ok_and(|code| code <= u32::from(char::MAX));
                let next = digits[length..].chars().next().map_or(0, char::len_utf8);
                return if closed && known { Ok(3 + length + 1) } else { wrong(3 + length + next) };
            }
            match text[2..].bytes().take(2).take_while(u8::is_ascii_hexdigit).count() {
                2 => Ok(4),
                digits => wrong(2 + digits + text[2 + digits..].chars().next().map_or(0, char::len_utf8)),
            }
        }
        'a' | 'f' | 'n' | 'r' | 't' | 'v' => Ok(2),
        c if c.is_ascii() && c != '_' && !c.is_ascii_alphanumeric() => Ok(2),
        c => wrong(1 + c.len_utf8()),
    }
}

/// Returns the character that one of a class stands for.
fn value(text: &str) -> u32 {
    let Some(escaped) = text.strip_prefix('\\') else { return text.chars().next().map_or(0, u32::from) };
    let hex = |digits: &str| u32::from_str_radix(digits.trim_matches(['{', '}']), 16).unwrap_or_default();
    match escaped.chars().next() {
        Some('x') => hex(&escaped[1..]),
        Some('0'..='7') => u32::from_str_radix(escaped, 8).unwrap_or_default(),
        Some('a') => 7,
        Some('f') => 12,
        Some('n') => 10,
        Some('r') => 13,
        Some('t') => 9,
        Some('v') => 11,
        Some(c) => u32::from(c),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_go_takes_passes() {
        for pattern in [
            "",
            "a|",
            "()",
            "(?i)a",
            "(?i-s:a)",
            "(?P<name>a)",
            "(?<name>a)",
            "[]a]",
            "[^]a]",
            "[a-]",
            "[-a]",
            "[[:alpha:]_]",
            r"\pL\p{Greek}",
            r"\Q(\E",
            r"\x41\x{10FFFF}\012",
            "a{2,3}?",
            "a{,2}",
            "a{x",
            "a*?",
            r"^[\w.+-]+$",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn what_go_does_not_take_is_refused_in_its_words() {
        for (pattern, why) in [
            ("[a", "missing closing ]: `[a`"),
            ("x[a", "missing closing ]: `[a`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a|+?", "missing argument to repetition operator: `+?`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a+??", "invalid nested repetition operator: `+??`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{3,2}", "invalid repeat count: `{3,2}`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:word]:]]", "invalid character class range: `[:word]:]`"),
            ("[[:none:]]", "invalid character class range: `[:none:]`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            ("\\", "trailing backslash at end of expression: ``"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            ("(?<=a)b", "invalid named capture: `(?<=a)b`"),
            ("(?P<a-b>x)", "invalid named capture: `(?P<a-b>`"),
        ] {
            let told = check(pattern).err().map(|error| error.to_string());
            assert_eq!(told, Some(format!("error parsing regexp: {why}")), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(pattern in r"([\[\]()?*+{}|\\^$:<>P,0-9a-z-]|\PC){0,24}") {
            let _ = check(&pattern);
        }
    }
}
