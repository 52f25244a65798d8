//! Embedded objects: `x-kubernetes-embedded-resource`.
//!
//! See <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#rawextension>.

use flyball_core::GroupVersion;
use flyball_core::field::{FieldError, Path};
use flyball_core::metadata::validate_labels;
use flyball_core::names;
use flyball_schema::schema::{Node, Shape};
use serde_json::{Map, Value};

/// Validates embedded objects: each has a version, a kind and metadata.
pub(crate) fn validate_embedded(node: Node<'_>, value: &Value, path: &Path<'_>, root: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match value {
        Value::Object(fields) => {
            if node.embedded && !root {
                errors.extend(validate_as_object(fields, path));
            }
            let map = matches!(node.get().shape, Shape::Map(_));
            for (name, value) in fields {
                if (node.embedded || root) && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let Some(inner) = node.field(name) else { continue };
                let path = if map { path.key(name) } else { path.field(name) };
                errors.extend(validate_embedded(inner, value, &path, false));
            }
        }
        Value::Array(items) => {
            let Some(inner) = node.items() else { return errors };
            for (i, item) in items.iter().enumerate() {
                errors.extend(validate_embedded(inner, item, &path.index(i), false));
            }
        }
        _ => {}
    }
    errors
}

fn validate_as_object(fields: &Map<String, Value>, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    match text("apiVersion") {
        "" => errors.push(FieldError::required(path.field("apiVersion"), "")),
        version if GroupVersion::parse(version).is_none() => {
            let detail = format!("unexpected GroupVersion string: {version}");
            errors.push(FieldError::invalid(path.field("apiVersion"), version, detail));
        }
        _ => {}
    }
    match text("kind") {
        "" => errors.push(FieldError::required(path.field("kind"), "")),
        kind => {
            let wrong = names::dns_1035_label(&kind.to_lowercase()).into_iter();
            let detail = |why| format!("may have mixed case, but should otherwise match: {why}");
            errors.extend(wrong.map(|why| FieldError::invalid(path.field("kind"), kind, detail(why))));
        }
    }
    let metadata = path.field("metadata");
    let labels = fields.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
    errors.extend(validate_labels(labels, &metadata.field("labels")));
    errors
}
