//! Types of plain scalars, as in PyYAML, Ansible's parser.
//!
//! PyYAML follows YAML 1.1 with two exceptions: `y` and `n` are strings, and a float needs a period, so `1e3` is a
//! string. See <https://github.com/yaml/pyyaml/blob/main/lib/yaml/resolver.py>. Dates are strings here, as they are in
//! the JSON that Ansible sends.

use crate::value::Value;
use serde_json::Number;

/// Returns the value of a plain scalar.
///
/// # Errors
/// If it is a number that JSON does not have.
pub(super) fn resolve(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => true.into(),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => false.into(),
        _ if !text.starts_with(['+', '-', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) => text.into(),
        _ => match integer(text) {
            Some(number) => number?,
            None => match float(text) {
                Some(number) => number?,
                None => text.into(),
            },
        },
    })
}

/// Splits off the sign; true if it is negative.
fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn are_all(text: &str, is_one: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == b'_' || is_one(byte))
}

/// Parses an integer; `None` if the text has not the form of one.
fn integer(text: &str) -> Option<Result<Value, String>> {
    let (is_negative, unsigned) = signed(text);
    let digit = |byte: u8| byte.is_ascii_digit();
    let (digits, radix) = match unsigned.as_bytes() {
        [b'0', b'b', ..] => (&unsigned[2..], 2),
        [b'0', b'x', ..] => (&unsigned[2..], 16),
        [b'0', _, ..] => (&unsigned[1..], 8),
        [b'0'..=b'9', ..] => (unsigned, 10),
        _ => return None,
    };
    if !are_all(digits, |byte| (byte as char).is_digit(radix)) {
        let is_base_60 = unsigned.starts_with(|first: char| matches!(first, '1'..='9'))
            && unsigned.contains(':')
            && sexagesimal(unsigned, |first| are_all(first, digit));
        return is_base_60.then(|| within_64_bits(text, is_negative, base_60(unsigned)));
    }
    let digits: String = digits.chars().filter(|letter| *letter != '_').collect();
    match digits.as_str() {
        "" if radix == 8 => Some(Ok(0.into())),
        // Python's `int` fails.
        "" => None,
        digits => Some(within_64_bits(text, is_negative, u64::from_str_radix(digits, radix).ok())),
    }
}

fn within_64_bits(text: &str, is_negative: bool, absolute: Option<u64>) -> Result<Value, String> {
    let number = match (absolute, is_negative) {
        (Some(absolute), false) => Some(Value::from(absolute)),
        (Some(absolute), true) => 0_i64.checked_sub_unsigned(absolute).map(Value::from),
        (None, _) => None,
    };
    number.ok_or_else(|| format!("the number {} exceeds 64 bits: write it in quotes", truncated(text)))
}

/// Returns true for parts such as `190:20:30`, each of at most two digits below 60 except for the first.
fn sexagesimal(text: &str, is_first: impl Fn(&str) -> bool) -> bool {
    let Some((first, rest)) = text.split_once(':') else { return false };
    let is_part = |part: &str| match part.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [tens, units] => matches!(tens, b'0'..=b'5') && units.is_ascii_digit(),
        _ => false,
    };
    is_first(first) && rest.split(':').all(is_part)
}

fn base_60(text: &str) -> Option<u64> {
    text.split(':').try_fold(0_u64, |sum, part| {
        let part: String = part.chars().filter(|letter| *letter != '_').collect();
        sum.checked_mul(60)?.checked_add(part.parse().ok()?)
    })
}

/// Parses a float; `None` if the text has not the form of one.
fn float(text: &str) -> Option<Result<Value, String>> {
    let (is_negative, unsigned) = signed(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(Err(format!("JSON has no number {}: write it in quotes", truncated(text))));
    }
    let (whole, fraction) = unsigned.split_once('.')?;
    let digit = |byte: u8| byte.is_ascii_digit();
    if whole.contains(':') {
        let is_base_60 =
            sexagesimal(whole, |first| first.starts_with(|c: char| c.is_ascii_digit()) && are_all(first, digit));
        if !is_base_60 || !(fraction.is_empty() || are_all(fraction, digit)) {
            return None;
        }
        let fraction: f64 = format!("0.{}", fraction.replace('_', "")).parse().ok()?;
        let absolute = base_60(whole)? as f64 + fraction;
        return Some(finite(text, if is_negative { -absolute } else { absolute }));
    }
    // The exponent needs a sign.
    let (digits, exponent) = fraction.split_once(['e', 'E']).map_or((fraction, None), |(digits, e)| (digits, Some(e)));
    let is_exponent = |exponent: &str| {
        let digits = exponent.strip_prefix(['+', '-']);
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(digit))
    };
    // Without digits before the period there are some after it, and no sign.
    let is_whole = match whole {
        "" => digits.starts_with(|first: char| first.is_ascii_digit()) && !text.starts_with(['+', '-']),
        whole => whole.starts_with(|first: char| first.is_ascii_digit()) && are_all(whole, digit),
    };
    let is_float = is_whole && (digits.is_empty() || are_all(digits, digit)) && exponent.is_none_or(is_exponent);
    is_float.then(|| match text.replace('_', "").parse() {
        Ok(number) => finite(text, number),
        // Only a period and underscores.
        Err(_) => Ok(text.into()),
    })
}

fn finite(text: &str, number: f64) -> Result<Value, String> {
    let number = Number::from_f64(number).map(Value::Number);
    number.ok_or_else(|| format!("JSON has no number {}: write it in quotes", truncated(text)))
}

/// Shortens a string for a message.
fn truncated(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json;

    /// Results of PyYAML 6.0 for the same texts.
    #[test]
    fn plain_scalars_have_the_types_of_pyyaml() {
        for text in [
            "1e3",
            "12e5",
            "1E3",
            "1.5e3",
            "-1e3",
            "0o14",
            "08",
            "0b",
            "0x",
            "0b12",
            "+",
            "-",
            ".",
            "+.5",
            "y",
            "n",
            "Y",
            "tRUE",
            "1.2.3",
            "1:60",
            "0:30",
            "1:2x",
            "v1",
            "1-2",
            "2001-12-14",
            "0b_",
            "1e+3",
            "_1",
            "._",
            "12:30:45:",
        ] {
            assert_eq!(resolve(text), Ok(json!(text)), "{text}");
        }
        for (text, value) in [
            ("0", json!(0)),
            ("-0", json!(0)),
            ("0644", json!(420)),
            ("00", json!(0)),
            ("0_", json!(0)),
            ("0x1F", json!(31)),
            ("-0x1f", json!(-31)),
            ("0b101", json!(5)),
            ("1_000", json!(1000)),
            ("+12", json!(12)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("22:22", json!(1342)),
            ("190:20:30", json!(685_230)),
            ("190:20:30.15", json!(685_230.15)),
            ("1.5", json!(1.5)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("1.5e+3", json!(1500.0)),
            ("1_0.5", json!(10.5)),
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("~", json!(null)),
            ("", json!(null)),
        ] {
            assert_eq!(resolve(text), Ok(value), "{text}");
        }
        for text in [".inf", "-.Inf", ".nan", "99999999999999999999", "1.0e+999"] {
            assert!(resolve(text).is_err(), "{text}");
        }
    }
}
