//! Types of plain scalars in YAML 1.1 as implemented by go-yaml: `yes` is true, `010` is eight, `1e3` is a float.

use super::Data;
use crate::number::{parse_float, parse_int, parse_uint};

/// Returns the value of a plain scalar without a tag; `None` if it is a string.
pub(super) fn resolve(text: &str) -> Option<Data> {
    if let Some(word) = word(text) {
        return Some(word);
    }
    match text.as_bytes().first()? {
        b'.' => parse_float(text).filter(|_| !text.contains('_')).map(Data::Float),
        b'+' | b'-' | b'0'..=b'9' => number(text),
        _ => None,
    }
}

fn word(text: &str) -> Option<Data> {
    const MAX_LENGTH: usize = "false".len();
    if text.len() > MAX_LENGTH {
        return None;
    }
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Data::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Data::Bool(false),
        "" | "~" | "null" | "Null" | "NULL" => Data::Null,
        ".nan" | ".NaN" | ".NAN" => Data::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Data::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Data::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

fn number(text: &str) -> Option<Data> {
    if is_timestamp(text) {
        return None;
    }
    let plain = text.replace('_', "");
    if let Some(whole) = parse_int(&plain, 0) {
        return Some(Data::Int(whole));
    }
    if let Some(whole) = parse_uint(&plain, 0) {
        return Some(Data::Uint(whole));
    }
    is_float(&plain).then(|| parse_float(&plain)).flatten().map(Data::Float)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        None => digits(mantissa),
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
    };
    is_mantissa && exponent.is_none_or(|text| digits(text.strip_prefix(['+', '-']).unwrap_or(text)))
}

/// Dates and times stay strings, but are quoted in output.
pub(super) fn is_timestamp(text: &str) -> bool {
    let mut rest = text;
    let mut number = |least: usize, most: usize, end: &str| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits < least || digits > most || !rest[digits..].starts_with(end) {
            return None;
        }
        let value: u32 = rest[..digits].parse().ok()?;
        rest = &rest[digits + end.len()..];
        Some(value)
    };
    let date = |number: &mut dyn FnMut(usize, usize, &str) -> Option<u32>| {
        let (year, month, day) = (number(4, 4, "-")?, number(1, 2, "-")?, number(1, 2, "")?);
        let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let length = lengths.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
        (1..=*length).contains(&day).then_some(())
    };
    if date(&mut number).is_none() {
        return false;
    }
    let Some(separator) = rest.chars().next() else { return true };
    if !matches!(separator, 'T' | 't' | ' ') {
        return false;
    }
    let has_zone = separator != ' ';
    rest = &rest[1..];
    let mut parts = rest.splitn(3, ':');
    let (Some(hour), Some(minute), Some(tail)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let within = |text: &str, bound: u32| {
        (1..=2).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_digit())
            && text.parse::<u32>().is_ok_and(|n| n < bound)
    };
    let seconds = tail.bytes().take_while(u8::is_ascii_digit).count();
    if !within(hour, 24) || !within(minute, 60) || !within(&tail[..seconds], 60) {
        return false;
    }
    let mut tail = &tail[seconds..];
    if let Some(fraction) = tail.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return false;
        }
        tail = &fraction[digits..];
    }
    if !has_zone {
        return tail.is_empty();
    }
    let is_offset = |text: &str| {
        let bytes = text.as_bytes();
        bytes.len() == 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit())
    };
    tail == "Z" || is_offset(tail)
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}
