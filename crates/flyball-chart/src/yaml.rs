//! YAML 1.1 as in Helm: with the behavior and messages of go-yaml and sigs.k8s.io/yaml.
//!
//! The workspace's YAML library is not used, because messages are part of Helm's output and the meaning of `yes` is
//! part of its behavior.

mod decode;
mod emit;
mod parser;
mod resolve;
mod scanner;

pub(crate) use emit::{Origin, Version};

use crate::memory::{self, MemoryCharge};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The content of a document. Keys are strings, as in JSON.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(String),
    List(Vec<Data>),
    Map(BTreeMap<String, Data>),
}

/// A decoding error, with the message of sigs.k8s.io/yaml.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The text is not YAML.
    #[error("error converting YAML to JSON: yaml: {0}")]
    Yaml(String),
    /// A key has no JSON form.
    #[error("error converting YAML to JSON: {0}")]
    Key(String),
    /// A number has no JSON form.
    #[error("error converting YAML to JSON: json: unsupported value: {0}")]
    Number(&'static str),
    /// The document has an unexpected type.
    #[error("error unmarshaling JSON: while decoding JSON: json: {0}")]
    Type(String),
}

/// Decodes the first document of a YAML stream.
///
/// # Errors
///
/// Fails if Helm does not accept the YAML.
pub(crate) fn read(bytes: &[u8]) -> Result<Data, Error> {
    let text = check_encoding(bytes)?;
    let located = |problem: scanner::Problem| {
        let prefix = if problem.line == 0 { String::new() } else { format!("line {}: ", problem.line) };
        Error::Yaml(format!("{prefix}{}", problem.message))
    };
    let data = match parser::parse(text).map_err(located)? {
        Some(node) => decode::decode(node)?,
        None => Data::Null,
    };
    data.check_numbers()?;
    Ok(data)
}

/// Splits a stream into documents, like Kubernetes' decoder; an error is the last item.
pub(crate) fn documents(text: &[u8]) -> Vec<Result<&[u8], String>> {
    let mut documents = Vec::new();
    let (mut from, mut at) = (0, 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let next = at + line.len();
        if let Some(rest) = line.strip_prefix(b"---") {
            let rest = rest.trim_ascii();
            if !matches!(rest.first(), None | Some(b'#')) {
                let rest = String::from_utf8_lossy(rest);
                documents.push(Err(format!("invalid Yaml document separator: {rest}")));
                return documents;
            }
            if from < at {
                documents.push(Ok(&text[from..at]));
                from = next;
            }
        }
        at = next;
    }
    if from < at {
        documents.push(Ok(&text[from..at]));
    }
    documents
}

/// Returns duplicate keys of mappings in the first document, with their lines.
pub(crate) fn duplicates(text: &[u8]) -> Vec<(usize, String)> {
    let node = check_encoding(text).ok().and_then(|text| parser::parse(text).ok().flatten());
    let mut found = Vec::new();
    if let Some(node) = node {
        node.duplicates(&mut found);
    }
    found
}

/// Decodes the first document of a YAML stream, like Helm.
///
/// # Errors
///
/// Fails if Helm does not accept the YAML.
pub fn from_yaml(text: &str) -> Result<serde_json::Value, Error> {
    read(text.as_bytes()).map(Data::into_json)
}

/// Decodes documents within a common memory limit. All of them are decoded on the same thread.
pub struct BoundedYaml {
    charge: MemoryCharge,
    _scope: memory::Scope,
}

impl BoundedYaml {
    /// Sets the limit in bytes, approximately.
    pub fn new(max_bytes: usize) -> Self {
        let scope = memory::Scope::new(max_bytes);
        Self { charge: MemoryCharge::default(), _scope: scope }
    }

    /// Decodes the first document of a YAML stream.
    ///
    /// # Errors
    ///
    /// See [`from_yaml`].
    pub fn read(&mut self, text: &str) -> Result<serde_json::Value, Error> {
        let value = from_yaml(text)?;
        self.charge.add(memory::size_of_json(&value));
        Ok(value)
    }

    /// Returns true if the documents exceed the limit.
    pub fn is_exhausted(&self) -> bool {
        memory::is_exhausted()
    }
}

/// Decodes a mapping; an empty document is an empty mapping.
///
/// # Errors
///
/// See [`read`]; also if the document is not a mapping.
pub(crate) fn read_map(bytes: &[u8]) -> Result<BTreeMap<String, Data>, Error> {
    match read(bytes)? {
        Data::Map(map) => Ok(map),
        Data::Null => Ok(BTreeMap::new()),
        other => Err(other.mismatch("Go value", "map[string]interface {}")),
    }
}

/// Encodes a document, with a line break at its end.
pub(crate) fn write(data: &Data, version: Version) -> String {
    emit::emit(data, &Origin::Chart, version, emit::natural).0
}

/// Encodes a document and returns the ranges of untrusted data.
pub(crate) fn write_marked(data: &Data, origin: &Origin, version: Version) -> (String, Vec<std::ops::Range<usize>>) {
    emit::emit(data, origin, version, emit::natural)
}

/// Encodes a value like kubectl and Helm, but with the keys of each mapping in this order.
pub fn to_yaml(value: &serde_json::Value, order: fn(&str, &str) -> Ordering) -> String {
    emit::emit(&Data::of_json(value), &Origin::Chart, Version::Two, order).0
}

fn check_encoding(bytes: &[u8]) -> Result<&str, Error> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let rest = &bytes[error.valid_up_to()..];
            let width = match rest[0] {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => return Err(Error::Yaml("invalid leading UTF-8 octet".to_owned())),
            };
            if rest.len() < width {
                return Err(Error::Yaml("incomplete UTF-8 octet sequence".to_owned()));
            }
            if rest[1..width].iter().any(|byte| byte & 0xc0 != 0x80) {
                return Err(Error::Yaml("invalid trailing UTF-8 octet".to_owned()));
            }
            return Err(Error::Yaml("invalid Unicode character".to_owned()));
        }
    };
    if has_control(text) {
        return Err(Error::Yaml(CONTROL.to_owned()));
    }
    Ok(text)
}

/// Converts a string as go-yaml reads it from JSON: a next-line character is a line break, and a single line break
/// between quotes is a space.
pub(crate) fn folded(text: &str) -> Cow<'_, str> {
    const NEXT_LINE: char = '\u{85}';
    if !text.contains(NEXT_LINE) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(NEXT_LINE) {
        out.push_str(rest[..at].trim_end_matches(' '));
        let after = rest[at..].trim_start_matches([' ', NEXT_LINE]);
        let breaks = rest[at..rest.len() - after.len()].matches(NEXT_LINE).count();
        out.push_str(&if breaks == 1 { " ".to_owned() } else { "\n".repeat(breaks - 1) });
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

const CONTROL: &str = "control characters are not allowed";

/// Returns true if a string has characters that go-yaml does not accept.
fn has_control(text: &str) -> bool {
    let is_good_ascii = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    let is_good = |c: char| {
        matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}')
            || matches!(c, '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
    };
    !(text.bytes().all(is_good_ascii) || text.chars().all(is_good))
}

impl Data {
    /// Go's message about an unexpected type.
    pub(crate) fn mismatch(&self, target: &str, expected: &str) -> Error {
        let is = match self {
            Data::Null => "null",
            Data::Bool(_) => "bool",
            Data::Int(_) | Data::Uint(_) | Data::Float(_) => "number",
            Data::Str(_) => "string",
            Data::List(_) => "array",
            Data::Map(_) => "object",
        };
        Error::Type(format!("cannot unmarshal {is} into {target} of type {expected}"))
    }

    fn yaml_type(&self) -> &'static str {
        match self {
            Data::Null => "null",
            Data::Bool(_) => "bool",
            Data::Int(_) | Data::Uint(_) => "int",
            Data::Float(_) => "float",
            Data::Str(_) => "str",
            Data::List(_) => "seq",
            Data::Map(_) => "map",
        }
    }

    /// Checks the errors that sigs.k8s.io/yaml finds when it parses the JSON converted from YAML. JSON escapes most
    /// control characters, but not all.
    ///
    /// # Errors
    ///
    /// Fails if a string has characters that go-yaml does not accept.
    pub(crate) fn check_readable(&self) -> Result<(), String> {
        let check = |text: &str| {
            let is_plain = |c: char| c < ' ';
            if text.is_ascii() && !text.contains('\u{7f}') || !has_control(&text.replace(is_plain, "")) {
                return Ok(());
            }
            Err(format!("yaml: {CONTROL}"))
        };
        match self {
            Data::Str(text) => check(text),
            Data::List(items) => items.iter().try_for_each(Data::check_readable),
            Data::Map(entries) => entries.iter().try_for_each(|(key, value)| check(key).and(value.check_readable())),
            _ => Ok(()),
        }
    }

    /// Rejects infinities, which JSON does not have.
    fn check_numbers(&self) -> Result<(), Error> {
        match self {
            Data::Float(number) => crate::number::special(*number).map_or(Ok(()), |word| Err(Error::Number(word))),
            Data::List(items) => items.iter().try_for_each(Data::check_numbers),
            Data::Map(entries) => entries.values().try_for_each(Data::check_numbers),
            _ => Ok(()),
        }
    }

    fn of_json(value: &serde_json::Value) -> Data {
        match value {
            serde_json::Value::Null => Data::Null,
            serde_json::Value::Bool(is) => Data::Bool(*is),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Data::Int(whole),
                (None, Some(whole)) => Data::Uint(whole),
                _ => Data::Float(number.as_f64().unwrap_or_default()),
            },
            serde_json::Value::String(text) => Data::Str(text.clone()),
            serde_json::Value::Array(items) => Data::List(items.iter().map(Data::of_json).collect()),
            serde_json::Value::Object(fields) => {
                Data::Map(fields.iter().map(|(key, value)| (key.clone(), Data::of_json(value))).collect())
            }
        }
    }

    /// Converts to JSON with integers, for an API server.
    pub(crate) fn into_json(self) -> serde_json::Value {
        self.json(true)
    }

    /// Converts to JSON with floats only, as in Go's `interface {}`.
    pub(crate) fn into_values(self) -> serde_json::Value {
        self.json(false)
    }

    fn json(self, has_whole: bool) -> serde_json::Value {
        match self {
            Data::Null => serde_json::Value::Null,
            Data::Bool(is) => is.into(),
            Data::Int(whole) if has_whole => whole.into(),
            Data::Uint(whole) if has_whole => whole.into(),
            #[allow(clippy::cast_precision_loss, reason = "Go's conversion")]
            Data::Int(whole) => (whole as f64).into(),
            #[allow(clippy::cast_precision_loss, reason = "Go's conversion")]
            Data::Uint(whole) => (whole as f64).into(),
            Data::Float(number) => number.into(),
            Data::Str(text) => text.into(),
            Data::List(items) => items.into_iter().map(|item| item.json(has_whole)).collect(),
            Data::Map(entries) => {
                serde_json::Value::Object(entries.into_iter().map(|(key, item)| (key, item.json(has_whole))).collect())
            }
        }
    }

    /// Returns the value of a string field: other scalars are converted to strings.
    ///
    /// # Errors
    ///
    /// Fails if it is a list or a mapping; the message contains the field, such as `SimpleHead.kind`.
    pub(crate) fn to_text(&self, field: &str) -> Result<String, Error> {
        Ok(match self {
            Data::Null => String::new(),
            Data::Bool(is) => is.to_string(),
            Data::Int(whole) => whole.to_string(),
            Data::Uint(whole) => whole.to_string(),
            Data::Float(number) => {
                #[allow(clippy::cast_possible_truncation, reason = "sigs.k8s.io/yaml writes with 32 bits")]
                let short = *number as f32;
                crate::number::format_float(format!("{short}").parse().unwrap_or(*number))
            }
            Data::Str(text) => text.clone(),
            Data::List(_) | Data::Map(_) => return Err(self.mismatch(&format!("Go struct field {field}"), "string")),
        })
    }
}
