//! The schema of a CRD, and its traversal.

use flyball_core::field::Path;
use serde_json::{Map, Value};

pub(super) type Schema = Map<String, Value>;

pub(super) fn text<'s>(schema: &'s Schema, field: &str) -> &'s str {
    schema.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn flag(schema: &Schema, field: &str) -> bool {
    schema.get(field).and_then(Value::as_bool).unwrap_or_default()
}

pub(super) fn has(schema: &Schema, field: &str) -> bool {
    schema.get(field).is_some_and(|value| !value.is_null())
}

/// The position of a schema in its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    Root,
    Field,
    Items,
    /// Inside `anyOf` and similar keywords, where only value constraints are allowed.
    Values,
}

/// Calls `visit` with each schema inside a schema.
pub(super) fn inner<'s>(schema: &'s Schema, path: &Path<'_>, visit: &mut dyn FnMut(&'s Schema, &Path<'_>, Position)) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let path = path.field("properties");
        for (name, schema) in properties {
            if let Some(schema) = schema.as_object() {
                visit(schema, &path.key(name), Position::Field);
            }
        }
    }
    for (field, place) in
        [("additionalProperties", Position::Field), ("items", Position::Items), ("not", Position::Values)]
    {
        if let Some(schema) = schema.get(field).and_then(Value::as_object) {
            visit(schema, &path.field(field), place);
        }
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        let path = path.field(field);
        for (i, schema) in schema.get(field).and_then(Value::as_array).into_iter().flatten().enumerate() {
            if let Some(schema) = schema.as_object() {
                visit(schema, &path.index(i), Position::Values);
            }
        }
    }
}
