//! YAML emitter with the output of go-yaml: version 2 for `toYaml`, version 3 with an indent of two for `toYamlPretty`.

use super::Data;
use super::resolve::{is_timestamp, resolve};
use crate::number::{format_float, special};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// Emulated version of go-yaml.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Version {
    /// Lists in maps are not indented.
    Two,
    /// Lists in maps are indented.
    Three,
}

/// The key order of a mapping.
pub(super) type Order = fn(&str, &str) -> Ordering;

/// Emits a document, with a line break at its end; and the ranges of untrusted data.
pub(super) fn emit(data: &Data, origin: &Origin, version: Version, order: Order) -> (String, Vec<Range<usize>>) {
    let mut emitter = Emitter { out: String::new(), marks: Vec::new(), version, order };
    emitter.value(data, origin, 0, Context::Root);
    (emitter.out, emitter.marks)
}

/// Parts of a document that are untrusted data.
#[derive(Debug, Default)]
pub(crate) enum Origin {
    /// None.
    #[default]
    Chart,
    /// All of it.
    Data,
    /// The parts of the items.
    List(Vec<Origin>),
    /// The parts of the entries, by key, with whether the key is data.
    Map(BTreeMap<String, (bool, Origin)>),
}

impl Origin {
    fn is_data(&self) -> bool {
        matches!(self, Origin::Data)
    }
}

struct Emitter {
    out: String,
    marks: Vec<Range<usize>>,
    version: Version,
    order: Order,
}

/// The position of a value.
#[derive(Clone, Copy, PartialEq)]
enum Context {
    Root,
    Item,
    Entry,
}

impl Emitter {
    fn indent(&mut self, columns: usize) {
        self.out.extend(std::iter::repeat_n(' ', columns));
    }

    /// Emits a value after the start of its line; `columns` is the indentation of nested lists.
    fn value(&mut self, data: &Data, origin: &Origin, columns: usize, context: Context) {
        match data {
            Data::Map(entries) if !entries.is_empty() => {
                if context == Context::Entry {
                    self.out.push('\n');
                }
                let mut keys: Vec<&String> = entries.keys().collect();
                keys.sort_by(|a, b| (self.order)(a, b));
                for (at, key) in keys.into_iter().enumerate() {
                    if at > 0 || context == Context::Entry {
                        self.indent(columns);
                    }
                    let (is_data, origin) = match origin {
                        Origin::Map(origins) => origins.get(key).map_or((false, &Origin::Chart), |(is, of)| (*is, of)),
                        other => (other.is_data(), other),
                    };
                    let is_long = is_long(key);
                    self.marked(is_data, |emitter| emitter.key(key, columns));
                    self.out.push(':');
                    let inner = &entries[key];
                    if is_long && !is_empty(inner) {
                        // Nested lines of a key start after the colon.
                        self.out.push(' ');
                        self.value(inner, origin, columns + 2, Context::Item);
                        continue;
                    }
                    let nested = match inner {
                        Data::List(_) if self.version == Version::Two => columns,
                        _ => columns + 2,
                    };
                    self.value(inner, origin, nested, Context::Entry);
                }
            }
            Data::List(items) if !items.is_empty() => {
                if context == Context::Entry {
                    self.out.push('\n');
                }
                for (at, item) in items.iter().enumerate() {
                    if at > 0 || context == Context::Entry {
                        self.indent(columns);
                    }
                    self.out.push_str("- ");
                    let origin = match origin {
                        Origin::List(origins) => origins.get(at).unwrap_or(&Origin::Chart),
                        other => other,
                    };
                    self.value(item, origin, columns + 2, Context::Item);
                }
            }
            scalar => {
                if context == Context::Entry {
                    self.out.push(' ');
                }
                // A literal in a list item or at the root is indented relative to its parent.
                let around = match context {
                    Context::Root => 0,
                    Context::Item | Context::Entry => columns.saturating_sub(2),
                };
                self.marked(origin.is_data(), |emitter| emitter.scalar(scalar, around + 2, false));
                self.out.push('\n');
            }
        }
    }

    fn key(&mut self, key: &str, columns: usize) {
        if is_long(key) {
            self.out.push_str("? ");
            self.scalar(&Data::Str(key.to_owned()), columns + 2, false);
            self.out.push('\n');
            self.indent(columns);
        } else {
            self.scalar(&Data::Str(key.to_owned()), columns, true);
        }
    }

    /// Emits a part that may be data.
    fn marked(&mut self, is_data: bool, write: impl FnOnce(&mut Self)) {
        let from = self.out.len();
        write(self);
        if is_data {
            self.marks.push(from..self.out.len());
        }
    }

    fn scalar(&mut self, data: &Data, columns: usize, is_key: bool) {
        match data {
            Data::Null => self.out.push_str("null"),
            Data::Bool(is) => self.out.push_str(if *is { "true" } else { "false" }),
            Data::Int(whole) => _ = write!(self.out, "{whole}"),
            Data::Uint(whole) => _ = write!(self.out, "{whole}"),
            Data::Float(number) => match special(*number) {
                Some("NaN") => self.out.push_str(".nan"),
                Some("+Inf") => self.out.push_str(".inf"),
                Some(_) => self.out.push_str("-.inf"),
                None => self.out.push_str(&format_float(*number)),
            },
            Data::List(_) => self.out.push_str("[]"),
            Data::Map(_) => self.out.push_str("{}"),
            Data::Str(text) => self.text(text, columns, is_key),
        }
    }

    fn text(&mut self, text: &str, columns: usize, is_key: bool) {
        let styles = Styles::of(text, self.version);
        if text.contains('\n') && !is_key && styles.block {
            return self.literal(text, columns);
        }
        let wants_quotes = is_ambiguous(text);
        // Indentation of continued lines.
        let fold = (self.version == Version::Two && !is_key).then_some(columns);
        if text.contains('\n') || wants_quotes {
            return self.double(text, fold);
        }
        if styles.plain && !text.is_empty() {
            self.folded(text, fold, false);
        } else if styles.single {
            self.out.push('\'');
            self.folded(text, fold, true);
            self.out.push('\'');
        } else {
            self.double(text, fold);
        }
    }

    /// Returns the number of characters of the line so far.
    fn column(&self) -> usize {
        self.out.rsplit('\n').next().map_or(0, |line| line.chars().count())
    }

    /// Emits a string without escapes, and breaks long lines at single spaces.
    fn folded(&mut self, text: &str, fold: Option<usize>, is_quoted: bool) {
        let (mut column, mut was_space, mut was_break) = (self.column(), false, false);
        for (at, c) in text.char_indices() {
            let next = text[at + c.len_utf8()..].chars().next();
            let may_break =
                !was_space && column > WIDTH && next != Some(' ') && (!is_quoted || at > 0 && next.is_some());
            match fold {
                Some(columns) if c == ' ' && may_break => {
                    self.out.push('\n');
                    self.indent(columns);
                    column = columns;
                }
                _ => {
                    if was_break && c != ' ' && !is_break(c) {
                        self.indent(fold.unwrap_or(0));
                    }
                    if is_quoted && c == '\'' {
                        self.out.push(c);
                        column += 1;
                    }
                    self.out.push(c);
                    column = if is_break(c) { 0 } else { column + 1 };
                }
            }
            was_space = c == ' ';
            was_break = is_break(c) || was_break && was_space;
        }
    }

    fn literal(&mut self, text: &str, columns: usize) {
        self.out.push('|');
        if text.starts_with([' ', '\n']) {
            self.out.push('2');
        }
        let body = text.strip_suffix('\n');
        match body {
            None => self.out.push('-'),
            Some(body) if body.is_empty() || body.ends_with('\n') => self.out.push('+'),
            Some(_) => {}
        }
        for line in body.unwrap_or(text).split('\n') {
            self.out.push('\n');
            if !line.is_empty() {
                self.indent(columns);
                self.out.push_str(line);
            }
        }
    }

    fn double(&mut self, text: &str, fold: Option<usize>) {
        self.out.push('"');
        let (mut column, mut was_space) = (self.column(), false);
        // go-yaml checks for the byte order mark at the start of the text, for each character.
        let version = self.version;
        let is_plain = |c: char| is_printable(c, version) && !text.starts_with('\u{feff}');
        for (at, c) in text.char_indices() {
            let from = self.out.len();
            match c {
                ' ' if is_plain(c)
                    && !was_space
                    && column > WIDTH
                    && at > 0
                    && at + 1 < text.len()
                    && fold.is_some() =>
                {
                    let columns = fold.unwrap_or(0);
                    self.out.push('\n');
                    self.indent(columns);
                    column = columns;
                    // A space at the start of a line would be lost.
                    if text[at + 1..].starts_with(' ') {
                        self.out.push('\\');
                        column += 1;
                    }
                    was_space = true;
                    continue;
                }
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\0' => self.out.push_str("\\0"),
                '\x07' => self.out.push_str("\\a"),
                '\x08' => self.out.push_str("\\b"),
                '\t' => self.out.push_str("\\t"),
                '\n' => self.out.push_str("\\n"),
                '\x0b' => self.out.push_str("\\v"),
                '\x0c' => self.out.push_str("\\f"),
                '\r' => self.out.push_str("\\r"),
                '\x1b' => self.out.push_str("\\e"),
                '\u{85}' => self.out.push_str("\\N"),
                '\u{a0}' => self.out.push_str("\\_"),
                '\u{2028}' => self.out.push_str("\\L"),
                '\u{2029}' => self.out.push_str("\\P"),
                '\u{feff}' => self.out.push_str("\\uFEFF"),
                c if is_plain(c) => self.out.push(c),
                c if u32::from(c) <= 0xff => _ = write!(self.out, "\\x{:02X}", u32::from(c)),
                c if u32::from(c) <= 0xffff => _ = write!(self.out, "\\u{:04X}", u32::from(c)),
                c => _ = write!(self.out, "\\U{:08X}", u32::from(c)),
            }
            column += self.out[from..].chars().count();
            was_space = c == ' ';
        }
        self.out.push('"');
    }
}

/// The column after which go-yaml 2 breaks a line.
const WIDTH: usize = 80;

/// Returns true if a key needs the explicit form.
fn is_long(key: &str) -> bool {
    key.contains(is_break) || key.len() > 128
}

/// Returns true if a value has no nested values.
fn is_empty(data: &Data) -> bool {
    match data {
        Data::List(items) => items.is_empty(),
        Data::Map(entries) => entries.is_empty(),
        _ => true,
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// go-yaml 2 considers characters beyond 16 bits unprintable.
fn is_printable(c: char, version: Version) -> bool {
    match u32::from(c) {
        0x0a | 0x20..=0x7e | 0xa0..=0xd7ff => true,
        0xe000..=0xfffd => c != '\u{feff}',
        0x10000..=0x0010_ffff => version == Version::Three,
        _ => false,
    }
}

/// The possible styles of a string.
struct Styles {
    plain: bool,
    single: bool,
    block: bool,
}

impl Styles {
    fn of(text: &str, version: Version) -> Styles {
        if text.is_empty() {
            return Styles { plain: true, single: true, block: false };
        }
        let chars: Vec<char> = text.chars().collect();
        let is_blank_at = |at: usize| chars.get(at).is_none_or(|c| matches!(c, ' ' | '\t'));
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut breaks) = (false, false);
        let (mut space_break, mut break_space) = (false, false);
        let (mut was_space, mut was_break) = (false, false);
        let mut preceded = true;
        for (at, c) in chars.iter().copied().enumerate() {
            indicators |= match (at, c) {
                (0, '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`') => {
                    true
                }
                (0, '?' | ':' | '-') => is_blank_at(at + 1),
                (_, ':') => is_blank_at(at + 1),
                (_, '#') => preceded,
                _ => false,
            };
            special |= !is_printable(c, version);
            if c == ' ' {
                break_space |= was_break;
                (was_space, was_break) = (true, false);
            } else if is_break(c) {
                breaks = true;
                space_break |= was_space;
                (was_space, was_break) = (false, true);
            } else {
                (was_space, was_break) = (false, false);
            }
            preceded = matches!(c, ' ' | '\t') || is_break(c);
        }
        let (first, last) = (chars[0], chars[chars.len() - 1]);
        let edges = first == ' ' || last == ' ' || is_break(first) || is_break(last);
        let trailing_space = last == ' ';
        Styles {
            plain: !(edges || break_space || space_break || special || breaks || indicators),
            single: !(break_space || space_break || special),
            block: !(trailing_space || space_break || special),
        }
    }
}

/// Returns true if a plain string would be parsed as another type.
fn is_ambiguous(text: &str) -> bool {
    resolve(text).is_some() || is_timestamp(text) || is_base_60(text)
}

/// `1:30`, which is ninety in YAML 1.1.
fn is_base_60(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !rest.starts_with(|c: char| c.is_ascii_digit()) || !rest.contains(':') {
        return false;
    }
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let mut parts = whole.split(':');
    parts.next().is_some_and(digits)
        && parts.all(|part| matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']))
        && digits(fraction)
}

/// The key order: numbers within strings are compared by value.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    for at in 0..a.len().min(b.len()) {
        let (x, y) = (a[at], b[at]);
        if x == y {
            continue;
        }
        match (x.is_alphabetic(), y.is_alphabetic()) {
            (true, true) => return x.cmp(&y),
            (false, false) => {}
            (_, right) => return if right { Ordering::Less } else { Ordering::Greater },
        }
        // Leading zeros count only if no digit precedes them.
        let mut start = 0u64;
        if x == '0' || y == '0' {
            start = u64::from(a[..at].iter().rev().take_while(|c| c.is_numeric()).any(|c| *c != '0'));
        }
        let number = |text: &[char]| {
            let digits: Vec<u64> = text[at..]
                .iter()
                .take_while(|c| c.is_numeric())
                .map(|c| u64::from(c.to_digit(10).unwrap_or(0)))
                .collect();
            (digits.iter().fold(start, |sum, digit| sum.wrapping_mul(10).wrapping_add(*digit)), digits.len())
        };
        let ((left, left_end), (right, right_end)) = (number(&a), number(&b));
        return left.cmp(&right).then(left_end.cmp(&right_end)).then(x.cmp(&y));
    }
    a.len().cmp(&b.len())
}
