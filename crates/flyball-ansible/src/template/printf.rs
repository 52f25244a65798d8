//! Python's formatting with `%`, within the size limit of outputs.
//!
//! See <https://docs.python.org/3/library/stdtypes.html#printf-style-string-formatting>. A width or precision of a few
//! digits may request any size, so sizes are checked before anything is padded.

use super::format::MAX_PRECISION;
use super::output::check_size;
use super::python::{ascii, exponent_text, repr, text};
use super::{BYTES_PER_FUEL, reject, undefined, weigh};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, State};
use std::iter::{Enumerate, Peekable};
use std::str::Chars;

/// The right operand.
pub(super) enum Operand {
    /// The items of a tuple, all of which must be formatted.
    Tuple(Vec<Value>),
    /// Another value: the argument of a single field, or a map with the arguments of named fields.
    Value(Value),
}

/// Formats values.
///
/// # Errors
/// In Python's words, if values and fields do not match; if a value is undefined; or if the result exceeds the size
/// limit.
pub(super) fn printf(state: &State<'_, '_>, format: &str, operand: &Operand) -> Result<String, Error> {
    let values = match operand {
        Operand::Tuple(values) => values.as_slice(),
        Operand::Value(value) => std::slice::from_ref(value),
    };
    values.iter().try_for_each(|value| weigh(state, value))?;
    let mut arguments = Arguments { operand, values, at: 0 };
    let mut out = String::new();
    let mut rest = format.chars().enumerate().peekable();
    while let Some((_, letter)) = rest.next() {
        if letter != '%' || rest.next_if(|(_, letter)| *letter == '%').is_some() {
            out.push(letter);
            continue;
        }
        let before = out.len();
        let piece = Field::parse(&mut rest, &mut arguments)?.format(&mut arguments, before)?;
        out.push_str(&piece);
        check_size("format", out.len())?;
        state.consume_fuel(1 + (piece.len() / BYTES_PER_FUEL) as u64)?;
    }
    arguments.finish()?;
    Ok(out)
}

/// The arguments of the fields.
struct Arguments<'a> {
    operand: &'a Operand,
    values: &'a [Value],
    at: usize,
}

impl Arguments<'_> {
    fn next(&mut self) -> Result<Value, Error> {
        let value =
            self.values.get(self.at).cloned().ok_or_else(|| reject("not enough arguments for format string"))?;
        self.at += 1;
        Ok(value)
    }

    fn named(&mut self, name: &str) -> Result<Value, Error> {
        match self.operand {
            Operand::Value(map) if map.kind() == ValueKind::Map => {
                // A map is not an argument of an unnamed field as well.
                self.at = self.values.len();
                let found = map.get_item(&name.into())?;
                if found.is_undefined() && !map.try_iter()?.any(|key| key.as_str() == Some(name)) {
                    Err(reject(format!("format: the map has no key '{name}'")))
                } else {
                    Ok(found)
                }
            }
            _ => Err(reject("format requires a mapping")),
        }
    }

    /// Returns the number in the place of an asterisk.
    fn number(&mut self) -> Result<i64, Error> {
        let value = self.next()?;
        let is_integer = value.is_integer() || value.kind() == ValueKind::Bool;
        i64::try_from(value).ok().filter(|_| is_integer).ok_or_else(|| reject("* wants int"))
    }

    /// Rejects remaining arguments.
    fn finish(&self) -> Result<(), Error> {
        let is_container = match self.operand {
            Operand::Tuple(_) => false,
            // Maps and lists have keys or indices.
            Operand::Value(value) => matches!(value.kind(), ValueKind::Map | ValueKind::Seq | ValueKind::Iterable),
        };
        match self.at < self.values.len() && !is_container {
            true => Err(reject("not all arguments converted during string formatting")),
            false => Ok(()),
        }
    }
}

/// A field, such as `%-5.2f`.
#[derive(Default)]
struct Field {
    name: Option<String>,
    is_left: bool,
    sign: Option<char>,
    is_alternate: bool,
    is_zero: bool,
    width: usize,
    precision: Option<usize>,
    conversion: char,
    /// The index of the conversion in the format.
    index: usize,
}

type Letters<'t> = Peekable<Enumerate<Chars<'t>>>;

impl Field {
    /// Parses a field after its percent sign.
    fn parse(rest: &mut Letters<'_>, arguments: &mut Arguments<'_>) -> Result<Self, Error> {
        let mut field = Self::default();
        if rest.next_if(|(_, letter)| *letter == '(').is_some() {
            field.name = Some(name(rest)?);
        }
        while let Some((_, flag)) = rest.next_if(|(_, letter)| "-+ #0".contains(*letter)) {
            match flag {
                '-' => field.is_left = true,
                '+' => field.sign = Some('+'),
                ' ' => field.sign = field.sign.or(Some(' ')),
                '#' => field.is_alternate = true,
                _ => field.is_zero = true,
            }
        }
        if rest.next_if(|(_, letter)| *letter == '*').is_some() {
            let width = arguments.number()?;
            field.is_left |= width < 0;
            field.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        } else {
            field.width = digits(rest);
        }
        if rest.next_if(|(_, letter)| *letter == '.').is_some() {
            field.precision = Some(match rest.next_if(|(_, letter)| *letter == '*') {
                Some(_) => usize::try_from(arguments.number()?.max(0)).unwrap_or(usize::MAX),
                None => digits(rest),
            });
        }
        while rest.next_if(|(_, letter)| matches!(letter, 'h' | 'l' | 'L')).is_some() {}
        (field.index, field.conversion) = rest.next().ok_or_else(|| reject("incomplete format"))?;
        Ok(field)
    }

    /// Formats the argument, for an output of a size.
    fn format(&self, arguments: &mut Arguments<'_>, before: usize) -> Result<String, Error> {
        let value = match &self.name {
            Some(name) => arguments.named(name)?,
            None => arguments.next()?,
        };
        let padding = self.width.saturating_add(self.precision.unwrap_or(0));
        check_size("format", before.saturating_add(padding))?;
        let text = match self.conversion {
            'c' => character(&value)?,
            'x' | 'X' | 'o' => return Ok(self.pad_number(self.other_base(&value)?)),
            _ if value.is_undefined() => return Err(undefined()),
            's' => self.cut(text(&value)?),
            'r' => self.cut(repr(&value)?),
            'a' => self.cut(ascii(&value)?),
            'd' | 'i' | 'u' => return Ok(self.pad_number(self.decimal(&value)?)),
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => return Ok(self.pad_number(self.float(&value)?)),
            other => {
                let (code, index) = (u32::from(other), self.index);
                let shown = if matches!(other, '\u{1f}'..='~') { other } else { '?' };
                return Err(reject(format!("unsupported format character '{shown}' ({code:#x}) at index {index}")));
            }
        };
        Ok(self.pad(&text))
    }

    fn cut(&self, text: String) -> String {
        match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text,
        }
    }

    fn pad(&self, text: &str) -> String {
        let spaces = " ".repeat(self.width.saturating_sub(text.chars().count()));
        if self.is_left { format!("{text}{spaces}") } else { format!("{spaces}{text}") }
    }

    /// Pads a number with its sign.
    fn pad_number(&self, Number { is_negative, prefix, digits }: Number) -> String {
        let sign = if is_negative { "-".to_owned() } else { self.sign.map(String::from).unwrap_or_default() };
        let length = sign.len() + prefix.len() + digits.len();
        let zeros = match self.is_zero && !self.is_left {
            true => "0".repeat(self.width.saturating_sub(length)),
            false => String::new(),
        };
        self.pad(&format!("{sign}{prefix}{zeros}{digits}"))
    }

    fn decimal(&self, value: &Value) -> Result<Number, Error> {
        let number = match integer(value) {
            Some(number) => (number < 0, number.unsigned_abs().to_string()),
            None => {
                let float = Some(value).filter(|value| value.kind() == ValueKind::Number);
                let float = float.and_then(|value| f64::try_from(value.clone()).ok());
                let float = float.ok_or_else(|| {
                    let (conversion, kind) = (self.conversion, type_name(value));
                    reject(format!("%{conversion} format: a real number is required, not {kind}"))
                })?;
                if !float.is_finite() {
                    let what = if float.is_nan() { "float NaN" } else { "float infinity" };
                    return Err(reject(format!("cannot convert {what} to integer")));
                }
                let float = float.trunc();
                (float < 0.0, format!("{:.0}", float.abs()))
            }
        };
        Ok(Number { is_negative: number.0, prefix: "", digits: self.at_least(number.1) })
    }

    fn other_base(&self, value: &Value) -> Result<Number, Error> {
        let number = integer(value).ok_or_else(|| {
            reject(format!("%{} format: an integer is required, not {}", self.conversion, type_name(value)))
        })?;
        let (digits, prefix) = match self.conversion {
            'x' => (format!("{:x}", number.unsigned_abs()), "0x"),
            'X' => (format!("{:X}", number.unsigned_abs()), "0X"),
            _ => (format!("{:o}", number.unsigned_abs()), "0o"),
        };
        let prefix = if self.is_alternate { prefix } else { "" };
        Ok(Number { is_negative: number < 0, prefix, digits: self.at_least(digits) })
    }

    /// Adds zeros up to the precision.
    fn at_least(&self, digits: String) -> String {
        let zeros = self.precision.unwrap_or(0).saturating_sub(digits.len());
        "0".repeat(zeros) + &digits
    }

    fn float(&self, value: &Value) -> Result<Number, Error> {
        let float = Some(value).filter(|value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
        let float = match float {
            Some(value) if value.kind() == ValueKind::Bool => f64::from(u8::from(value.is_true())),
            Some(value) => f64::try_from(value.clone())?,
            None => return Err(reject(format!("must be real number, not {}", type_name(value)))),
        };
        // The formatter of Rust has a limit.
        let precision = self.precision.unwrap_or(6).min(MAX_PRECISION);
        let magnitude = float.abs();
        let digits = match self.conversion {
            _ if !float.is_finite() => if float.is_nan() { "nan" } else { "inf" }.to_owned(),
            'f' | 'F' => self.with_point(format!("{magnitude:.precision$}")),
            'e' | 'E' => self.scientific(magnitude, precision),
            _ => self.general(magnitude, precision.max(1)),
        };
        let digits = if self.conversion.is_uppercase() { digits.to_uppercase() } else { digits };
        Ok(Number { is_negative: float.is_sign_negative() && !float.is_nan(), prefix: "", digits })
    }

    fn with_point(&self, digits: String) -> String {
        if self.is_alternate && !digits.contains('.') { digits + "." } else { digits }
    }

    fn scientific(&self, magnitude: f64, precision: usize) -> String {
        let text = format!("{magnitude:.precision$e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        self.with_point(digits.to_owned()) + &exponent_text(exponent.parse().unwrap_or(0))
    }

    /// Formats with significant digits, and with an exponent if it is small or large.
    fn general(&self, magnitude: f64, precision: usize) -> String {
        let text = format!("{magnitude:.*e}", precision - 1);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let trimmed = |digits: &str| match digits.contains('.') && !self.is_alternate {
            true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => self.with_point(digits.to_owned()),
        };
        match usize::try_from(exponent + 4) {
            Ok(from) if from < precision + 4 => {
                let decimals = usize::try_from(precision as i64 - 1 - i64::from(exponent)).unwrap_or(0);
                trimmed(&format!("{magnitude:.decimals$}"))
            }
            _ => trimmed(digits) + &exponent_text(exponent),
        }
    }
}

/// The parts of a number.
struct Number {
    is_negative: bool,
    prefix: &'static str,
    digits: String,
}

/// Parses the name of a field, which may contain parentheses.
fn name(rest: &mut Letters<'_>) -> Result<String, Error> {
    let (mut name, mut depth) = (String::new(), 1);
    for (_, letter) in rest {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(name);
        }
        name.push(letter);
    }
    Err(reject("incomplete format key"))
}

fn digits(rest: &mut Letters<'_>) -> usize {
    let mut number: usize = 0;
    while let Some((_, digit)) = rest.next_if(|(_, letter)| letter.is_ascii_digit()) {
        number = number.saturating_mul(10).saturating_add(digit.to_digit(10).unwrap_or(0) as usize);
    }
    number
}

fn integer(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

fn character(value: &Value) -> Result<String, Error> {
    let is_one = |text: &&str| text.chars().count() == 1;
    let code = || integer(value).and_then(|code| char::from_u32(u32::try_from(code).ok()?));
    match value.as_str() {
        Some(text) => Some(text).filter(is_one).map(str::to_owned),
        None => code().map(String::from),
    }
    .ok_or_else(|| reject("%c requires int or char"))
}

/// Returns the name of the type of a value in Python.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "UndefinedMarker",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Bytes => "bytes",
        ValueKind::Seq | ValueKind::Iterable if value.is_tuple() => "tuple",
        ValueKind::Seq | ValueKind::Iterable => "list",
        ValueKind::Map => "dict",
        _ => "object",
    }
}
