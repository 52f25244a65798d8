//! Syntax errors of JSON, with the messages of Go's `encoding/json`.
//!
//! Clients of a kube-apiserver see these messages in the response to a malformed body. This scanner runs only then.

use flyball_core::json::{InvalidNumber, number_end};
use serde_json::Value;

/// Returns Go's error of malformed JSON; for well-formed text, the error of an unexpected end.
pub(crate) fn json_error(text: &[u8]) -> String {
    let mut scanner = Scanner { text, at: 0, depth: 0, out_of_range: None };
    match scanner.value().and_then(|()| scanner.end()) {
        Err(error) => error,
        // Well formed: `serde_json` rejects only numbers that are too large.
        Ok(()) => match scanner.out_of_range {
            Some((from, to)) => {
                let number = String::from_utf8_lossy(&text[from..to.min(from + MAX_SHOWN)]);
                let cut = if to > from + MAX_SHOWN { "..." } else { "" };
                format!("json: cannot unmarshal number {number}{cut} into Go value of type float64")
            }
            None => "unexpected end of JSON input".into(),
        },
    }
}

/// Maximum length of a number in an error, in characters.
const MAX_SHOWN: usize = 64;

struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
    /// The position of the first number that is too large.
    out_of_range: Option<(usize, usize)>,
}

/// The depth to which JSON may nest: as deep as `serde_json` reads.
const DEPTH: usize = 127;

type Scan = Result<(), String>;

impl Scanner<'_> {
    fn blank(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Rejects the next byte, or the end.
    fn reject<T>(&self, context: &str) -> Result<T, String> {
        match self.peek() {
            None => Err("unexpected end of JSON input".into()),
            Some(b) => Err(format!("invalid character {} {context}", quote(b))),
        }
    }

    fn end(&mut self) -> Scan {
        self.blank();
        if self.at < self.text.len() { self.reject("after top-level value") } else { Ok(()) }
    }

    fn value(&mut self) -> Scan {
        self.blank();
        match self.peek() {
            Some(b'{' | b'[') if self.depth == DEPTH => Err("exceeded max depth".into()),
            Some(b'{') => self.deeper(Self::object),
            Some(b'[') => self.deeper(Self::array),
            Some(b'"') => self.string(),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.reject("looking for beginning of value"),
        }
    }

    fn deeper(&mut self, scan: fn(&mut Self) -> Scan) -> Scan {
        self.depth += 1;
        scan(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn object(&mut self) -> Scan {
        self.at += 1;
        self.blank();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.blank();
            if self.peek() != Some(b'"') {
                return self.reject("looking for beginning of object key string");
            }
            self.string()?;
            self.blank();
            if self.peek() != Some(b':') {
                return self.reject("after object key");
            }
            self.at += 1;
            self.value()?;
            self.blank();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.reject("after object key:value pair"),
            }
        }
    }

    fn array(&mut self) -> Scan {
        self.at += 1;
        self.blank();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value()?;
            self.blank();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.reject("after array element"),
            }
        }
    }

    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                                    return self.reject("in \\u hexadecimal character escape");
                                }
                                self.at += 1;
                            }
                        }
                        _ => return self.reject("in string escape code"),
                    }
                }
                Some(b) if b >= 0x20 => self.at += 1,
                _ => return self.reject("in string literal"),
            }
        }
    }

    fn literal(&mut self, word: &[u8]) -> Scan {
        for expected in word {
            if self.peek() != Some(*expected) {
                let word = String::from_utf8_lossy(word);
                return self.reject(&format!("in literal {word} (expecting {})", quote(*expected)));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        let from = self.at;
        self.at = match number_end(self.text, from) {
            Ok(end) => end,
            Err(InvalidNumber { at, context }) => {
                self.at = at;
                return self.reject(context);
            }
        };
        let number = std::str::from_utf8(&self.text[from..self.at]).ok().and_then(|text| text.parse::<f64>().ok());
        if self.out_of_range.is_none() && number.is_none_or(f64::is_infinite) {
            self.out_of_range = Some((from, self.at));
        }
        Ok(())
    }
}

fn quote(b: u8) -> String {
    match b {
        b'\'' => r"'\''".into(),
        b'"' => "'\"'".into(),
        b'\n' => r"'\n'".into(),
        b'\t' => r"'\t'".into(),
        b'\r' => r"'\r'".into(),
        b'\\' => r"'\\'".into(),
        b if b < 0x20 => format!(r"'\x{b:02x}'"),
        b => format!("'{}'", char::from(b)),
    }
}

/// Returns the name of a JSON value's type in Go's errors.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::json_error;

    #[test]
    fn syntax_errors_have_gos_messages() {
        let cases = [
            ("", "unexpected end of JSON input"),
            ("{\"a\":1", "unexpected end of JSON input"),
            ("not json", "invalid character 'o' in literal null (expecting 'u')"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("{a}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("{\"a\":1e999999}", "json: cannot unmarshal number 1e999999 into Go value of type float64"),
            ("[-1E+400,1e500]", "json: cannot unmarshal number -1E+400 into Go value of type float64"),
            ("-", "unexpected end of JSON input"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
        ];
        for (text, error) in cases {
            assert_eq!(json_error(text.as_bytes()), error, "{text}");
        }
    }
}
