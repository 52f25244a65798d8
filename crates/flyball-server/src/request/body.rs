//! The body of a request, read into JSON.
//!
//! Reading notes keys that stand twice, which a map cannot hold and strict field validation must tell.

use super::syntax::json_error;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;
use std::cell::RefCell;
use std::fmt;

/// The most bytes of a body, as the real server has it.
pub(crate) const LIMIT: usize = 3 << 20;

/// How deep YAML may nest: less than JSON, since its parser uses more of the stack.
const YAML_DEPTH: usize = 64;

/// How a body is written.
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

/// Why a body is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// It is no JSON, in Go's words.
    #[error("{0}")]
    Json(String),
    /// It is no YAML.
    #[error("yaml: {0}")]
    Yaml(String),
}

/// Reads a body.
pub(crate) fn read(format: Format, bytes: &[u8]) -> Result<Document, Error> {
    match format {
        Format::Json => read_json(bytes),
        Format::Yaml => read_yaml(bytes),
    }
}

/// Says of each key of a JSON document, in order, what there would be to say if it were unknown, or that it stands twice.
///
/// Only read for a document of which something is to be said.
pub(crate) fn remarks(bytes: &[u8]) -> Vec<String> {
    let remarks = RefCell::default();
    let seed = Reader { format: Format::Json, path: Path::ROOT, duplicates: &remarks, every_key: true };
    // What is no JSON has been refused before.
    drop(seed.deserialize(&mut serde_json::Deserializer::from_slice(bytes)));
    remarks.into_inner()
}

fn read_json(bytes: &[u8]) -> Result<Document, Error> {
    let duplicates = RefCell::default();
    let seed = Reader { format: Format::Json, path: Path::ROOT, duplicates: &duplicates, every_key: false };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = seed.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    match read {
        Ok(value) => Ok(Document { value, duplicates: duplicates.into_inner(), format: Format::Json }),
        Err(error) if error.is_syntax() || error.is_eof() => Err(Error::Json(json_error(bytes))),
        Err(error) => Err(Error::Json(error.to_string())),
    }
}

pub(crate) fn read_yaml(bytes: &[u8]) -> Result<Document, Error> {
    // Most YAML that clients send is JSON, which is read faster and deeper as what it is.
    if bytes.trim_ascii_start().starts_with(b"{")
        && let Ok(document) = read_json(bytes)
        && document.duplicates.is_empty()
    {
        return Ok(Document { format: Format::Yaml, ..document });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Error::Yaml("invalid UTF-8".into()))?;
    let duplicates = RefCell::default();
    let value = {
        let options = serde_saphyr::options! {
            duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
            budget: serde_saphyr::budget! { max_depth: YAML_DEPTH, flow_nesting_limit: YAML_DEPTH },
        };
        serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
            Reader { format: Format::Yaml, path: Path::ROOT, duplicates: &duplicates, every_key: false }
                .deserialize(deserializer)
        })
    };
    match value {
        Ok(value) => Ok(Document { value, duplicates: duplicates.into_inner(), format: Format::Yaml }),
        Err(error) => Err(Error::Yaml(super::flow::mistake(text).unwrap_or_else(|| yaml_error(&error.to_string())))),
    }
}

/// Takes the first line of what the parser says: the rest draws the place for people at a terminal.
fn yaml_error(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Where the reader is, kept on the stack and written out only for a key that stands twice.
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

#[derive(Clone, Copy)]
struct Reader<'p> {
    format: Format,
    path: Path<'p>,
    duplicates: &'p RefCell<Vec<String>>,
    /// Whether something is noted of keys that stand once, too.
    every_key: bool,
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
        // Go writes a float without a fraction as a whole number, and so whole is what it is.
        if v.fract() == 0.0 && v.abs() < 9e15 {
            return Ok(Value::Number((v as i64).into()));
        }
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
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
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((key, line)) = access.next_key_seed(Key(self.format))? {
            let path = Path { parent: Some(&self.path), step: Step::Key(&key) };
            if self.every_key && !fields.contains_key(&key) {
                self.duplicates.borrow_mut().push(format!("unknown field \"{path}\""));
            }
            let value = access.next_value_seed(Reader { path, ..self })?;
            if fields.contains_key(&key) {
                self.duplicates.borrow_mut().push(match self.format {
                    Format::Json => format!("duplicate field \"{path}\""),
                    Format::Yaml => format!("line {line}: key {key:?} already set in map"),
                });
            }
            fields.insert(key, value);
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

/// Takes a text, or in YAML any scalar, which JSON would quote.
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
    fn keys_that_stand_twice_are_told_and_the_last_wins() {
        let document = json(r#"{"a": 1, "s": {"l": [{"b": 1, "b": 2}]}, "a": 3}"#).unwrap();
        assert_eq!(document.value, json!({"a": 3, "s": {"l": [{"b": 2}]}}));
        assert_eq!(document.duplicates, ["duplicate field \"s.l[0].b\"", "duplicate field \"a\""]);
    }

    #[test]
    fn numbers_are_whole_if_they_have_no_fraction() {
        assert_eq!(
            json("[1.0, 2e3, 1.5, -7, 18446744073709551615]").unwrap().value,
            json!([1, 2000, 1.5, -7, 18446744073709551615u64])
        );
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = "[".repeat(100_000);
        assert!(json(&deep).is_err());
        assert!(yaml(&deep).is_err());
    }

    #[test]
    fn yaml_is_read_as_yaml_1_1() {
        let document = yaml("a: y\nb: 'y'\nc: 0x10\nd: ~\n1: x\nl: [on, no]\n").unwrap();
        assert_eq!(document.value, json!({"a": true, "b": "y", "c": 16, "d": null, "1": "x", "l": [true, false]}));
        assert!(yaml("a: [b\nc: d").is_err());
    }
}
