//! The schema of a spec: from the default values of a chart or role, or from the schema of the values.
//!
//! The result is [structural](https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema).
//! It restricts no value that the source permits.

mod json;

use super::comments::Comments;
use serde_json::{Map, Value, json};

/// Fields nested deeper may have any content.
const MAX_DEPTH: usize = 32;
/// Further fields may have any content.
const MAX_FIELDS: usize = 5_000;
/// Larger numbers are not exact as floating-point numbers.
const MAX_INTEGER: f64 = 9_007_199_254_740_992.0;

/// The values of a chart or role, which a spec overrides.
#[derive(Debug)]
pub(crate) struct DefaultValues {
    /// The text of the file.
    pub(crate) text: String,
    pub(crate) values: Map<String, Value>,
    /// `values.schema.json`, if the chart has one.
    pub(crate) schema: Option<Value>,
    /// The file lists all values.
    pub(crate) is_complete: bool,
}

impl DefaultValues {
    /// Returns the schema of a spec.
    pub(crate) fn spec_schema(&self) -> Value {
        let comments = Comments::of(&self.text);
        let schema = match &self.schema {
            Some(schema) => json::convert(schema, &self.values, &comments),
            None => {
                let mut source = Values { comments: &comments, is_complete: self.is_complete, fields: MAX_FIELDS };
                source.object(&self.values, &mut Vec::new())
            }
        };
        match schema["type"] == "object" {
            true => schema,
            false => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        }
    }
}

/// Returns the schema of any content.
fn any() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

/// Derives schemas from default values.
struct Values<'c> {
    comments: &'c Comments,
    is_complete: bool,
    fields: usize,
}

impl Values<'_> {
    fn object(&mut self, values: &Map<String, Value>, path: &mut Vec<String>) -> Value {
        let mut properties = Map::new();
        let mut is_complete = self.is_complete && !values.is_empty();
        if path.len() < MAX_DEPTH {
            for (name, value) in values {
                if self.fields == 0 {
                    is_complete = false;
                    break;
                }
                self.fields -= 1;
                path.push(name.clone());
                properties.insert(name.clone(), self.field(value, path));
                path.pop();
            }
        } else {
            is_complete = false;
        }
        let mut schema = json!({"type": "object"});
        if !properties.is_empty() {
            schema["properties"] = properties.into();
        }
        if !is_complete {
            schema["x-kubernetes-preserve-unknown-fields"] = true.into();
        }
        schema
    }

    fn field(&mut self, value: &Value, path: &mut Vec<String>) -> Value {
        let mut schema = match value {
            Value::Null => json!({"nullable": true, "x-kubernetes-preserve-unknown-fields": true}),
            Value::Object(values) => self.object(values, path),
            Value::Array(items) => {
                let kinds: Vec<Option<&str>> = items.iter().map(scalar).collect();
                let item = match &kinds[..] {
                    [Some(first), others @ ..] if others.iter().all(|kind| *kind == Some(first)) => {
                        json!({"type": first})
                    }
                    _ => any(),
                };
                json!({"type": "array", "items": item})
            }
            value => scalar(value).map_or_else(any, |kind| json!({"type": kind})),
        };
        if let Some(description) = self.comments.at(path) {
            schema["description"] = description.into();
        }
        schema
    }
}

/// Returns the type of a scalar.
fn scalar(value: &Value) -> Option<&'static str> {
    match value {
        Value::Bool(_) => Some("boolean"),
        Value::String(_) => Some("string"),
        Value::Number(number) => {
            let is_integer = number.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() < MAX_INTEGER);
            Some(if is_integer { "integer" } else { "number" })
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_defaults() {
        let values = json!({"on": true, "size": 3.0, "share": 0.5, "tag": "", "none": null, "labels": {},
            "args": ["a"], "more": [], "image": {"name": "x"}});
        let text = "# Number of pods.\nsize: 3\n";
        let of = |is_complete| {
            let values = values.as_object().cloned().unwrap_or_default();
            DefaultValues { text: text.into(), values, schema: None, is_complete }.spec_schema()
        };
        let any = json!({"x-kubernetes-preserve-unknown-fields": true});
        let closed = json!({"type": "object", "properties": {
            "on": {"type": "boolean"}, "size": {"type": "integer", "description": "Number of pods."},
            "share": {"type": "number"}, "tag": {"type": "string"},
            "none": {"nullable": true, "x-kubernetes-preserve-unknown-fields": true},
            "labels": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "args": {"type": "array", "items": {"type": "string"}}, "more": {"type": "array", "items": any},
            "image": {"type": "object", "properties": {"name": {"type": "string"}}},
        }});
        assert_eq!(of(true), closed);
        let mut open = closed;
        open["x-kubernetes-preserve-unknown-fields"] = true.into();
        open["properties"]["image"]["x-kubernetes-preserve-unknown-fields"] = true.into();
        assert_eq!(of(false), open);
    }

    #[test]
    fn deep_and_many_values_are_open() {
        let deep = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
        let many: Map<String, Value> = (0..=MAX_FIELDS).map(|number| (format!("f{number}"), json!(1))).collect();
        for values in [deep.as_object().cloned().unwrap_or_default(), many] {
            let values = DefaultValues { text: String::new(), values, schema: None, is_complete: true };
            let text = values.spec_schema().to_string();
            assert!(text.contains("preserve-unknown-fields\":true"));
            assert!(text.matches("\"type\"").count() <= 1 + MAX_FIELDS);
        }
    }
}
