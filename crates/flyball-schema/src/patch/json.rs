//! JSON patch (RFC 6902), with the liberties that the real server takes.
//!
//! They are: a replace of a missing field adds it, a negative index counts from the end, a test for null holds where
//! there is nothing, and an add without a value adds null.

use super::Error;
use serde_json::{Map, Value};

/// The most operations in one patch.
pub const MAX_OPERATIONS: usize = 10_000;

/// Applies the operations of a patch one after the other; on failure the document is half patched and must be dropped.
pub fn apply(document: &mut Value, operations: &[Value]) -> Result<(), Error> {
    operations.iter().try_for_each(|operation| step(document, operation))
}

fn step(document: &mut Value, operation: &Value) -> Result<(), Error> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let path = Pointer::parse(text("path").ok_or_else(|| Error("an operation has no path".into()))?)?;
    let from = || Pointer::parse(text("from").ok_or_else(|| Error("an operation has no from".into()))?);
    let value = || operation.get("value").cloned().unwrap_or_default();
    match text("op") {
        Some("add") => path.add(document, value()),
        Some("remove") => path.remove(document, "remove", path.text).map(drop),
        Some("replace") => path.replace(document, value()),
        Some("move") => {
            let from = from()?;
            let moved = from.remove(document, "move", text("path").unwrap_or_default())?;
            path.add(document, moved)
        }
        Some("copy") => {
            let copied = from()?.get(document).cloned().ok_or_else(|| {
                let from = text("from").unwrap_or_default();
                Error(format!("copy operation does not apply: doc is missing from path: {from}: missing value"))
            })?;
            path.add(document, copied)
        }
        Some("test") => match path.get(document) {
            Some(found) if *found == value() => Ok(()),
            None if value().is_null() => Ok(()),
            _ => Err(Error(format!("testing value {} failed: test failed", path.text))),
        },
        other => Err(Error(format!("Unexpected kind: {}", other.unwrap_or("unknown")))),
    }
}

/// A JSON pointer (RFC 6901).
struct Pointer<'p> {
    text: &'p str,
    tokens: Vec<String>,
}

impl<'p> Pointer<'p> {
    fn parse(text: &'p str) -> Result<Self, Error> {
        let mut parts = text.split('/');
        if parts.next() != Some("") {
            return Err(Error(format!("path {text} does not begin with a slash")));
        }
        let tokens = parts.map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
        Ok(Self { text, tokens })
    }

    /// Says that what would hold the place is not there.
    fn missing(&self, operation: &str) -> Error {
        let path = match operation {
            "add" | "remove" => format!("path: \"{}\"", self.text),
            "move" => format!("from path: {}", self.text),
            _ => format!("path: {}", self.text),
        };
        Error(format!("{operation} operation does not apply: doc is missing {path}: missing value"))
    }

    /// Says that a list has no such place.
    fn outside(&self, operation: &str, token: &str) -> Error {
        let why = match token.parse::<i64>() {
            Ok(at) => format!("Unable to access invalid index: {at}: invalid index referenced"),
            Err(_) => format!("strconv.Atoi: parsing {token:?}: invalid syntax"),
        };
        Error(format!("error in {operation} for path: '{}': {why}", self.text))
    }

    fn get<'d>(&self, document: &'d Value) -> Option<&'d Value> {
        self.tokens.iter().try_fold(document, |value, token| match value {
            Value::Object(fields) => fields.get(token),
            Value::Array(items) => items.get(index(token, items.len())?),
            _ => None,
        })
    }

    /// Finds what holds the last token.
    fn parent<'d>(&self, document: &'d mut Value, operation: &str) -> Result<(&'d mut Value, &str), Error> {
        let (last, before) =
            self.tokens.split_last().ok_or_else(|| Error("the whole document cannot be changed".into()))?;
        let parent = before.iter().try_fold(document, |value, token| match value {
            Value::Object(fields) => fields.get_mut(token),
            Value::Array(items) => index(token, items.len()).and_then(|at| items.get_mut(at)),
            _ => None,
        });
        Ok((parent.ok_or_else(|| self.missing(operation))?, last))
    }

    fn add(&self, document: &mut Value, value: Value) -> Result<(), Error> {
        let (parent, last) = self.parent(document, "add")?;
        match parent {
            Value::Object(fields) => put(fields, last, value),
            Value::Array(items) => {
                let length = items.len();
                // A negative index names the place behind the last item as -1, as it would be after the addition.
                let at = if last == "-" { Some(length) } else { index(last, length + 1) };
                items.insert(at.filter(|at| *at <= length).ok_or_else(|| self.outside("add", last))?, value);
            }
            _ => return Err(self.missing("add")),
        }
        Ok(())
    }

    fn replace(&self, document: &mut Value, value: Value) -> Result<(), Error> {
        let (parent, last) = self.parent(document, "replace")?;
        match parent {
            Value::Object(fields) => put(fields, last, value),
            Value::Array(items) => {
                let at = index(last, items.len()).filter(|at| *at < items.len());
                items[at.ok_or_else(|| self.outside("replace", last))?] = value;
            }
            _ => return Err(self.missing("replace")),
        }
        Ok(())
    }

    /// Takes a value away, for an operation that is about some path.
    fn remove(&self, document: &mut Value, operation: &str, about: &str) -> Result<Value, Error> {
        let (parent, last) = self.parent(document, operation)?;
        let none = format!(
            "error in {operation} for path: '{about}': Unable to remove nonexistent key: {last}: missing value"
        );
        let outside = self.outside(operation, last);
        match parent {
            Value::Object(fields) => fields.remove(last).ok_or(Error(none)),
            Value::Array(items) => {
                let at = index(last, items.len()).filter(|at| *at < items.len());
                at.map(|at| items.remove(at)).ok_or(outside)
            }
            _ => Err(self.missing(operation)),
        }
    }
}

fn put(fields: &mut Map<String, Value>, name: &str, value: Value) {
    fields.insert(name.to_owned(), value);
}

/// Reads an index into a list of so many items; a negative one counts from the end.
fn index(token: &str, length: usize) -> Option<usize> {
    match token.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok()?),
        None => token.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(document: Value, operations: Value) -> Result<Value, Error> {
        let mut document = document;
        apply(&mut document, operations.as_array().unwrap()).map(|()| document)
    }

    #[test]
    fn operations_do_what_the_rfc_says() {
        let cases = [
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
            (json!({"l": [1, 3]}), json!([{"op": "add", "path": "/l/1", "value": 2}]), json!({"l": [1, 2, 3]})),
            (json!({"l": [1]}), json!([{"op": "add", "path": "/l/-", "value": 2}]), json!({"l": [1, 2]})),
            (json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/a"}]), json!({"b": 2})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": 2}]), json!({"a": 2})),
            (json!({"a": {"x": 1}}), json!([{"op": "move", "from": "/a/x", "path": "/y"}]), json!({"a": {}, "y": 1})),
            (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"a": 1, "b": 1})),
            (
                json!({"a/b": 1, "c~d": 2}),
                json!([{"op": "test", "path": "/a~1b", "value": 1}, {"op": "test", "path": "/c~0d", "value": 2}]),
                json!({"a/b": 1, "c~d": 2}),
            ),
        ];
        for (document, operations, expected) in cases {
            assert_eq!(patched(document, operations.clone()), Ok(expected), "{operations}");
        }
    }

    #[test]
    fn the_liberties_of_the_real_server_are_taken() {
        assert_eq!(patched(json!({}), json!([{"op": "replace", "path": "/a", "value": 1}])), Ok(json!({"a": 1})));
        assert_eq!(patched(json!({"l": [1, 2]}), json!([{"op": "remove", "path": "/l/-1"}])), Ok(json!({"l": [1]})));
        assert_eq!(
            patched(json!({"l": [1, 2]}), json!([{"op": "add", "path": "/l/-1", "value": 3}])),
            Ok(json!({"l": [1, 2, 3]}))
        );
        assert!(patched(json!({}), json!([{"op": "test", "path": "/a", "value": null}])).is_ok());
        assert_eq!(patched(json!({}), json!([{"op": "add", "path": "/a"}])), Ok(json!({"a": null})));
    }

    #[test]
    fn failures_are_told() {
        for operation in [
            json!({"op": "remove", "path": "/none"}),
            json!({"op": "add", "path": "/none/x", "value": 1}),
            json!({"op": "append", "path": "/a", "value": 1}),
            json!({"op": "add", "path": "a", "value": 1}),
            json!({"op": "test", "path": "/a", "value": 2}),
            json!({"op": "move", "from": "/none", "path": "/b"}),
            json!({"op": "add", "path": "/l/9", "value": 1}),
            json!({"op": "replace", "path": "/l/5", "value": 1}),
            json!({"op": "remove", "path": "/l/-9"}),
            json!({"op": "add", "value": 1}),
            json!("x"),
        ] {
            assert!(patched(json!({"a": 1, "l": [1]}), json!([operation])).is_err(), "{operation}");
        }
    }
}
