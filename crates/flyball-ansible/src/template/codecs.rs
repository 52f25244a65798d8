//! Python's `str.encode` and `bytes.decode`, with the encodings and error handlers that roles use.
//!
//! Errors have the messages of CPython, which name the character or the byte.

use super::output::check_size;
use super::reject;
use minijinja::Error;
use minijinja::value::{Kwargs, Value, from_args};

#[derive(Clone, Copy, PartialEq)]
enum Encoding {
    Utf8,
    Ascii,
    Latin1,
}

/// Python's handlers of errors.
#[derive(Clone, Copy, PartialEq)]
enum Handler {
    Strict,
    Ignore,
    Replace,
    BackslashReplace,
    XmlReplace,
}

/// The arguments of a method.
struct Codec {
    encoding: Encoding,
    handler: Handler,
}

impl Codec {
    fn of(arguments: &[Value]) -> Result<Self, Error> {
        let (encoding, handler, options): (Option<String>, Option<String>, Kwargs) = from_args(arguments)?;
        let encoding = encoding.or(options.get("encoding")?).unwrap_or_else(|| "utf-8".to_owned());
        let handler = handler.or(options.get("errors")?).unwrap_or_else(|| "strict".to_owned());
        options.assert_all_used()?;
        let encoding = match encoding.to_ascii_lowercase().replace('_', "-").as_str() {
            "utf-8" | "utf8" => Encoding::Utf8,
            "ascii" | "us-ascii" => Encoding::Ascii,
            "latin-1" | "latin1" | "iso-8859-1" => Encoding::Latin1,
            _ => {
                return Err(reject(format!(
                    "the built-in executor does not support encoding {encoding}; supported: utf-8, ascii, latin-1"
                )));
            }
        };
        let handler = match handler.as_str() {
            "strict" => Handler::Strict,
            "ignore" => Handler::Ignore,
            "replace" => Handler::Replace,
            "backslashreplace" => Handler::BackslashReplace,
            "xmlcharrefreplace" => Handler::XmlReplace,
            _ => return Err(reject(format!("unknown error handler name '{handler}'"))),
        };
        Ok(Self { encoding, handler })
    }
}

/// Returns the bytes of a text.
pub(super) fn encoded(text: &str, arguments: &[Value]) -> Result<Value, Error> {
    let Codec { encoding, handler } = Codec::of(arguments)?;
    let (name, limit) = match encoding {
        Encoding::Utf8 => return Ok(Value::from_bytes(text.as_bytes().to_vec())),
        Encoding::Ascii => ("ascii", 0x80),
        Encoding::Latin1 => ("latin-1", 0x100),
    };
    let mut bytes = Vec::new();
    for (at, letter) in text.chars().enumerate() {
        match u8::try_from(u32::from(letter)).ok().filter(|byte| u32::from(*byte) < limit) {
            Some(byte) => bytes.push(byte),
            None => match handler {
                Handler::Strict => return Err(reject(not_encodable(text, at, name, limit))),
                Handler::Ignore => {}
                Handler::Replace => bytes.push(b'?'),
                Handler::BackslashReplace => bytes.extend(escape(letter).bytes()),
                Handler::XmlReplace => bytes.extend(format!("&#{};", u32::from(letter)).bytes()),
            },
        }
    }
    check_size("encode", bytes.len())?;
    Ok(Value::from_bytes(bytes))
}

/// Returns the message about the characters from a position on that an encoding does not have.
fn not_encodable(text: &str, at: usize, name: &str, limit: u32) -> String {
    let run: Vec<char> = text.chars().skip(at).take_while(|letter| u32::from(*letter) >= limit).collect();
    match run[..] {
        [letter] => format!(
            "'{name}' codec can't encode character '{}' in position {at}: ordinal not in range({limit})",
            escape(letter)
        ),
        _ => format!(
            "'{name}' codec can't encode characters in position {at}-{}: ordinal not in range({limit})",
            (at + run.len()).saturating_sub(1)
        ),
    }
}

/// Escapes a character as in a literal of Python.
fn escape(letter: char) -> String {
    match u32::from(letter) {
        code @ ..=0xff => format!("\\x{code:02x}"),
        code @ ..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// Returns the text of bytes.
pub(super) fn decoded(bytes: &[u8], arguments: &[Value]) -> Result<Value, Error> {
    let Codec { encoding, handler } = Codec::of(arguments)?;
    check_size("decode", bytes.len().saturating_mul(if handler == Handler::BackslashReplace { 4 } else { 3 }))?;
    if encoding == Encoding::Latin1 {
        return Ok(bytes.iter().copied().map(char::from).collect::<String>().into());
    }
    let (mut text, mut rest) = (String::new(), bytes);
    loop {
        let (valid, invalid, reason) = match encoding {
            Encoding::Ascii => ascii_prefix(rest),
            _ => utf8_prefix(rest),
        };
        text.push_str(&String::from_utf8_lossy(&rest[..valid]));
        let at = bytes.len() - rest.len() + valid;
        rest = &rest[valid..];
        if rest.is_empty() {
            return Ok(text.into());
        }
        let (wrong, after) = rest.split_at(invalid);
        match handler {
            Handler::Ignore => {}
            Handler::Replace => text.push('\u{fffd}'),
            Handler::BackslashReplace => wrong.iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}"))),
            Handler::Strict => return Err(reject(not_decodable(encoding, wrong, at, reason))),
            // It only encodes.
            Handler::XmlReplace => {
                return Err(reject("don't know how to handle UnicodeDecodeError in error callback"));
            }
        }
        rest = after;
    }
}

/// Returns the length of the valid beginning, and that of the invalid bytes after it with the reason.
fn ascii_prefix(bytes: &[u8]) -> (usize, usize, &'static str) {
    let valid = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or(bytes.len());
    (valid, 1.min(bytes.len() - valid), "ordinal not in range(128)")
}

/// The same for UTF-8.
fn utf8_prefix(bytes: &[u8]) -> (usize, usize, &'static str) {
    let Err(error) = std::str::from_utf8(bytes) else { return (bytes.len(), 0, "") };
    let valid = error.valid_up_to();
    match error.error_len() {
        None => (valid, bytes.len() - valid, "unexpected end of data"),
        Some(1) if !matches!(bytes[valid], 0xc2..=0xf4) => (valid, 1, "invalid start byte"),
        Some(length) => (valid, length, "invalid continuation byte"),
    }
}

fn not_decodable(encoding: Encoding, wrong: &[u8], at: usize, reason: &str) -> String {
    let name = if encoding == Encoding::Ascii { "ascii" } else { "utf-8" };
    match wrong {
        [byte] => format!("'{name}' codec can't decode byte 0x{byte:02x} in position {at}: {reason}"),
        _ => {
            let last = (at + wrong.len()).saturating_sub(1);
            format!("'{name}' codec can't decode bytes in position {at}-{last}: {reason}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_text_of_their_encoding() {
        // With the results of Python 3.11.
        let decode = |bytes: &[u8], encoding: &str| {
            decoded(bytes, &[encoding.into()]).map(|text| text.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(decode(b"abc", "us_ascii").unwrap(), "abc");
        assert_eq!(decode(b"\xc3\xa9", "UTF8").unwrap(), "é");
        assert_eq!(decode(b"\xc3\xa9", "latin-1").unwrap(), "Ã©");
        let check = |bytes: &[u8], encoding: &str, problem: &str| {
            let error = decode(bytes, encoding).unwrap_err();
            assert!(error.contains(problem), "{error}");
        };
        check(b"a\xc3\xa9", "ascii", "'ascii' codec can't decode byte 0xc3 in position 1: ordinal not in range(128)");
        check(b"a\xff", "utf-8", "'utf-8' codec can't decode byte 0xff in position 1: invalid start byte");
        check(b"a\xe2(", "utf-8", "'utf-8' codec can't decode byte 0xe2 in position 1: invalid continuation byte");
        check(b"\xf0\x90(", "utf-8", "'utf-8' codec can't decode bytes in position 0-1: invalid continuation byte");
        check(b"\xe2\x82", "utf-8", "'utf-8' codec can't decode bytes in position 0-1: unexpected end of data");
        check(b"\xc3", "utf-8", "'utf-8' codec can't decode byte 0xc3 in position 0: unexpected end of data");
        check(b"a", "utf-16", "does not support encoding utf-16");
        assert_eq!(encoded("é", &["latin-1".into()]).unwrap().as_bytes(), Some(&b"\xe9"[..]));
        let error = encoded("a€", &["latin1".into()]).unwrap_err().to_string();
        assert!(
            error.contains(r"'latin-1' codec can't encode character '\u20ac' in position 1: ordinal not in range(256)")
        );
    }
}
