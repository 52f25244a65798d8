//! JSON as Go's `encoding/json` encodes and decodes it, with its messages.

use crate::number::{parse_float, special};
use crate::quote::quote;
use crate::value::Value;
use crate::value::object::Object;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flyball_core::json::{InvalidNumber, number_end};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Nesting limit of decoded values, as in Go.
const DEPTH: usize = 10_000;
/// Nesting limit of encoded values: deeper values are treated as cycles.
const WRITE_DEPTH: usize = 1_000;

/// Encodes a value; `escapes_html` escapes `<`, `>` and `&`, which is Go's default.
///
/// # Errors
///
/// Fails if the value has no JSON form or contains itself.
pub(crate) fn write(value: &Value, escapes_html: bool) -> Result<String, String> {
    if value.is_deeper_than(WRITE_DEPTH) {
        return Err("json: unsupported value: encountered a cycle".to_owned());
    }
    let mut out = String::new();
    write_value(&mut out, value, escapes_html)?;
    Ok(out)
}

fn write_value(out: &mut String, value: &Value, html: bool) -> Result<(), String> {
    match value {
        Value::Nil => out.push_str("null"),
        Value::Bool(is) => out.push_str(if *is { "true" } else { "false" }),
        Value::Int(..) => out.push_str(&crate::format::display(value)),
        Value::Float(number) => out.push_str(&float(*number)?),
        Value::Str(bytes) => string(out, bytes, html),
        Value::Bytes(bytes) => _ = write!(out, "\"{}\"", base64(bytes)),
        Value::List(list) if list.is_nil => out.push_str("null"),
        Value::List(list) => {
            out.push('[');
            for (at, item) in list.items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(out, item, html)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (at, (key, item)) in map.entries.borrow().iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                string(out, key.as_bytes(), html);
                out.push(':');
                write_value(out, item, html)?;
            }
            out.push('}');
        }
        Value::Object(object) => match object.as_ref() {
            Object::Record(record) => {
                out.push('{');
                let mut has_one = false;
                for field in record.fields.iter().filter(|field| !field.omit_empty || field.value.truth()) {
                    if has_one {
                        out.push(',');
                    }
                    has_one = true;
                    string(out, field.json.as_bytes(), html);
                    out.push(':');
                    write_value(out, &field.value, html)?;
                }
                out.push('}');
            }
            Object::Moment(moment) => string(out, moment.rfc3339_nano().as_bytes(), html),
            Object::Version(version) => string(out, version.to_string().as_bytes(), html),
            other => _ = write!(out, "{}", other.as_int().unwrap_or(0)),
        },
    }
    Ok(())
}

/// A number, with an exponent below 1e-6 and from 1e21 on.
pub(crate) fn float(number: f64) -> Result<String, String> {
    if let Some(word) = special(number) {
        return Err(format!("json: unsupported value: {word}"));
    }
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{number:e}");
        return Ok(match text.split_once("e-") {
            Some((mantissa, exponent)) => format!("{mantissa}e-{exponent}"),
            None => text.replacen('e', "e+", 1),
        });
    }
    Ok(format!("{number}"))
}

fn string(out: &mut String, bytes: &[u8], html: bool) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                '<' | '>' | '&' if html => _ = write!(out, "\\u{:04x}", u32::from(c)),
                c if c < ' ' || c == '\u{2028}' || c == '\u{2029}' => _ = write!(out, "\\u{:04x}", u32::from(c)),
                c => out.push(c),
            }
        }
        out.push_str(if chunk.invalid().is_empty() { "" } else { "\\ufffd" });
    }
    out.push('"');
}

/// Indents compact JSON with two spaces per level.
pub(crate) fn indent(compact: &str) -> String {
    let mut out = String::new();
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let mut chars = compact.chars().peekable();
    while let Some(c) = chars.next() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => {
                in_text = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                if let Some(end) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => out.push(c),
        }
    }
    out
}

/// Decodes a document; numbers are floats.
///
/// # Errors
///
/// Returns Go's message about the error.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader { bytes, at: 0, depth: 0 };
    reader.space();
    let value = reader.value("looking for beginning of value")?;
    reader.space();
    match reader.peek() {
        None => Ok(value),
        Some(byte) => Err(invalid(byte, "after top-level value")),
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    depth: usize,
}

fn invalid(byte: u8, context: &str) -> String {
    let character = match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let quoted = quote(char::from(byte).to_string().as_bytes());
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    };
    format!("invalid character {character} {context}")
}

/// Returns the message of Go's stream decoder about an invalid document, such as a schema: its messages about the end
/// of input differ.
pub(crate) fn decoding_error(bytes: &[u8]) -> Option<String> {
    let mut reader = Reader { bytes, at: 0, depth: 0 };
    reader.space();
    if reader.peek().is_none() {
        return Some("EOF".to_owned());
    }
    match reader.value("looking for beginning of value") {
        Err(_) if reader.at > bytes.len() => return Some("unexpected EOF".to_owned()),
        Err(message) => return Some(message),
        Ok(_) => reader.space(),
    }
    reader.peek().map(|_| "invalid character after top-level value".to_owned())
}

const UNEXPECTED_END: &str = "unexpected end of JSON input";

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Consumes a byte. At the end of input, the position is one byte past the end.
    fn next(&mut self) -> Result<u8, String> {
        let byte = self.peek().ok_or(UNEXPECTED_END);
        self.at += 1;
        Ok(byte?)
    }

    /// Consumes a byte where no space is allowed; Go then reads one byte past the end.
    fn next_letter(&mut self) -> u8 {
        let byte = self.peek().unwrap_or(b' ');
        self.at += 1;
        byte
    }

    fn value(&mut self, context: &str) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        let value = stacker::maybe_grow(128 << 10, 1 << 20, || match self.next()? {
            b'{' => self.object(),
            b'[' => self.array(),
            b'"' => self.string().map(Value::str),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Nil),
            b'-' | b'0'..=b'9' => self.number(),
            byte => Err(invalid(byte, context)),
        });
        self.depth -= 1;
        value
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, String> {
        for expected in word.bytes().skip(1) {
            let byte = self.next_letter();
            if byte != expected {
                return Err(invalid(byte, &format!("in literal {word} (expecting '{}')", char::from(expected))));
            }
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, String> {
        let from = self.at - 1;
        self.at = match number_end(self.bytes, from) {
            Ok(end) => end,
            Err(InvalidNumber { at, context }) => {
                self.at = at;
                return Err(invalid(self.next_letter(), context));
            }
        };
        let text = String::from_utf8_lossy(&self.bytes[from..self.at]);
        match parse_float(&text) {
            Some(number) => Ok(Value::Float(number)),
            None => Err(format!("json: cannot unmarshal number {text} into Go value of type float64")),
        }
    }

    fn string(&mut self) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        loop {
            match self.next()? {
                b'"' => return Ok(String::from_utf8_lossy(&out).into_owned().into_bytes()),
                byte if byte < b' ' => return Err(invalid(byte, "in string literal")),
                b'\\' => match self.next_letter() {
                    byte @ (b'"' | b'\\' | b'/') => out.push(byte),
                    b'b' => out.push(8),
                    b'f' => out.push(12),
                    b'n' => out.push(b'\n'),
                    b'r' => out.push(b'\r'),
                    b't' => out.push(b'\t'),
                    b'u' => {
                        let c = self.code()?;
                        out.extend(c.encode_utf8(&mut [0; 4]).bytes());
                    }
                    byte => return Err(invalid(byte, "in string escape code")),
                },
                byte => out.push(byte),
            }
        }
    }

    fn unit(&mut self) -> Result<u32, String> {
        let mut unit = 0;
        for _ in 0..4 {
            let byte = self.next_letter();
            let digit =
                char::from(byte).to_digit(16).ok_or_else(|| invalid(byte, "in \\u hexadecimal character escape"))?;
            unit = unit * 16 + digit;
        }
        Ok(unit)
    }

    /// Decodes a `\u` escape; some characters need two.
    fn code(&mut self) -> Result<char, String> {
        let first = self.unit()?;
        if (0xd800..0xdc00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn array(&mut self) -> Result<Value, String> {
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::list(items));
        }
        loop {
            self.space();
            items.push(self.value("looking for beginning of value")?);
            self.space();
            match self.next()? {
                b',' => {}
                b']' => return Ok(Value::list(items)),
                byte => return Err(invalid(byte, "after array element")),
            }
        }
    }

    fn object(&mut self) -> Result<Value, String> {
        let mut entries = BTreeMap::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::map(entries));
        }
        loop {
            self.space();
            match self.next()? {
                b'"' => {}
                byte => return Err(invalid(byte, "looking for beginning of object key string")),
            }
            let key = String::from_utf8_lossy(&self.string()?).into_owned();
            self.space();
            match self.next()? {
                b':' => {}
                byte => return Err(invalid(byte, "after object key")),
            }
            self.space();
            entries.insert(key, self.value("looking for beginning of value")?);
            self.space();
            match self.next()? {
                b',' => {}
                b'}' => return Ok(Value::map(entries)),
                byte => return Err(invalid(byte, "after object key:value pair")),
            }
        }
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
