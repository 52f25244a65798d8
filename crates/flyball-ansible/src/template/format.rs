//! Python's `str.format`, within the size limit of outputs.
//!
//! A width or precision of a few digits, and a field that repeats an argument, may request any size. So the size is
//! estimated from the format string and the arguments, and charged, before anything is formatted.

use super::output::check_size;
use super::{BYTES_PER_FUEL, weigh};
use minijinja::value::Value;
use minijinja::{Error, ErrorKind, State};

/// The maximum length of a number, besides its width and precision.
const MAX_NUMBER: usize = 350;

/// Limit of the precision of a number. Rust's formatting panics above 16 bits; a number has at most 1,100 digits.
pub(super) const MAX_PRECISION: usize = 65_000;

/// Charges fuel for a formatted text.
///
/// # Errors
/// If it may exceed the size limit.
pub(super) fn charge(state: &State<'_, '_>, text: &str, arguments: &[Value]) -> Result<(), Error> {
    let mut longest = MAX_NUMBER;
    for argument in arguments {
        weigh(state, argument)?;
        longest = longest.max(argument.as_str().map_or_else(|| argument.to_string().len(), str::len));
    }
    let Fields { count, padding, precision } = fields(text);
    // A fill character has at most four bytes.
    let size = text.len().saturating_add(count.saturating_mul(longest)).saturating_add(padding.saturating_mul(4));
    check_size("format", size)?;
    if precision > MAX_PRECISION {
        let why = format!("format: precision {precision} is larger than {MAX_PRECISION}");
        return Err(Error::new(ErrorKind::InvalidOperation, why));
    }
    state.consume_fuel((size / BYTES_PER_FUEL) as u64)
}

/// The fields of a format string for `str.format`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fields {
    count: usize,
    /// The sum of the widths and precisions.
    padding: usize,
    /// The largest precision.
    precision: usize,
}

fn fields(text: &str) -> Fields {
    let (mut found, mut rest) = (Fields::default(), text);
    while let Some(at) = rest.find('{') {
        rest = &rest[at + 1..];
        if let Some(literal) = rest.strip_prefix('{') {
            rest = literal;
            continue;
        }
        found.count += 1;
        // The name, with attributes and keys in brackets, which may contain any character.
        while let Some(end) = rest.find(['[', ':', '}', '{']).filter(|end| rest[*end..].starts_with('[')) {
            rest = rest[end..].find(']').map_or("", |close| &rest[end + close + 1..]);
        }
        let Some(colon) = rest.find([':', '}', '{']).filter(|end| rest[*end..].starts_with(':')) else { continue };
        let spec = &rest[colon + 1..];
        // A fill character may be a brace or a digit.
        let mut letters = spec.char_indices();
        let fill = letters.next().zip(letters.next()).filter(|(_, (_, align))| matches!(align, '<' | '>' | '^'));
        let spec = fill.map_or(spec, |(_, (at, _))| &spec[at + 1..]);
        let end = spec.find(['{', '}']).unwrap_or(spec.len());
        found.padding = numbers(&spec[..end]).saturating_add(found.padding);
        let precision = spec[..end].split_once('.').map_or(0, |(_, precision)| numbers(precision));
        found.precision = found.precision.max(precision);
        rest = &spec[end..];
    }
    found
}

/// Returns the sum of the numbers in a string.
fn numbers(text: &str) -> usize {
    let digits = text.split(|letter: char| !letter.is_ascii_digit()).filter(|digits| !digits.is_empty());
    digits.fold(0, |sum: usize, digits| sum.saturating_add(digits.parse().unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_and_precisions_are_found() {
        for (text, expected) in [
            ("{} at 10:30 of 123456789", (1, 0)),
            ("{{}} {0:>70}{a.b[c]:^5.3f}", (2, 78)),
            ("{0[}]:>70}", (1, 70)),
            ("{:}>70}{:1>70}{:é<7}", (3, 147)),
            ("{:{w}}", (2, 0)),
            ("{0[:]}{", (2, 0)),
            ("{:99999999999999999999}", (1, usize::MAX)),
            ("{:7.70000e}", (1, 70_007)),
        ] {
            let Fields { count, padding, .. } = fields(text);
            assert_eq!((count, padding), expected, "{text}");
        }
        assert_eq!(fields("{:9.70000e}{:.3f}").precision, 70_000);
    }
}
