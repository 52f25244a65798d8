//! Python's `str.encode` and `bytes.decode`, with the encodings that roles use.

use super::output::check_size;
use super::reject;
use minijinja::Error;
use minijinja::value::{Kwargs, Value, from_args};

#[derive(Clone, Copy)]
enum Encoding {
    Utf8,
    Ascii,
    Latin1,
}

impl Encoding {
    /// Returns the encoding in the arguments of a method.
    fn of(arguments: &[Value]) -> Result<Self, Error> {
        let (encoding, options): (Option<String>, Kwargs) = from_args(arguments)?;
        let encoding = encoding.or(options.get("encoding")?).unwrap_or_else(|| "utf-8".to_owned());
        options.assert_all_used()?;
        match encoding.to_ascii_lowercase().replace('_', "-").as_str() {
            "utf-8" | "utf8" => Ok(Self::Utf8),
            "ascii" | "us-ascii" => Ok(Self::Ascii),
            "latin-1" | "latin1" | "iso-8859-1" => Ok(Self::Latin1),
            _ => Err(reject(format!(
                "the built-in executor does not support encoding {encoding}; supported: utf-8, ascii, latin-1"
            ))),
        }
    }
}

/// Returns the bytes of a text. Errors do not show it, since it may be secret.
pub(super) fn encoded(text: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (name, limit) = match Encoding::of(arguments)? {
        Encoding::Utf8 => return Ok(Value::from_bytes(text.as_bytes().to_vec())),
        Encoding::Ascii => ("ascii", 0x80),
        Encoding::Latin1 => ("latin-1", 0x100),
    };
    let byte = |(at, letter): (usize, char)| {
        let byte = u8::try_from(u32::from(letter)).ok().filter(|byte| u32::from(*byte) < limit);
        byte.ok_or_else(|| {
            reject(format!("'{name}' codec can't encode a character in position {at}: ordinal not in range({limit})"))
        })
    };
    text.chars().enumerate().map(byte).collect::<Result<_, _>>().map(Value::from_bytes)
}

/// Returns the text of bytes. Errors do not show them, since they may be secret.
pub(super) fn decoded(bytes: &[u8], arguments: &[Value]) -> Result<Value, Error> {
    match Encoding::of(arguments)? {
        Encoding::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.into()),
            Err(error) => {
                let at = error.valid_up_to();
                Err(reject(format!(
                    "'utf-8' codec can't decode a byte in position {at}: the bytes are not valid UTF-8"
                )))
            }
        },
        Encoding::Ascii => match bytes.iter().position(|byte| !byte.is_ascii()) {
            None => Ok(String::from_utf8_lossy(bytes).into()),
            Some(at) => {
                Err(reject(format!("'ascii' codec can't decode a byte in position {at}: ordinal not in range(128)")))
            }
        },
        Encoding::Latin1 => {
            check_size("decode", bytes.len().saturating_mul(2))?;
            Ok(bytes.iter().copied().map(char::from).collect::<String>().into())
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
        check(b"a\xc3\xa9", "ascii", "'ascii' codec can't decode a byte in position 1: ordinal not in range(128)");
        check(b"a\xff", "utf-8", "'utf-8' codec can't decode a byte in position 1");
        check(b"a", "utf-16", "does not support encoding utf-16");
        assert_eq!(encoded("é", &["latin-1".into()]).unwrap().as_bytes(), Some(&b"\xe9"[..]));
        let error = encoded("a€", &["latin1".into()]).unwrap_err().to_string();
        assert!(error.contains("'latin-1' codec can't encode a character in position 1: ordinal not in range(256)"));
    }
}
