//! Values as text in Python's format: `str` and `repr`.

use super::letters::is_printable;
use super::undefined;
use minijinja::Error;
use minijinja::value::{Value, ValueKind};

/// Returns a value as `str` of Python does.
///
/// # Errors
/// If the value is undefined, or contains an undefined value.
pub(super) fn text(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.to_string()),
        _ => repr(value),
    }
}

/// Returns a value as `repr` of Python does. Its depth is limited by [`weigh`](super::weigh).
///
/// # Errors
/// If the value is undefined, or contains an undefined value.
pub(super) fn repr(value: &Value) -> Result<String, Error> {
    Ok(match value.kind() {
        ValueKind::Undefined => return Err(undefined()),
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::Bytes => bytes(value.as_bytes().unwrap_or_default()),
        ValueKind::Number if !value.is_integer() => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.map(|item| repr(&item)).collect::<Result<Vec<_>, _>>()?;
            match (value.is_tuple(), &items[..]) {
                (true, [one]) => format!("({one},)"),
                (true, _) => format!("({})", items.join(", ")),
                (false, _) => format!("[{}]", items.join(", ")),
            }
        }
        ValueKind::Map => {
            let field = |key: Value| Ok(format!("{}: {}", repr(&key)?, repr(&value.get_item(&key)?)?));
            let fields = value.try_iter()?.map(field).collect::<Result<Vec<_>, Error>>()?;
            format!("{{{}}}", fields.join(", "))
        }
        _ => value.to_string(),
    })
}

/// Returns a value as `ascii` of Python does.
///
/// # Errors
/// If the value is undefined, or contains an undefined value.
pub(super) fn ascii(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    for letter in repr(value)?.chars() {
        if letter.is_ascii() { out.push(letter) } else { out.push_str(&escaped(letter)) }
    }
    Ok(out)
}

fn escaped(letter: char) -> String {
    match u32::from(letter) {
        code @ 0..0x100 => format!("\\x{code:02x}"),
        code @ 0x100..0x10000 => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// Returns the shortest decimal number, with an exponent as Python has it.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse().unwrap_or(0) {
        -4..16 => {
            let fixed = number.to_string();
            if fixed.contains('.') { fixed } else { fixed + ".0" }
        }
        exponent => format!("{digits}{}", exponent_text(exponent)),
    }
}

/// Returns an exponent with its sign and at least two digits.
pub(super) fn exponent_text(exponent: i32) -> String {
    format!("e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    let mut buffer = [0; 4];
    let is_plain = is_printable(text);
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if letter == quote => out.extend(['\\', quote]),
            letter if is_plain || is_printable(letter.encode_utf8(&mut buffer)) => out.push(letter),
            letter => out.push_str(&escaped(letter)),
        }
    }
    out.push(quote);
    out
}

fn bytes(bytes: &[u8]) -> String {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { '"' } else { '\'' };
    let mut out = format!("b{quote}");
    for byte in bytes {
        match char::from(*byte) {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if letter == quote => out.extend(['\\', quote]),
            letter @ ' '..='~' => out.push(letter),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_by_python() {
        // With the output of `repr` of Python 3.11.
        for (value, expected) in [
            (Value::from(1e16), "1e+16"),
            (Value::from(1e15), "1000000000000000.0"),
            (Value::from(0.0001), "0.0001"),
            (Value::from(0.00001), "1e-05"),
            (Value::from(-1.5), "-1.5"),
            (Value::from("it's"), "\"it's\""),
            (Value::from("'\"\n\u{1}é\\"), "'\\'\"\\n\\x01é\\\\'"),
            (Value::from(vec![Value::from(()), true.into(), "a".into(), 2.into()]), "[None, True, 'a', 2]"),
            (Value::from("\u{a0}\u{200b}\u{85}\u{e0001}a\u{301} "), "'\\xa0\\u200b\\x85\\U000e0001a\u{301} '"),
            (Value::from_bytes(vec![97, 39, 0xe9, 10]), "b\"a'\\xe9\\n\""),
        ] {
            assert_eq!(repr(&value).unwrap(), expected);
        }
        assert_eq!(ascii(&"é€😀".into()).unwrap(), "'\\xe9\\u20ac\\U0001f600'");
    }

    #[test]
    fn undefined_values_have_no_text() {
        let inner = Value::from(vec![Value::UNDEFINED]);
        for value in [Value::UNDEFINED, inner.clone(), Value::from_iter([("a", inner)])] {
            assert!(text(&value).is_err() && repr(&value).is_err() && ascii(&value).is_err());
        }
    }
}
