//! Decoding of request bodies into JSON.
//!
//! Decoding records duplicate keys, which are lost in a map and which strict field validation reports.

mod locate;

pub(crate) use locate::warning_positions;

use super::syntax::json_error;
use crate::limits;
use flyball_core::{Status, json};
use flyball_schema::decode::has_room;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;
use std::cell::{Cell, RefCell};
use std::fmt;

/// The depth to which YAML may nest: less than JSON, since its parser uses more of the stack.
const YAML_DEPTH: usize = 64;

/// Maximum number of events that aliases in YAML repeat: an alias repeats all events of its anchor.
const YAML_ALIAS_EVENTS: usize = 100_000;

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

/// A body that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    pub(crate) value: Value,
    /// A warning for each key that stood twice: its path in JSON, its line in YAML.
    pub(crate) duplicates: Vec<String>,
    pub(crate) format: Format,
}

/// The error of decoding a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Malformed JSON, with Go's message.
    #[error("{0}")]
    Json(String),
    /// Malformed YAML.
    #[error("yaml: {0}")]
    Yaml(String),
    /// The decoded document exceeds the memory limit.
    #[error("Request entity too large: it takes more than {} MiB of memory", limits::MAX_DECODED_BYTES >> 20)]
    TooLarge,
}

impl Error {
    /// Converts the error into a `Status`: 413 if the body is too large, else the caller's one.
    pub(crate) fn to_status(&self, otherwise: impl FnOnce(String) -> Status) -> Status {
        match self {
            Self::TooLarge => Status::too_large(self.to_string()),
            Self::Json(_) | Self::Yaml(_) => otherwise(self.to_string()),
        }
    }
}

/// Reads a body.
pub(crate) fn read(format: Format, bytes: &[u8]) -> Result<Document, Error> {
    match format {
        Format::Json => read_json(bytes),
        Format::Yaml => read_yaml(bytes),
    }
}

fn read_json(bytes: &[u8]) -> Result<Document, Error> {
    json::check_keys(bytes).map_err(|error| Error::Json(error.to_string()))?;
    let state = ReadState::default();
    let seed = Reader { format: Format::Json, path: Path::ROOT, state: &state };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = seed.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    match read {
        Ok(value) => Ok(Document { value, duplicates: state.duplicates.into_inner(), format: Format::Json }),
        Err(_) if state.weight.get() > limits::MAX_DECODED_BYTES => Err(Error::TooLarge),
        Err(error) if error.is_syntax() || error.is_eof() => Err(Error::Json(json_error(bytes))),
        Err(error) => Err(Error::Json(error.to_string())),
    }
}

pub(crate) fn read_yaml(bytes: &[u8]) -> Result<Document, Error> {
    // Most YAML bodies are JSON, whose parser is faster and allows more depth.
    if bytes.trim_ascii_start().starts_with(b"{") {
        match read_json(bytes) {
            Ok(document) if document.duplicates.is_empty() => {
                return Ok(Document { format: Format::Yaml, ..document });
            }
            Err(Error::TooLarge) => return Err(Error::TooLarge),
            _ => {}
        }
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Error::Yaml("invalid UTF-8".into()))?;
    let text = first_document(text);
    let state = ReadState::default();
    let value = {
        let options = serde_saphyr::options! {
            duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
            budget: serde_saphyr::budget! { max_depth: YAML_DEPTH, flow_nesting_limit: YAML_DEPTH },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: YAML_ALIAS_EVENTS },
        };
        serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
            Reader { format: Format::Yaml, path: Path::ROOT, state: &state }.deserialize(deserializer)
        })
    };
    match value {
        Ok(value) => Ok(Document { value, duplicates: state.duplicates.into_inner(), format: Format::Yaml }),
        Err(_) if state.weight.get() > limits::MAX_DECODED_BYTES => Err(Error::TooLarge),
        Err(error) => Err(Error::Yaml(super::flow::mistake(text).unwrap_or_else(|| yaml_error(&error.to_string())))),
    }
}

/// Cuts a stream of documents after the first; the others are ignored.
fn first_document(text: &str) -> &str {
    let (mut has_content, mut end) = (false, 0);
    for line in text.split_inclusive('\n') {
        let marks = |mark: &str| {
            line.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
        };
        if has_content && (marks("---") || marks("...")) {
            return &text[..end];
        }
        let blank = line.trim().is_empty() || line.starts_with(['#', '%']);
        has_content |= !blank;
        end += line.len();
    }
    text
}

/// Returns the first line of the parser's message: the rest shows the location on a terminal.
fn yaml_error(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// The position of the reader, kept on the stack and formatted only for duplicate keys.
#[derive(Clone, Copy)]
struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

impl Path<'_> {
    const ROOT: Self = Self { parent: None, step: Step::Root };
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match (self.step, self.parent.map(|parent| parent.step)) {
            (Step::Root, _) => Ok(()),
            (Step::Key(key), Some(Step::Root) | None) => f.write_str(key),
            (Step::Key(key), Some(_)) => write!(f, ".{key}"),
            (Step::Index(i), _) => write!(f, "[{i}]"),
        }
    }
}

/// The state of reading a document.
#[derive(Default)]
struct ReadState {
    duplicates: RefCell<Vec<String>>,
    weight: Cell<usize>,
}

impl ReadState {
    /// Adds to the memory of the document, up to a limit.
    fn weigh<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        self.weight.set(self.weight.get() + bytes);
        if self.weight.get() > limits::MAX_DECODED_BYTES { Err(E::custom("too large")) } else { Ok(()) }
    }
}

#[derive(Clone, Copy)]
struct Reader<'p> {
    format: Format,
    path: Path<'p>,
    state: &'p ReadState,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        // Go writes a float without a fraction as an integer.
        if v.fract() == 0.0 && v.abs() < 9e15 {
            return Ok(Value::Number((v as i64).into()));
        }
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Value, E> {
        self.state.weigh(v.len())?;
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, v: String) -> Result<Value, E> {
        self.state.weigh(v.len())?;
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let path = Path { parent: Some(&self.path), step: Step::Index(items.len()) };
            match access.next_element_seed(Reader { path, ..self })? {
                Some(item) => {
                    self.state.weigh(limits::ITEM)?;
                    json::push_item(&mut items, item);
                }
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((key, line)) = access.next_key_seed(Key(self.format))? {
            let path = Path { parent: Some(&self.path), step: Step::Key(&key) };
            let value = access.next_value_seed(Reader { path, ..self })?;
            self.state.weigh(key.len() + limits::entry(fields.len()))?;
            if fields.contains_key(&key) && has_room(&self.state.duplicates.borrow()) {
                self.state.duplicates.borrow_mut().push(match self.format {
                    Format::Json => format!("duplicate field \"{path}\""),
                    Format::Yaml => format!("line {line}: key {key:?} already set in map"),
                });
            }
            fields.insert(key, value);
        }
        if fields.is_empty() {
            // Defaults fill it: three bytes become as much as any other map.
            self.state.weigh(limits::entry(0))?;
        }
        Ok(Value::Object(fields))
    }
}

/// Reads a key, in YAML with its line.
struct Key(Format);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = (String, u64);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(String, u64), D::Error> {
        match self.0 {
            Format::Json => Ok((deserializer.deserialize_any(Scalar)?, 0)),
            Format::Yaml => {
                let key = Spanned::<KeyText>::deserialize(deserializer)?;
                Ok((key.value.0, key.referenced.line()))
            }
        }
    }
}

struct KeyText(String);

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Scalar).map(Self)
    }
}

/// Decodes a string, or in YAML any scalar, which JSON would quote.
struct Scalar;

impl Visitor<'_> for Scalar {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, v: &str) -> Result<String, E> {
        Ok(v.to_owned())
    }

    fn visit_string<E>(self, v: String) -> Result<String, E> {
        Ok(v)
    }

    fn visit_bool<E>(self, v: bool) -> Result<String, E> {
        Ok(v.to_string())
    }

    fn visit_i64<E>(self, v: i64) -> Result<String, E> {
        Ok(v.to_string())
    }

    fn visit_u64<E>(self, v: u64) -> Result<String, E> {
        Ok(v.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<String, E> {
        Err(E::custom(format!("{v} cannot be a key")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn json(text: &str) -> Result<Document, String> {
        read(Format::Json, text.as_bytes()).map_err(|e| e.to_string())
    }

    fn yaml(text: &str) -> Result<Document, String> {
        read(Format::Yaml, text.as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn duplicate_keys_are_reported_and_the_last_wins() {
        let document = json(r#"{"a": 1, "s": {"l": [{"b": 1, "b": 2}]}, "a": 3}"#).unwrap();
        assert_eq!(document.value, json!({"a": 3, "s": {"l": [{"b": 2}]}}));
        assert_eq!(document.duplicates, ["duplicate field \"s.l[0].b\"", "duplicate field \"a\""]);
    }

    #[test]
    fn numbers_without_fraction_are_integers() {
        assert_eq!(
            json("[1.0, 2e3, 1.5, -7, 18446744073709551615]").unwrap().value,
            json!([1, 2000, 1.5, -7, 18446744073709551615u64])
        );
    }

    #[test]
    fn deep_nesting_is_rejected() {
        let deep = "[".repeat(100_000);
        assert!(json(&deep).is_err());
        assert!(yaml(&deep).is_err());
    }

    #[test]
    fn yaml_is_parsed_as_yaml_1_1() {
        let document = yaml("a: y\nb: 'y'\nc: 0x10\nd: ~\n1: x\nl: [on, no]\n").unwrap();
        assert_eq!(document.value, json!({"a": true, "b": "y", "c": 16, "d": null, "1": "x", "l": [true, false]}));
        assert!(yaml("a: [b\nc: d").is_err());
    }
}
