//! Changes of existing custom resources by another schema: fields that are dropped, and values that are rejected.

use flyball_core::Path;
use flyball_schema::schema::Root;
use flyball_schema::{openapi, prune, rules, validate};
use serde_json::{Value, json};

/// A change of a custom resource by a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaChange {
    /// The field, such as `spec.size`.
    pub field: String,
    /// The change. It may contain values.
    pub why: String,
}

/// Returns the root of a schema in a CRD, as its `openAPIV3Schema`.
pub fn schema_of(schema: &Value) -> Root {
    openapi::read(Some(schema))
}

/// Returns the fields of a custom resource that a schema drops or rejects. `version` is that of the schema.
pub fn schema_changes(schema: &Root, object: &Value, version: &str) -> Vec<SchemaChange> {
    let Some(mut fields) = object.as_object().cloned() else { return Vec::new() };
    let change = |field: &str, why: String| SchemaChange { field: field.to_owned(), why };
    let mut changes = Vec::new();
    match prune::prune(schema.node(), &mut fields) {
        Ok(lost) => {
            let lost = lost.into_iter().filter(|field| !field.starts_with("metadata"));
            changes
                .extend(lost.map(|field| change(&field, format!("would be lost: {version} no longer has this field"))));
        }
        Err(error) => changes.push(change("metadata", error.to_string())),
    }
    let mut value = Value::Object(fields);
    if prune::default(schema.node(), &mut value).is_err() {
        changes.push(change("spec", "would be rejected: its defaults take too much memory".into()));
    }
    let mut errors = validate::validate(schema.node(), &value, None, "");
    if errors.is_empty() {
        errors.extend(validate::validate_lists(schema.node(), &value, &Path::ROOT));
        let mut seen = value.clone();
        // Rules have access to the name of an object only, not to other metadata.
        seen["metadata"] = json!({"name": object["metadata"]["name"]});
        errors.extend(rules::validate(schema.node(), &seen, None, false, &Path::ROOT).errors);
    }
    changes.extend(errors.into_iter().map(|error| {
        let why = format!("would become invalid: {}", error.body());
        SchemaChange { field: error.field, why }
    }));
    changes
}

/// Returns the part of the path of a field that a schema declares: keys of maps and list indexes are data of users.
pub(super) fn declared_path(field: &str, schema: &Value) -> String {
    let (mut path, mut node) = (String::new(), schema);
    for segment in field.split('.') {
        let name = segment.split('[').next().unwrap_or_default();
        node = &node["properties"][name];
        if node.is_null() {
            break;
        }
        path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for _ in segment.matches('[') {
            path += "[]";
            node = &node["items"];
        }
    }
    if path.is_empty() { "a field".to_owned() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_and_rejected_fields_are_changes() {
        let schema = schema_of(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "level": {"type": "integer"},
        }}}}));
        let object = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec});
        assert_eq!(schema_changes(&schema, &object(json!({"level": 1})), "v1"), []);
        let found = schema_changes(&schema, &object(json!({"level": "high", "color": "red"})), "v1");
        let fields: Vec<&str> = found.iter().map(|change| change.field.as_str()).collect();
        assert_eq!(fields, ["spec.color", "spec.level"]);
        assert_eq!(found[0].why, "would be lost: v1 no longer has this field");
        assert!(found[1].why.starts_with("would become invalid: "), "{found:?}");
    }

    #[test]
    fn declared_path_contains_no_data() {
        let schema = json!({"properties": {"spec": {"properties": {
            "color": {"type": "string"},
            "texts": {"additionalProperties": {"properties": {"x": {}}}},
            "parts": {"items": {"properties": {"size": {}}}},
        }}}});
        let check = |field: &str, expected: &str| assert_eq!(declared_path(field, &schema), expected);
        check("spec.color", "spec.color");
        check("spec.parts[3].size", "spec.parts[].size");
        check("spec.texts.secret.x", "spec.texts");
        check("spec.texts[secret].x", "spec.texts[]");
        check("other", "a field");
    }
}
