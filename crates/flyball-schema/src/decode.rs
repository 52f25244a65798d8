//! Decodes objects of built-in kinds like Go: unknown fields are dropped, quantities and times are converted to
//! canonical form, and zero values are omitted unless the field is always encoded.
//!
//! The input is JSON from a client or the result of a patch; the output is the canonical form in which objects are
//! stored and returned. The error messages are those of Go's `encoding/json`, which kube-apiserver returns to clients.

mod convert;

pub use convert::{as_go_numbers, fit_numbers, misfit, nullify_empty_lists};

use crate::schema::{Id, Node, Presence, Shape, Struct, Text};
use base64::Engine;
use flyball_core::field::go_json;
use flyball_core::{Quantity, time};
use serde_json::{Map, Number, Value};

/// An error of decoding a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Maximum number of warnings about one document (unknown fields, duplicate keys), as in kube-apiserver.
pub const MAX_WARNINGS: usize = 100;

/// Approximate maximum size of all warnings about one document in bytes: paths may be as long as the document.
const MAX_WARNING_BYTES: usize = 64 << 10;

/// Returns true if the limits allow another warning about a document.
pub fn has_room(warnings: &[String]) -> bool {
    warnings.len() < MAX_WARNINGS && warnings.iter().map(String::len).sum::<usize>() < MAX_WARNING_BYTES
}

/// Decodes a value of a built-in type; adds the paths of unknown fields to `unknown`, up to a limit.
pub fn decode(node: Node<'_>, value: Value, unknown: &mut Vec<String>) -> Result<Value, Error> {
    Reader { unknown, fields: Vec::new(), warning_path: String::new() }.read(node, value)
}

/// Returns the value that Go encodes for an unset field.
pub fn zero(node: Node<'_>) -> Value {
    match &node.get().shape {
        Shape::Struct(fields) => {
            let written = fields.fields.iter().filter_map(|(name, field)| match field.presence {
                Presence::Always => Some((name.to_string(), zero(node.at(field.schema)))),
                Presence::OrNull => Some((name.to_string(), Value::Null)),
                Presence::Given | Presence::NotEmpty => None,
            });
            Value::Object(written.collect())
        }
        Shape::Boolean => Value::Bool(false),
        Shape::Integer(_) | Shape::Number | Shape::IntOrString => Value::Number(0.into()),
        Shape::Text(Text::Plain) => Value::String(String::new()),
        Shape::Text(Text::Quantity) => Value::String("0".into()),
        Shape::Text(Text::Duration) => Value::String("0s".into()),
        Shape::Text(Text::Time | Text::MicroTime | Text::Bytes) => Value::Null,
        Shape::List(_) | Shape::Map(_) | Shape::Any | Shape::Open(_) => Value::Null,
    }
}

/// Converts empty lists and maps to null, and empty bytes in a map to an empty string, because storage does not
/// distinguish them.
pub fn nullify_empty(node: Node<'_>, value: &mut Value) {
    let of_bytes = matches!(&node.get().shape, Shape::Map(map)
        if map.values.is_some_and(|id| matches!(node.at(id).get().shape, Shape::Text(Text::Bytes))));
    let nothing = |node: Node<'_>, value: &Value| {
        matches!(node.get().shape, Shape::List(_) | Shape::Map(_)) && is_zero(node, value)
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let Some(inner) = node.field(name) else { continue };
                if of_bytes && value.is_null() {
                    *value = Value::String(String::new());
                }
                if nothing(inner, value) {
                    *value = Value::Null;
                }
                nullify_empty(inner, value);
            }
        }
        Value::Array(items) => {
            if let Some(inner) = node.items() {
                items.iter_mut().for_each(|item| nullify_empty(inner, item));
            }
        }
        _ => {}
    }
}

fn is_zero(node: Node<'_>, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0) && !matches!(node.get().shape, Shape::IntOrString | Shape::Any),
        Value::String(s) => s.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && matches!(node.get().shape, Shape::Map(_)),
    }
}

/// Encodes a value of a built-in type like Go: fields in the order of their declaration.
pub fn print(node: Node<'_>, value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let of = node.as_struct().map(|of| &of.fields);
            let mut entries: Vec<(&String, &Value)> = fields.iter().collect();
            entries.sort_by_key(|(name, _)| of.and_then(|of| of.get(name.as_str())).map_or(0, |field| field.order));
            let entry = |(name, value): (&String, &Value)| {
                let value = node.field(name).map_or_else(|| go_json(value), |inner| print(inner, value));
                format!("{}:{value}", go_json(&Value::from(name.as_str())))
            };
            format!("{{{}}}", entries.into_iter().map(entry).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let item = |item| node.items().map_or_else(|| go_json(item), |inner| print(inner, item));
            format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(","))
        }
        other => go_json(other),
    }
}

struct Reader<'u> {
    unknown: &'u mut Vec<String>,
    /// The path in Go's errors: field names without indexes and map keys.
    fields: Vec<String>,
    /// The path in warnings about unknown fields.
    warning_path: String,
}

impl Reader<'_> {
    fn read(&mut self, node: Node<'_>, value: Value) -> Result<Value, Error> {
        if value.is_null() {
            return Ok(zero(node));
        }
        match (&node.get().shape, value) {
            (Shape::Any, value) => Ok(value),
            (Shape::Open(open), value @ Value::Object(_)) => self.read(node.at(open.object), value),
            (Shape::Open(open), Value::Array(items)) => {
                let of = open.numbered.iter().find_map(|(_, sort)| node.at(*sort).items()).map(Node::id);
                self.list(of, node, items)
            }
            (Shape::Open(_), value) => Ok(value),
            (Shape::Boolean, value @ Value::Bool(_)) => Ok(value),
            (Shape::Integer(bits), Value::Number(n)) => self.integer(node, *bits, n),
            (Shape::Number, value @ Value::Number(_)) => Ok(value),
            (Shape::IntOrString, Value::Number(n)) => self.integer(node, 32, n),
            (Shape::IntOrString, value @ Value::String(_)) => Ok(value),
            (Shape::Text(Text::Quantity), Value::Number(n)) => quantity(&n.to_string()),
            (Shape::Text(text), Value::String(s)) => read_text(*text, s),
            (Shape::Text(Text::Bytes), Value::Array(items)) => self.bytes(&items),
            (Shape::List(list), Value::Array(items)) => self.list(list.items, node, items),
            (Shape::Map(map), Value::Object(entries)) => {
                let length = self.warning_path.len();
                let mut out = Map::new();
                for (key, value) in entries {
                    self.push(&key);
                    let read = match map.values {
                        Some(values) => self.read(node.at(values), value)?,
                        None => value,
                    };
                    self.warning_path.truncate(length);
                    out.insert(key, read);
                }
                Ok(Value::Object(out))
            }
            (Shape::Struct(fields), Value::Object(entries)) => self.fields(node, fields, entries),
            (_, value) => Err(self.mismatch(node, &json_type(&value))),
        }
    }

    fn list(&mut self, items_schema: Option<Id>, node: Node<'_>, items: Vec<Value>) -> Result<Value, Error> {
        let Some(schema) = items_schema else { return Ok(Value::Array(items)) };
        let length = self.warning_path.len();
        let mut out = Vec::with_capacity(items.len());
        for (i, item) in items.into_iter().enumerate() {
            self.warning_path += &format!("[{i}]");
            out.push(self.read(node.at(schema), item)?);
            self.warning_path.truncate(length);
        }
        Ok(Value::Array(out))
    }

    fn fields(&mut self, node: Node<'_>, fields: &Struct, entries: Map<String, Value>) -> Result<Value, Error> {
        let mut out = Map::new();
        let length = self.warning_path.len();
        let outer_fields = self.fields.len();
        for (name, value) in entries {
            let Some(field) = fields.fields.get(&*name) else {
                if has_room(self.unknown) {
                    let dot = if self.warning_path.is_empty() { "" } else { "." };
                    self.unknown.push(format!("{}{dot}{name}", self.warning_path));
                }
                continue;
            };
            if value.is_null() {
                continue;
            }
            let inner = node.at(field.schema);
            self.push(&name);
            self.fields.push(name.clone());
            let read = self.read(inner, value).map_err(|e| e.inside(&fields.name))?;
            self.fields.truncate(outer_fields);
            self.warning_path.truncate(length);
            if field.presence == Presence::NotEmpty && is_zero(inner, &read) {
                continue;
            }
            out.insert(name, read);
        }
        for (name, field) in &fields.fields {
            let missing = match field.presence {
                Presence::Always => zero(node.at(field.schema)),
                Presence::OrNull => Value::Null,
                Presence::Given | Presence::NotEmpty => continue,
            };
            if !out.contains_key(&**name) {
                out.insert(name.to_string(), missing);
            }
        }
        Ok(Value::Object(out))
    }

    fn push(&mut self, name: &str) {
        if !self.warning_path.is_empty() {
            self.warning_path.push('.');
        }
        self.warning_path.push_str(name);
    }

    fn integer(&self, node: Node<'_>, bits: u8, n: Number) -> Result<Value, Error> {
        let fits = n.as_i64().is_some_and(|n| bits == 64 || i32::try_from(n).is_ok());
        if fits { Ok(Value::Number(n)) } else { Err(self.mismatch(node, &format!("number {n}"))) }
    }

    fn mismatch(&self, node: Node<'_>, got: &str) -> Error {
        let want = match node.get().shape {
            // These types have custom decoders, whose errors contain their underlying type.
            Shape::IntOrString => "int32",
            Shape::Text(Text::Time | Text::MicroTime | Text::Duration) => "string",
            _ => node.get().go.as_deref().unwrap_or("interface {}"),
        };
        self.cannot(got, want)
    }

    /// Decodes bytes from a list of numbers.
    fn bytes(&self, items: &[Value]) -> Result<Value, Error> {
        let byte = |item: &Value| match item {
            Value::Null => Ok(0),
            Value::Number(n) => {
                let byte = n.as_u64().and_then(|n| u8::try_from(n).ok());
                byte.ok_or_else(|| self.cannot(&format!("number {n}"), "uint8"))
            }
            other => Err(self.cannot(&json_type(other), "uint8")),
        };
        let bytes: Vec<u8> = items.iter().map(byte).collect::<Result<_, _>>()?;
        Ok(base64::engine::general_purpose::STANDARD.encode(bytes).into())
    }

    fn cannot(&self, got: &str, want: &str) -> Error {
        if self.fields.is_empty() {
            return Error(format!("json: cannot unmarshal {got} into Go value of type {want}"));
        }
        Error(format!(
            "json: cannot unmarshal {got} into Go struct field {STRUCT}.{} of type {want}",
            self.fields.join(".")
        ))
    }
}

/// Placeholder in an error for the name of the innermost struct, which the decoder of that struct replaces.
const STRUCT: &str = "\u{0}";

impl Error {
    fn inside(self, name: &str) -> Self {
        Self(self.0.replace(STRUCT, name))
    }
}

/// Returns the Go type of a value, as in messages of kube-apiserver.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

pub(super) fn json_type(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(_) => "array".into(),
        Value::Object(_) => "object".into(),
    }
}

fn quantity(text: &str) -> Result<Value, Error> {
    text.trim().parse::<Quantity>().map(|q| Value::String(q.to_string())).map_err(|e| Error(e.to_string()))
}

fn read_text(text: Text, s: String) -> Result<Value, Error> {
    match text {
        Text::Plain => Ok(Value::String(s)),
        Text::Quantity => quantity(&s),
        Text::Bytes => match base64_error(&s) {
            Some(at) => Err(Error(format!("illegal base64 data at input byte {at}"))),
            None => Ok(Value::String(s)),
        },
        Text::Duration => time::parse_duration(&s)
            .map(|nanos| Value::String(time::format_duration(nanos)))
            .map_err(|error| Error(error.to_string())),
        Text::Time => time::parse_rfc3339(&s)
            .map(|t| Value::String(time::rfc3339(t)))
            .ok_or_else(|| time_error(&s, "2006-01-02T15:04:05Z07:00")),
        Text::MicroTime => {
            let layout = "2006-01-02T15:04:05.000000Z07:00";
            let micro =
                s.get(19..20) == Some(".") && s.get(20..26).is_some_and(|f| f.bytes().all(|b| b.is_ascii_digit()));
            let exact = micro && s.as_bytes().get(26).is_some_and(|b| !b.is_ascii_digit());
            let parsed = time::parse_rfc3339(&s).filter(|_| exact);
            parsed.map(|t| Value::String(time::rfc3339_micro(t))).ok_or_else(|| time_error(&s, layout))
        }
    }
}

/// Returns the error of Go's `time.Parse` for a layout.
fn time_error(text: &str, layout: &str) -> Error {
    let quoted = |t: &str| flyball_core::field::go_quote(t);
    // Go parses both from the left, and quotes the remaining parts at the first mismatch.
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = shape
        .iter()
        .zip(text.as_bytes())
        .take_while(|(want, got)| if **want == b'd' { got.is_ascii_digit() } else { want == got })
        .count();
    let (value, element) = if fits < shape.len() {
        // Elements of the layout, and their positions in the value.
        let elements = [
            (0, "2006"),
            (4, "-"),
            (5, "01"),
            (7, "-"),
            (8, "02"),
            (10, "T"),
            (11, "15"),
            (13, ":"),
            (14, "04"),
            (16, ":"),
            (17, "05"),
        ];
        let (at, element) = elements.iter().rev().find(|(at, _)| *at <= fits).expect("the first begins at 0");
        (text.get(*at..).unwrap_or(""), *element)
    } else if layout.contains(".000000") {
        let digits = text[19..].strip_prefix('.').map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        match digits {
            Some(6) => (&text[26..], "Z07:00"),
            Some(n) if n > 6 => (&text[26..], "Z07:00"),
            _ => (&text[19..], ".000000"),
        }
    } else {
        (text[19..].trim_start_matches(|c: char| c == '.' || c.is_ascii_digit()), "Z07:00")
    };
    Error(format!(
        "parsing time {} as {}: cannot parse {} as {}",
        quoted(text),
        quoted(layout),
        quoted(value),
        quoted(element)
    ))
}

/// Returns the position of the first base64 error, if any.
pub(super) fn base64_error(s: &str) -> Option<usize> {
    let mut count = 0;
    let mut padding = 0;
    for (at, b) in s.bytes().enumerate() {
        match b {
            b'\r' | b'\n' => {}
            b'=' if count % 4 >= 2 && padding < 4 - count % 4 => padding += 1,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => count += 1,
            _ => return Some(at),
        }
    }
    ((count + padding) % 4 != 0).then(|| s.len().saturating_sub((count + padding) % 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::Library;
    use serde_json::json;

    const TYPES: &str = "package core/v1\n\nkind Thing\n  metadata meta.ObjectMeta\n  spec ThingSpec\n  rules! []string\nstruct ThingSpec\n  items []Item\n  \
                         replicas *int32\n  paused bool\n  limits {}Quantity\n  at Time\n  port IntOrString\n  ref! *Item\n  data {}bytes\n  wait *Duration\n\
                         struct Item\n  name! string\n  size int32\n";

    fn read(value: Value) -> (Result<Value, String>, Vec<String>) {
        let mut unknown = Vec::new();
        let library = Library::read(&[TYPES]);
        let result = decode(library.get("core/v1", "Thing").unwrap().node(), value, &mut unknown);
        (result.map_err(|e| e.to_string()), unknown)
    }

    #[test]
    fn zero_values_are_omitted_unless_always_written() {
        let (thing, unknown) = read(
            json!({"metadata": {"name": "a", "labels": {}}, "spec": {"paused": false, "replicas": 0, "items": [{}, null]}}),
        );
        let spec = json!({"replicas": 0, "items": [{"name": ""}, {"name": ""}], "at": null, "ref": null});
        assert_eq!(thing.unwrap(), json!({"metadata": {"name": "a"}, "spec": spec, "rules": null}));
        assert_eq!(unknown, Vec::<String>::new());
    }

    #[test]
    fn fields_are_printed_in_struct_order() {
        let library = Library::read(&[TYPES]);
        let thing = json!({"spec": {"at": null, "items": [{"size": 1, "name": "a"}], "paused": true}, "metadata": {"name": "a"}, "rules": [], "kind": "Thing"});
        let printed = print(library.get("core/v1", "Thing").unwrap().node(), &thing);
        let expected = r#"{"kind":"Thing","metadata":{"name":"a"},"spec":{"items":[{"name":"a","size":1}],"paused":true,"at":null},"rules":[]}"#;
        assert_eq!(printed, expected);
    }

    #[test]
    fn values_are_canonicalized() {
        let (thing, _) = read(
            json!({"spec": {"limits": {"cpu": "1000m", "memory": 1024}, "at": "2026-01-01T02:00:00+02:00", "wait": "90s"}}),
        );
        let spec = &thing.unwrap()["spec"];
        assert_eq!(spec["limits"], json!({"cpu": "1", "memory": "1024"}));
        assert_eq!(spec["at"], "2026-01-01T00:00:00Z");
        assert_eq!(spec["wait"], "1m30s");
    }

    #[test]
    fn unknown_fields_are_dropped_and_reported() {
        let (thing, unknown) = read(json!({"foo": 1, "spec": {"items": [{"name": "a", "x": 1}], "Paused": true}}));
        assert_eq!(thing.unwrap()["spec"]["items"], json!([{"name": "a"}]));
        assert_eq!(unknown, ["foo", "spec.Paused", "spec.items[0].x"]);
    }

    #[test]
    fn wrong_types_are_rejected_with_gos_messages() {
        let rejected = |value| read(value).0.unwrap_err();
        assert_eq!(
            rejected(json!({"spec": {"items": {}}})),
            "json: cannot unmarshal object into Go struct field ThingSpec.spec.items of type []v1.Item"
        );
        assert_eq!(
            rejected(json!({"spec": {"items": [{"size": "x"}]}})),
            "json: cannot unmarshal string into Go struct field Item.spec.items.size of type int32"
        );
        assert_eq!(
            rejected(json!({"spec": {"replicas": 1.5}})),
            "json: cannot unmarshal number 1.5 into Go struct field ThingSpec.spec.replicas of type int32"
        );
        assert_eq!(
            rejected(json!({"metadata": {"labels": {"a": true}}})),
            "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string"
        );
        assert_eq!(
            rejected(json!({"metadata": "x"})),
            "json: cannot unmarshal string into Go struct field Thing.metadata of type v1.ObjectMeta"
        );
        assert_eq!(rejected(json!([])), "json: cannot unmarshal array into Go value of type v1.Thing");
        assert_eq!(rejected(json!({"spec": {"data": {"a": "%"}}})), "illegal base64 data at input byte 0");
        assert_eq!(
            rejected(json!({"spec": {"at": "tomorrow"}})),
            r#"parsing time "tomorrow" as "2006-01-02T15:04:05Z07:00": cannot parse "tomorrow" as "2006""#
        );
    }
}
