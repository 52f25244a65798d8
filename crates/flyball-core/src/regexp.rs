//! Translation of Go's regular expressions to the syntax of the `regex` crate.
//!
//! Follows Go's `regexp/syntax` step by step, so that errors have Go's reason and quote the same part of the pattern.
//! See <https://pkg.go.dev/regexp/syntax>.

use std::fmt::{self, Write};

/// The error of a pattern, with the invalid part.
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

fn error<T>(what: &'static str, part: &str) -> Result<T, Error> {
    Err(Error { what, part: part.to_owned() })
}

/// Nesting depth of groups.
const MAX_DEPTH: usize = 1000;

/// Maximum count of a repetition; counts of nested repetitions multiply.
const MAX_REPEAT: u64 = 1_000;

/// Classes with names.
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Translates a pattern into the syntax of the `regex` crate.
///
/// # Errors
///
/// Fails if Go does not compile the pattern.
pub fn translate(pattern: &str) -> Result<String, Error> {
    let mut translator =
        Translator { whole: pattern, rest: pattern, out: String::new(), groups: vec![Group::default()] };
    let mut last_repeat = "";
    while let Some(c) = translator.rest.chars().next() {
        let before = translator.rest;
        let mut is_repeat = false;
        match c {
            '(' => translator.open()?,
            ')' => translator.close()?,
            '|' => {
                translator.copy(1);
                translator.group().operand = None;
            }
            '^' | '$' | '.' => translator.operand(1),
            '[' => translator.class()?,
            '*' | '+' | '?' => {
                translator.rest = &before[1..];
                translator.repeat(before, last_repeat, 1)?;
                is_repeat = true;
            }
            '{' => match counts(before) {
                None => translator.literal(c),
                Some((min, max, after)) => {
                    if min > MAX_REPEAT || max.is_some_and(|max| max > MAX_REPEAT || max < min) {
                        return error("invalid repeat count", until(before, after));
                    }
                    translator.rest = after;
                    translator.repeat(before, last_repeat, max.unwrap_or(min).max(1))?;
                    is_repeat = true;
                }
            },
            '\\' => translator.escape()?,
            c => translator.literal(c),
        }
        last_repeat = if is_repeat { before } else { "" };
    }
    if translator.groups.len() > 1 {
        return error("missing closing )", pattern);
    }
    Ok(translator.out)
}

/// Returns the part of a string before `after`, which is a suffix of it.
fn until<'t>(text: &'t str, after: &str) -> &'t str {
    &text[..text.len() - after.len()]
}

/// Parses the counts of `{2,5}`, and returns them with the rest of the string; counts that are too large saturate.
fn counts(text: &str) -> Option<(u64, Option<u64>, &str)> {
    let number = |text: &str| -> Option<u64> {
        let is_one = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        (is_one && !text.is_empty()).then(|| text.parse().unwrap_or(u64::MAX))
    };
    let (inside, after) = text.strip_prefix('{')?.split_once('}')?;
    match inside.split_once(',') {
        None => number(inside).map(|count| (count, Some(count), after)),
        Some((min, "")) => number(min).map(|min| (min, None, after)),
        Some((min, max)) => Some((number(min)?, Some(number(max)?), after)),
    }
}

/// State of a group during parsing.
#[derive(Default)]
struct Group {
    /// Repetitions within the operand of a repetition; none if there is no operand.
    operand: Option<u64>,
    /// The maximum of all operands.
    repeats: u64,
}

struct Translator<'p> {
    whole: &'p str,
    rest: &'p str,
    out: String,
    groups: Vec<Group>,
}

impl<'p> Translator<'p> {
    fn group(&mut self) -> &mut Group {
        self.groups.last_mut().expect("the pattern itself is a group")
    }

    /// Copies bytes unchanged.
    fn copy(&mut self, length: usize) {
        self.out.push_str(&self.rest[..length]);
        self.rest = &self.rest[length..];
    }

    /// Copies an operand of a repetition.
    fn operand(&mut self, length: usize) {
        self.copy(length);
        self.group().operand = Some(1);
    }

    /// Writes an operand of a repetition.
    fn written(&mut self, text: &str) {
        self.out.push_str(text);
        self.group().operand = Some(1);
    }

    fn literal(&mut self, c: char) {
        self.rest = &self.rest[c.len_utf8()..];
        self.written(&regex_syntax::escape(c.encode_utf8(&mut [0; 4])));
    }

    /// Writes a repetition that begins with `before`, after its counts were parsed.
    fn repeat(&mut self, before: &'p str, last: &str, count: u64) -> Result<(), Error> {
        let operator = until(before, self.rest);
        let is_lazy = self.rest.starts_with('?');
        self.rest = self.rest.strip_prefix('?').unwrap_or(self.rest);
        if !last.is_empty() {
            return error("invalid nested repetition operator", until(last, self.rest));
        }
        let Some(inner) = self.group().operand else {
            return error("missing argument to repetition operator", until(before, self.rest));
        };
        let repeats = inner.saturating_mul(count);
        if count > 1 && repeats > MAX_REPEAT {
            return error("invalid repeat count", until(before, self.rest));
        }
        self.out.push_str(operator);
        self.out.push_str(if is_lazy { "?" } else { "" });
        let group = self.group();
        group.operand = Some(repeats);
        group.repeats = group.repeats.max(repeats);
        Ok(())
    }

    fn open(&mut self) -> Result<(), Error> {
        if self.groups.len() > MAX_DEPTH {
            return error("expression nests too deeply", self.whole);
        }
        let Some(inside) = self.rest.strip_prefix("(?") else {
            self.copy(1);
            self.groups.push(Group::default());
            return Ok(());
        };
        if let Some(named) = inside.strip_prefix("P<").or_else(|| inside.strip_prefix('<')) {
            let Some((name, after)) = named.split_once('>') else {
                return error("invalid named capture", self.rest);
            };
            if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
                return error("invalid named capture", until(self.rest, after));
            }
            let _ = write!(self.out, "(?P<{name}>");
            self.rest = after;
            self.groups.push(Group::default());
            return Ok(());
        }
        let (mut is_negative, mut has_flag) = (false, false);
        for (at, c) in inside.char_indices() {
            match c {
                'i' | 'm' | 's' | 'U' => has_flag = true,
                '-' if !is_negative => (is_negative, has_flag) = (true, false),
                ':' | ')' if !is_negative || has_flag => {
                    // `(?)` has no effect, and the `regex` crate does not support it.
                    if c == ')' && at == 0 {
                        self.rest = &inside[1..];
                    } else {
                        self.copy(2 + at + 1);
                    }
                    if c == ':' {
                        self.groups.push(Group::default());
                    }
                    return Ok(());
                }
                _ => {
                    let quoted = &self.rest[..2 + at + c.len_utf8()];
                    return error("invalid or unsupported Perl syntax", quoted);
                }
            }
        }
        error("invalid or unsupported Perl syntax", self.rest)
    }

    fn close(&mut self) -> Result<(), Error> {
        let Some(group) = self.groups.pop().filter(|_| !self.groups.is_empty()) else {
            return error("unexpected )", self.whole);
        };
        self.operand(1);
        let repeats = group.repeats.max(1);
        let outer = self.group();
        outer.operand = Some(repeats);
        outer.repeats = outer.repeats.max(repeats);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Error> {
        let after = self.rest.get(2..).unwrap_or_default();
        match self.rest[1..].chars().next() {
            Some('A' | 'z') => self.operand(2),
            Some(c @ ('b' | 'B')) => {
                self.rest = after;
                self.written(&format!(r"(?-u:\{c})"));
            }
            Some('Q') => {
                let (literal, after) = after.split_once("\\E").unwrap_or((after, ""));
                self.rest = after;
                if !literal.is_empty() {
                    // A repetition applies to the last character alone.
                    self.written(&regex_syntax::escape(literal));
                }
            }
            Some('C') => return error("invalid escape sequence", &self.rest[..2]),
            Some(c) if perl_class(c).is_some() => {
                self.rest = after;
                self.written(perl_class(c).unwrap_or_default());
            }
            Some('p' | 'P') => {
                let class = self.unicode_class()?;
                self.written(&class);
            }
            _ => {
                let (c, after) = character(self.rest)?;
                self.rest = after;
                self.written(&regex_syntax::escape(c.encode_utf8(&mut [0; 4])));
            }
        }
        Ok(())
    }

    /// Translates a Unicode class, such as `\p{Greek}` or `\pL`.
    fn unicode_class(&mut self) -> Result<String, Error> {
        let text = self.rest;
        let (name, after) = match text[2..].strip_prefix('{') {
            Some(inside) => match inside.split_once('}') {
                Some(split) => split,
                None => return error("invalid character class range", text),
            },
            None => text[2..].split_at(text[2..].chars().next().map_or(0, char::len_utf8)),
        };
        self.rest = after;
        let (is_inverse, name) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
        let class = format!("\\{}{{{name}}}", if text.starts_with("\\P") == is_inverse { 'p' } else { 'P' });
        if regex_syntax::parse(&class).is_err() {
            return error("invalid character class range", until(text, after));
        }
        Ok(class)
    }

    fn class(&mut self) -> Result<(), Error> {
        let whole = self.rest;
        let missing = || error("missing closing ]", whole);
        self.rest = &whole[1..];
        let mut class = String::from("[");
        if let Some(rest) = self.rest.strip_prefix('^') {
            class.push('^');
            self.rest = rest;
        }
        let mut is_first = true;
        while !self.rest.starts_with(']') || is_first {
            is_first = false;
            let text = self.rest;
            if text.is_empty() {
                return missing();
            }
            if text.starts_with("[:")
                && let Some(length) = text[2..].find(":]")
            {
                let name = &text[..length + 4];
                if !CLASSES.contains(&name[2..name.len() - 2].trim_start_matches('^')) {
                    return error("invalid character class range", name);
                }
                class.push_str(name);
                self.rest = &text[name.len()..];
                continue;
            }
            if text.starts_with("\\p") || text.starts_with("\\P") {
                class.push_str(&self.unicode_class()?);
                continue;
            }
            if let Some(perl) = text.strip_prefix('\\').and_then(|text| text.chars().next()).and_then(perl_class) {
                class.push_str(perl);
                self.rest = &text[2..];
                continue;
            }
            let (low, rest) = character(text)?;
            self.rest = rest;
            let mut high = low;
            if let Some(rest) = rest.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with(']')) {
                (high, self.rest) = character(rest)?;
                if high < low {
                    return error("invalid character class range", until(text, self.rest));
                }
            }
            let _ = write!(class, "\\x{{{:x}}}-\\x{{{:x}}}", u32::from(low), u32::from(high));
        }
        self.rest = &self.rest[1..];
        class.push(']');
        self.written(&class);
        Ok(())
    }
}

/// Returns the set of a Perl class, which contains only ASCII characters, as in Go.
fn perl_class(c: char) -> Option<&'static str> {
    Some(match c {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => r"[\t\n\f\r ]",
        'S' => r"[^\t\n\f\r ]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        _ => return None,
    })
}

/// A character, which may be escaped, and the rest of the pattern.
fn character(text: &str) -> Result<(char, &str), Error> {
    let mut chars = text.chars();
    let c = chars.next().unwrap_or_default();
    if c != '\\' {
        return Ok((c, chars.as_str()));
    }
    let Some(c) = chars.next() else { return error("trailing backslash at end of expression", "") };
    let code = |number: u32| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
    let after = chars.as_str();
    let found = match c {
        'a' => '\x07',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        // One digit is a reference to a group, unless it is zero.
        '0'..='7' if c == '0' || after.starts_with(|c| matches!(c, '0'..='7')) => {
            let more = after.bytes().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let digits = &text[1..2 + more];
            return Ok((code(u32::from_str_radix(digits, 8).unwrap_or(0)), &after[more..]));
        }
        'x' => match hexadecimal(after) {
            (Some(number), after) => return Ok((code(number), after)),
            (None, after) => return error("invalid escape sequence", until(text, after)),
        },
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return error("invalid escape sequence", until(text, after)),
    };
    Ok((found, after))
}

/// Parses the number after `\x`: two digits, or any number of them in braces. Without a number, returns the rest of the
/// pattern at which Go fails.
fn hexadecimal(text: &str) -> (Option<u32>, &str) {
    let mut chars = text.chars();
    if !text.starts_with('{') {
        let (high, low) = (chars.next(), chars.next());
        let digit = |c: Option<char>| c.and_then(|c| c.to_digit(16));
        return (digit(high).zip(digit(low)).map(|(high, low)| high * 16 + low), chars.as_str());
    }
    chars.next();
    let mut number = None;
    loop {
        match chars.next() {
            Some('}') => return (number, chars.as_str()),
            Some(c) => match c.to_digit(16).map(|digit| number.unwrap_or(0) * 16 + digit) {
                Some(larger) if larger <= u32::from(char::MAX) => number = Some(larger),
                _ => return (None, chars.as_str()),
            },
            None => return (None, ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str) -> Result<(), Error> {
        translate(pattern).map(drop)
    }

    #[test]
    fn patterns_valid_in_go_are_accepted() {
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
            "[a-b-c]",
            "[--a]",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn invalid_patterns_are_rejected_with_gos_messages() {
        for (pattern, reason) in [
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
            (r"(a)\1", r"invalid escape sequence: `\1`"),
            (r"\", "trailing backslash at end of expression: ``"),
            ("x[]", "missing closing ]: `[]`"),
            ("a+?*b", "invalid nested repetition operator: `+?*`"),
            ("a|*", "missing argument to repetition operator: `*`"),
            ("(+?)", "missing argument to repetition operator: `+?`"),
            ("a{3,2}b", "invalid repeat count: `{3,2}`"),
            ("((a{100}){10}){2}", "invalid repeat count: `{2}`"),
            (r"[a-\d]", r"invalid escape sequence: `\d`"),
            ("[[:nope:]]", "invalid character class range: `[:nope:]`"),
            (r"\p{Nope}x", r"invalid character class range: `\p{Nope}`"),
            ("(?<=a)", "invalid named capture: `(?<=a)`"),
            ("(?P<n-a>x)", "invalid named capture: `(?P<n-a>`"),
            ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
            (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            ("(?", "invalid or unsupported Perl syntax: `(?`"),
            ("(?i)(?s", "invalid or unsupported Perl syntax: `(?s`"),
            ("(?P=n)", "invalid or unsupported Perl syntax: `(?P`"),
            ("(?P<é>x)", "invalid named capture: `(?P<é>`"),
            (r"\C", r"invalid escape sequence: `\C`"),
            (r"\x{zz}", r"invalid escape sequence: `\x{z`"),
            (r"[a-\pN]", r"invalid escape sequence: `\p`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ] {
            let message = check(pattern).err().map(|error| error.to_string());
            assert_eq!(message, Some(format!("error parsing regexp: {reason}")), "{pattern}");
        }
    }

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, text, found) in [
            (r"[\w-\.]+", "a-b.c!", "a-b.c"),
            (r"[]a]+", "x]a]", "]a]"),
            (r"[a-]+", "xa-", "a-"),
            ("a{,2}", "a{,2}", "a{,2}"),
            (r"\Qa.b\E+", "a.bb", "a.bb"),
            (r"\x{41}\101\.", "AA.", "AA."),
            (r"[[:^alpha:]\s]+", "ab 12", " 12"),
            (r"\p{^L}+", "ab12", "12"),
            ("[&&~~]+", "a&~", "&~"),
            ("(?i)ABC(?-i:d)", "abcd", "abcd"),
            (r"\w+", "éab", "ab"),
            ("a(?)b", "ab", "ab"),
        ] {
            let regex = regex::Regex::new(&translate(pattern).unwrap()).unwrap();
            assert_eq!(regex.find(text).map(|found| found.as_str()), Some(found), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_patterns_do_not_panic(pattern in r"([\[\]()?*+{}|\\^$:<>P,0-9a-z-]|\PC){0,24}") {
            let _ = check(&pattern);
        }
    }
}
