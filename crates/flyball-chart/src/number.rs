//! Parsing and formatting of numbers like Go: constants in templates, and `strconv`.

use crate::message;

/// A constant: its text, and its possible values.
pub(crate) struct Number {
    pub(crate) text: String,
    pub(crate) int: Option<i64>,
    pub(crate) float: Option<f64>,
    pub(crate) is_complex: bool,
    pub(crate) is_char: bool,
}

/// Parses a constant: as an integer and as a float, where possible.
///
/// # Errors
///
/// Returns Go's message about an invalid number.
pub(crate) fn parse_number(text: String) -> Result<Number, String> {
    let unsigned = parse_uint(&text, 0);
    let mut int = parse_int(&text, 0);
    let mut float = None;
    if let Some(whole) = int {
        #[allow(clippy::cast_precision_loss, reason = "Go's conversion")]
        let number = whole as f64;
        float = Some(number);
    } else if let Some(whole) = unsigned {
        #[allow(clippy::cast_precision_loss, reason = "Go's conversion")]
        let number = whole as f64;
        float = Some(number);
    } else if let Some(number) = parse_float(&text) {
        let is_hex = text.trim_start_matches(['+', '-']).starts_with("0x");
        let has_point = text.contains(['.', 'e', 'E', 'p', 'P']);
        if !is_hex && !has_point {
            return Err(format!("integer overflow: {}", message::quoted(&text)));
        }
        float = Some(number);
        // A float without a fraction, such as 1e3, is also an integer.
        #[allow(clippy::cast_possible_truncation, reason = "checked by the conversion back")]
        let whole = number as i64;
        #[allow(clippy::cast_precision_loss, reason = "the check itself")]
        if number.fract() == 0.0 && whole as f64 == number && whole != i64::MAX {
            int = Some(whole);
        }
    }
    if int.is_none() && float.is_none() {
        return Err(format!("illegal number syntax: {}", message::quoted(&text)));
    }
    Ok(Number { text, int, float, is_complex: false, is_char: false })
}

/// `strconv.ParseInt` with 64 bits; base 0 depends on the prefix and allows underscores.
pub(crate) fn parse_int(text: &str, base: u32) -> Option<i64> {
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let value = i128::from(parse_uint(digits, base)?);
    i64::try_from(if is_negative { -value } else { value }).ok()
}

/// `strconv.ParseUint` with 64 bits.
pub(crate) fn parse_uint(text: &str, base: u32) -> Option<u64> {
    if base != 0 {
        return if text.starts_with(['+', '-']) { None } else { u64::from_str_radix(text, base).ok() };
    }
    let lower = text.to_ascii_lowercase();
    let (digits, base) = if let Some(rest) = lower.strip_prefix("0x") {
        (rest, 16)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (rest, 2)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (rest, 8)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (&lower[1..], 8)
    } else {
        (lower.as_str(), 10)
    };
    if !has_valid_underscores(digits, base != 10) || digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(&digits.replace('_', ""), base).ok()
}

/// Underscores must be between digits, or between the prefix and a digit.
fn has_valid_underscores(digits: &str, has_prefix: bool) -> bool {
    let starts_badly = digits.starts_with('_') && !has_prefix;
    !starts_badly && !digits.ends_with('_') && !digits.contains("__")
}

/// `strconv.ParseFloat` with 64 bits.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let (sign, rest) = match lower.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, lower.strip_prefix('+').unwrap_or(&lower)),
    };
    match rest {
        "inf" | "infinity" => return Some(sign * f64::INFINITY),
        "nan" => return Some(f64::NAN),
        _ => {}
    }
    if let Some(hex) = rest.strip_prefix("0x") {
        return parse_hex_float(hex).map(|number| sign * number);
    }
    if rest.is_empty() || !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') || rest == "." {
        return None;
    }
    let number: f64 = rest.parse().ok()?;
    (!number.is_infinite()).then_some(sign * number)
}

fn parse_hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let mut value = 0.0;
    for c in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(c.to_digit(16)?);
    }
    let shift = exponent.parse::<i32>().ok()? - 4 * i32::try_from(fraction.len()).ok()?;
    let value = value * f64::from(shift.clamp(-2000, 2000)).exp2();
    value.is_finite().then_some(value)
}

/// `strconv.FormatFloat(x, 'g', -1, 64)`, the format of `%v`: an exponent below 1e-4 and from 1e+06 on.
pub(crate) fn format_float(number: f64) -> String {
    if let Some(word) = special(number) {
        return word.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Go's strings for NaN and infinities.
pub(crate) fn special(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("+Inf"),
        f64::NEG_INFINITY => Some("-Inf"),
        _ => None,
    }
}
