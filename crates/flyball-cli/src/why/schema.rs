//! The schema of a kind: whether it has a field.

use super::fields::Segment;
use super::page::Object;
use http::Request;
use kube::Client;
use serde_json::Value;

/// Limit of references between schemas at one field.
const MAX_REFERENCES: usize = 16;

/// Returns true if the cluster publishes a schema of the kind that has no such field.
pub(super) async fn is_unknown(client: &Client, object: &Object, path: &[Segment]) -> bool {
    let root = if object.group.is_empty() { "api" } else { "apis" };
    let Ok(request) = Request::get(format!("/openapi/v3/{root}/{}", object.api_version())).body(Vec::new()) else {
        return false;
    };
    let document: Value = client.request(request).await.unwrap_or_default();
    let schemas = &document["components"]["schemas"];
    let is_kind = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
        let mut kinds = kinds.map(|kind| [&kind["group"], &kind["version"], &kind["kind"]]);
        kinds.any(|kind| kind == [&*object.group, &*object.version, &*object.kind])
    };
    let schema = schemas.as_object().into_iter().flat_map(|schemas| schemas.values()).find(is_kind);
    schema.is_some_and(|schema| !has(schemas, schema, path))
}

/// Returns true if a schema permits a field. A schema without properties permits all.
fn has(schemas: &Value, schema: &Value, path: &[Segment]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let Some(schema) = resolved(schemas, schema) else { return true };
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return true;
    }
    match (first, schema["type"].as_str()) {
        (Segment::Field(name), Some("object") | None) => match &schema["properties"][name.as_str()] {
            Value::Null => match &schema["additionalProperties"] {
                Value::Null => !schema["properties"].is_object(),
                Value::Bool(is_open) => *is_open,
                values => has(schemas, values, rest),
            },
            field => has(schemas, field, rest),
        },
        (Segment::Named(..) | Segment::Index(_), Some("array")) => has(schemas, &schema["items"], rest),
        (_, None) => true,
        _ => false,
    }
}

/// Follows the references of a schema; `None` if it has no single meaning.
fn resolved<'a>(schemas: &'a Value, mut schema: &'a Value) -> Option<&'a Value> {
    for _ in 0..MAX_REFERENCES {
        let reference = match schema["allOf"].as_array().map(Vec::as_slice) {
            Some([only]) => &only["$ref"],
            Some(_) => return None,
            None => &schema["$ref"],
        };
        let Some(reference) = reference.as_str() else { return Some(schema) };
        schema = schemas.get(reference.rsplit('/').next()?)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::fields::parse;
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_those_of_the_schema() {
        let schemas = json!({
            "Site": {"type": "object", "properties": {
                "metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}]},
                "spec": {"type": "object", "properties": {
                    "size": {"type": "integer"},
                    "ports": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}}}},
                    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "values": {"type": "object"},
                }},
            }},
            "Meta": {"type": "object", "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
        });
        let check = |path: &str, expected: bool| {
            assert_eq!(has(&schemas, &schemas["Site"], &parse(path).unwrap()), expected, "{path}");
        };
        for path in [
            "spec",
            "spec.size",
            "spec.ports[0].port",
            "spec.ports[name=web].port",
            "spec.open.a.b",
            "spec.values.a",
            "metadata.labels[a/b]",
        ] {
            check(path, true);
        }
        for path in ["spec.bogus", "bogus", "spec.size.a", "spec.ports.port", "spec.ports[0].x", "metadata.bogus"] {
            check(path, false);
        }
    }
}
