//! Builds values from the events of a YAML parser, within a memory limit.
//!
//! Text of users can be small and its value large, by aliases or by many small maps. So each node is charged before it
//! is created, and the nodes behind an alias again for each use. The depth is limited, since traversals of values
//! recurse.

use super::scalar;
use crate::value::memory;
use crate::value::{Map, Value};
use crate::vault::Vault;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use granit_parser::{Event, Parser, ScalarStyle, Tag};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Nesting limit of a document.
const MAX_DEPTH: usize = 64;
/// The key of maps that a map includes, as in YAML 1.1.
const MERGE: &str = "<<";

/// The options of all parsers.
pub(super) fn options() -> granit_parser::Options {
    granit_parser::options! { emit_comments: false, flow_nesting_limit: MAX_DEPTH, block_nesting_limit: MAX_DEPTH }
}

/// Parses all documents of a string.
///
/// # Errors
/// If the text is not YAML, or its values exceed a number of bytes by estimate.
pub(super) fn compose(text: &str, limit: usize, vault: Option<&Vault>) -> Result<Vec<Value>, ScalarError> {
    let mut composer =
        Composer { limit, remaining: limit, vault, open: Vec::new(), anchors: BTreeMap::new(), documents: Vec::new() };
    for next in Parser::new_from_str_with_options(text, options()) {
        let (event, span) = next.map_err(|error| {
            let at = error.marker();
            ScalarError::Text(format!("{} at line {}, column {}", error.info(), at.line(), at.col() + 1))
        })?;
        // The text of a block begins in the line after that of its tag.
        let is_block = matches!(event, Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..));
        let located = |problem| match problem {
            ScalarError::Text(problem) => {
                ScalarError::Text(format!("{problem} at line {}, column {}", span.start.line(), span.start.col() + 1))
            }
            ScalarError::Vault { problem, .. } => {
                ScalarError::Vault { problem, line: span.start.line() - usize::from(is_block) }
            }
            memory => memory,
        };
        composer.event(event).map_err(located)?;
    }
    Ok(composer.documents)
}

/// Reason why a string has no value.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum ScalarError {
    /// The values are too large.
    #[error("the values exceed {0} bytes of memory")]
    Memory(usize),
    /// A value cannot be decrypted.
    #[error("{problem} at line {line}")]
    Vault { problem: String, line: usize },
    /// The text is not YAML, or has values that JSON does not have.
    #[error("{0}")]
    Text(String),
}

impl From<&str> for ScalarError {
    fn from(problem: &str) -> Self {
        Self::Text(problem.to_owned())
    }
}

impl From<String> for ScalarError {
    fn from(problem: String) -> Self {
        Self::Text(problem)
    }
}

struct Composer<'v> {
    limit: usize,
    /// Remaining bytes.
    remaining: usize,
    /// Decrypts values of the operator's author, whose strings are templates.
    vault: Option<&'v Vault>,
    /// Unfinished nodes, from the outside in.
    open: Vec<Node>,
    /// Complete nodes with an anchor, and their sizes.
    anchors: BTreeMap<usize, (Value, usize)>,
    documents: Vec<Value>,
}

/// An unfinished node and its anchor.
struct Node {
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Value>),
    Map(Fields),
}

#[derive(Default)]
struct Fields {
    own: Map,
    /// Fields of merged maps, which own fields override.
    merged: Map,
    /// The key whose value follows.
    key: Option<Key>,
}

enum Key {
    Merge,
    Field(String),
}

impl Composer<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), ScalarError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => self.scalar(text, style, anchor, tag.as_deref()),
            Event::SequenceStart(_, anchor, _) => self.start(anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => self.start(anchor, Content::Map(Fields::default())),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Node { anchor, content }) = self.open.pop() else { return Ok(()) };
                let value = match content {
                    Content::List(items) => Value::Array(items),
                    Content::Map(Fields { own, mut merged, .. }) => {
                        // The fields of merged maps come first.
                        merged.extend(own);
                        Value::Object(merged)
                    }
                };
                self.complete(value, anchor)
            }
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).map(|(_, size)| *size);
                self.charge(known.ok_or("an alias refers to a node that contains it")?)?;
                let value = self.anchors[&anchor].0.clone();
                self.complete(value, 0)
            }
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Charges memory before it is allocated.
    fn charge(&mut self, bytes: usize) -> Result<(), ScalarError> {
        self.remaining = self.remaining.checked_sub(bytes).ok_or(ScalarError::Memory(self.limit))?;
        Ok(())
    }

    fn start(&mut self, anchor: usize, content: Content) -> Result<(), ScalarError> {
        if let Some(Node { content: Content::Map(Fields { key: None, .. }), .. }) = self.open.last() {
            return Err("a key must be a scalar".into());
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}").into());
        }
        self.charge(memory::ITEM)?;
        self.open.push(Node { anchor, content });
        Ok(())
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
    ) -> Result<(), ScalarError> {
        let local = self.vault.zip(tag.and_then(|tag| tag.suffix_in_namespace("!")));
        let tag = tag.and_then(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:"));
        let tag = tag.as_deref();
        if let Some(Node { content: Content::Map(fields), .. }) = self.open.last_mut()
            && fields.key.is_none()
        {
            let is_merge = text == MERGE && style == ScalarStyle::Plain && tag != Some("str");
            let bytes = if is_merge { 0 } else { memory::entry(fields.own.len()) + text.len() };
            let key = if is_merge { Key::Merge } else { Key::Field(text.into_owned()) };
            fields.key = Some(key);
            // An anchor of a key is usable as a value.
            let anchored = match self.open.last() {
                Some(Node { content: Content::Map(Fields { key: Some(Key::Field(key)), .. }), .. }) if anchor != 0 => {
                    Some(Value::from(key.as_str()))
                }
                _ => None,
            };
            self.charge(bytes)?;
            return anchored.map_or(Ok(()), |value| self.note(&value, anchor));
        }
        self.charge(memory::ITEM + text.len())?;
        let decrypted = match &local {
            Some((vault, tag)) if matches!(&**tag, "vault" | "vault-encrypted") => {
                Some(vault.decrypt(&text).map_err(|problem| ScalarError::Vault { problem, line: 0 })?.into())
            }
            Some((_, tag)) if &**tag == "unsafe" => Some(text.clone()),
            _ => None,
        };
        if let Some(text) = decrypted {
            return self.complete(as_template(&text), anchor);
        }
        let value = match tag {
            Some("str") => Value::String(text.into_owned()),
            Some("binary") => binary(&text)?,
            Some(tag @ ("int" | "float" | "bool" | "null")) => {
                let value = scalar::resolve(&text)?;
                let fits = match tag {
                    "int" => value.is_i64() || value.is_u64(),
                    "float" => value.is_number(),
                    "bool" => value.is_boolean(),
                    _ => value.is_null(),
                };
                let float = value.as_f64().filter(|_| tag == "float").map(Value::from);
                float.or(fits.then_some(value)).ok_or_else(|| format!("the value is no {tag}"))?
            }
            _ if style == ScalarStyle::Plain => scalar::resolve(&text)?,
            _ => Value::String(text.into_owned()),
        };
        self.complete(value, anchor)
    }

    /// Keeps the value of an anchor for its aliases.
    fn note(&mut self, value: &Value, anchor: usize) -> Result<(), ScalarError> {
        if anchor != 0 {
            let size = memory::ITEM + memory::of(value);
            self.charge(size)?;
            self.anchors.insert(anchor, (value.clone(), size));
        }
        Ok(())
    }

    /// Adds a complete node to the one around it.
    fn complete(&mut self, value: Value, anchor: usize) -> Result<(), ScalarError> {
        self.note(&value, anchor)?;
        match self.open.last_mut().map(|node| &mut node.content) {
            None => {
                self.documents.push(value);
                Ok(())
            }
            Some(Content::List(items)) => {
                items.push(value);
                Ok(())
            }
            Some(Content::Map(fields)) => Ok(fields.add(value)?),
        }
    }
}

impl Fields {
    /// Adds a value, or a key if none is known.
    fn add(&mut self, value: Value) -> Result<(), String> {
        match (self.key.take(), value) {
            (None, Value::String(key)) => {
                self.key = Some(Key::Field(key));
                Ok(())
            }
            (None, Value::Array(_) | Value::Object(_)) => Err("a key must be a scalar".to_owned()),
            (None, scalar) => {
                self.key = Some(Key::Field(scalar.to_string()));
                Ok(())
            }
            // As in PyYAML, the last one of equal keys takes precedence.
            (Some(Key::Field(key)), value) => {
                self.own.insert(key, value);
                Ok(())
            }
            (Some(Key::Merge), Value::Array(maps)) => maps.into_iter().try_for_each(|map| self.merge(map)),
            (Some(Key::Merge), map) => self.merge(map),
        }
    }

    /// Includes the fields of a map; the first of several maps takes precedence.
    fn merge(&mut self, map: Value) -> Result<(), String> {
        let Value::Object(map) = map else { return Err("<< must have a map or a list of maps".to_owned()) };
        for (key, value) in map {
            self.merged.entry(key).or_insert(value);
        }
        Ok(())
    }
}

/// Returns a template that results in a text.
fn as_template(text: &str) -> Value {
    let is_template = ["{{", "{%", "{#"].iter().any(|brace| text.contains(brace));
    // Backslashes in strings of templates are literal.
    if is_template { format!("{{{{ '{}' }}}}", text.replace('\'', "' ~ \"'\" ~ '")).into() } else { text.into() }
}

/// Decodes a scalar with the tag `!!binary`.
fn binary(text: &str) -> Result<Value, String> {
    let encoded: String = text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(encoded).map_err(|_| "the value of !!binary is not base64")?;
    String::from_utf8(bytes).map(Value::from).map_err(|_| "the value of !!binary is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json;

    fn parsed(text: &str) -> Result<Vec<Value>, String> {
        compose(text, 1 << 20, None).map_err(|error| error.to_string())
    }

    #[test]
    fn tags_keys_and_merged_maps_are_as_in_pyyaml() {
        let check = |text: &str, expected: Value| assert_eq!(parsed(text), Ok(vec![expected]), "{text}");
        check(
            "a: !!str 1\nb: !!float 1\nc: !!int '7'\nd: !unsafe x\ne: !!binary aGk=",
            json!({"a": "1", "b": 1.0, "c": 7, "d": "x", "e": "hi"}),
        );
        check("1: a\nyes: b\n1e3: c\n? d\n: e", json!({"1": "a", "yes": "b", "1e3": "c", "d": "e"}));
        check("a: &x {p: 1, q: 1}\nb: {<<: *x, q: 2}", json!({"a": {"p": 1, "q": 1}, "b": {"p": 1, "q": 2}}));
        check(
            "- &x {p: 1}\n- &y {p: 2, q: 2}\n- {<<: [*x, *y], r: 3}",
            json!([{"p": 1}, {"p": 2, "q": 2}, {"p": 1, "q": 2, "r": 3}]),
        );
        check("- &a b\n- *a\n- {*a : 1}\n- &a c\n- *a", json!(["b", "b", {"b": 1}, "c", "c"]));
        check("&k key: *k", json!({"key": "key"}));
        check("a: 1\nb: 2\na: 3", json!({"a": 3, "b": 2}));
        check("name: 1e3\nquoted: \"12\"\nblock: |\n  12\n", json!({"name": "1e3", "quoted": "12", "block": "12\n"}));
        assert_eq!(parsed("--- 1\n--- 2\n...\n").unwrap(), [json!(1), json!(2)]);
        assert_eq!(parsed("").unwrap(), Vec::<Value>::new());
    }

    #[test]
    fn invalid_documents_are_rejected_with_their_position() {
        for (text, problem) in [
            ("&a [*a]", "refers to a node that contains it at line 1, column 5"),
            ("{[a]: 1}", "a key must be a scalar"),
            ("<<: 1", "<< must have a map"),
            ("a: *b", "at line 1"),
            ("a: !!int x", "no int"),
            ("a: .nan", "JSON has no number .nan"),
            ("a: [", "at line"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parsed(&deep(MAX_DEPTH)).is_ok() && parsed(&deep(MAX_DEPTH + 1)).is_err());
        assert!(parsed(&"- ".repeat(MAX_DEPTH + 1)).is_err() && parsed(&"[".repeat(1 << 20)).is_err());
    }

    #[test]
    fn memory_of_values_is_limited_before_they_are_created() {
        let layers = (1..30).map(|n| format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(9)));
        let bomb = format!("a0: &a0 [x]\n{}", layers.collect::<String>());
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(100));
        let merged = format!(
            "a: &a {{{}}}\nb: [{}]\n",
            (0..500).map(|n| format!("k{n}: ,")).collect::<String>(),
            "{<<: *a},".repeat(500)
        );
        let anchors = (0..60).map(|n| format!("&a{n} [")).collect::<String>() + &"x,".repeat(10_000) + &"]".repeat(60);
        for text in [bomb, long, merged, anchors, "{a},".repeat(10_000), "- {a: }\n".repeat(10_000)] {
            let text = if text.starts_with("{a}") { format!("[{text}]") } else { text };
            let error = parsed(&text).unwrap_err();
            assert!(error.contains("exceed 1048576 bytes of memory"), "{error}");
            assert!(compose(&text, 0, None).is_err());
        }
        assert!(parsed(&format!("[{}]", "x,".repeat(10_000))).is_ok());
    }
}
