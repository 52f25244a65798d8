//! Types of the variables in admission: the request, its namespace, and objects according to their published schemas.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>.

use super::typing::{Schema, TYPE_NAME, Type};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

static REQUEST: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let kind = named("GroupVersionKind", json!({"group": text, "version": text, "kind": text}));
    let resource = named("GroupVersionResource", json!({"group": text, "version": text, "resource": text}));
    let texts = json!({"type": "array", "items": text});
    let extra = json!({"type": "object", "additionalProperties": texts});
    let user = named("UserInfo", json!({"username": text, "uid": text, "groups": texts, "extra": extra}));
    named(
        "AdmissionRequest",
        json!({
            "kind": kind, "resource": resource, "subResource": text,
            "requestKind": kind, "requestResource": resource, "requestSubResource": text,
            "name": text, "namespace": text, "operation": text, "userInfo": user, "dryRun": {"type": "boolean"}, "options": {},
        }),
    )
});

static NAMESPACE: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let (texts, pairs) =
        (json!({"type": "array", "items": text}), json!({"type": "object", "additionalProperties": text}));
    let (time, number) = (json!({"type": "string", "format": "date-time"}), json!({"type": "integer"}));
    let metadata = json!({
        "name": text, "generateName": text, "namespace": text, "labels": pairs, "annotations": pairs, "UID": text,
        "creationTimestamp": time, "deletionGracePeriodSeconds": number, "deletionTimestamp": time,
        "generation": number, "resourceVersion": text, "finalizers": texts,
    });
    let condition = json!({"status": text, "type": text, "lastTransitionTime": time, "message": text, "reason": text});
    let conditions = json!({"type": "array", "items": named("NamespaceCondition", condition)});
    named(
        "Namespace",
        json!({
            "metadata": named("NamespaceMetadata", metadata),
            "spec": named("NamespaceSpec", json!({"finalizers": texts})),
            "status": named("NamespaceStatus", json!({"phase": text, "conditions": conditions})),
        }),
    )
});

fn fields(properties: Value) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), properties);
    schema
}

/// Describes a named type with these fields.
fn named(name: &str, properties: Value) -> Map<String, Value> {
    let mut schema = fields(properties);
    schema.insert(TYPE_NAME.into(), format!("kubernetes.{name}").into());
    schema
}

/// Returns the type of `request`.
pub fn request() -> Type<'static> {
    Type::Object { schema: &REQUEST, whole: false }
}

/// Returns the type of `namespaceObject`.
pub fn namespace() -> Type<'static> {
    Type::Object { schema: &NAMESPACE, whole: false }
}

/// Parses the schema of a kind from an OpenAPI v3 document and resolves its references; `None` if the document has no
/// such kind.
///
/// Values without a type, such as quantities, are omitted, as are lists and maps of them: expressions have no access to
/// them. A recursive schema ends in an object without fields.
pub fn published(document: &Value, group: &str, version: &str, kind: &str) -> Option<Map<String, Value>> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let gvk = json!({"group": group, "version": version, "kind": kind});
    let names_it =
        |schema: &Value| schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|gvks| gvks.contains(&gvk));
    let (name, schema) = schemas.iter().find(|(_, schema)| names_it(schema))?;
    PublishedSchemas { schemas, within: vec![name] }.visible(schema)
}

/// Returns the type of an object of a [published] schema.
pub fn object(schema: &Map<String, Value>) -> Type<'_> {
    let described = schema.get("properties").is_some_and(|own| own.pointer("/metadata/properties/name").is_some());
    Type::of(schema, !described)
}

struct PublishedSchemas<'d> {
    schemas: &'d Map<String, Value>,
    /// The names of the schemas being parsed, outermost first.
    within: Vec<&'d str>,
}

impl<'d> PublishedSchemas<'d> {
    /// Returns the part of a schema that is visible to expressions, if any.
    fn visible(&mut self, schema: &'d Value) -> Option<Schema> {
        if let Some(name) = referred(schema) {
            if self.within.contains(&name) {
                return Some(fields(json!({})));
            }
            let schema = self.schemas.get(name)?;
            self.within.push(name);
            let visible = self.visible(schema);
            self.within.pop();
            return visible;
        }
        let mut visible = Schema::new();
        if schema["format"] == "int-or-string" || schema["x-kubernetes-int-or-string"] == true {
            visible.insert("x-kubernetes-int-or-string".into(), true.into());
            return Some(visible);
        }
        let ty = schema["type"].as_str()?;
        visible.insert("type".into(), ty.into());
        match ty {
            "array" => drop(visible.insert("items".into(), self.visible(&schema["items"])?.into())),
            "object" if schema["additionalProperties"].is_object() => {
                let values = self.visible(&schema["additionalProperties"])?;
                visible.insert("additionalProperties".into(), values.into());
            }
            "object" => {
                let properties = schema["properties"].as_object().into_iter().flatten();
                let properties: Map<String, Value> = properties
                    .filter_map(|(name, schema)| Some((name.clone(), self.visible(schema)?.into())))
                    .collect();
                visible.insert("properties".into(), properties.into());
            }
            _ => {}
        }
        for mark in ["format", "x-kubernetes-embedded-resource"] {
            if let Some(value) = schema.get(mark) {
                visible.insert(mark.into(), value.clone());
            }
        }
        Some(visible)
    }
}

/// Returns the name of the referenced schema; a description or a default may accompany the reference.
fn referred(schema: &Value) -> Option<&str> {
    match schema["$ref"].as_str() {
        Some(path) => path.rsplit('/').next(),
        None => schema["allOf"].as_array()?.iter().find_map(referred),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_among;
    use super::*;

    #[test]
    fn expressions_are_checked_against_published_schemas() {
        let document = json!({"components": {"schemas": {
            "own.Widget": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}],
                "properties": {
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}},
                    "size": {"type": "integer"},
                    "port": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
                    "amount": {"oneOf": [{"type": "string"}, {"type": "number"}]},
                    "amounts": {"type": "object", "additionalProperties": {"oneOf": []}},
                    "inner": {"$ref": "#/components/schemas/own.Widget"},
                },
            },
            "Meta": {"type": "object", "properties": {"name": {"type": "string"}, "labels": {
                "type": "object", "additionalProperties": {"type": "string"},
            }}},
        }}});
        assert_eq!(published(&document, "example.com", "v1", "Other"), None);
        let schema = published(&document, "example.com", "v1", "Widget").unwrap();
        let check = |text: &str| check_among(text, &[("object", object(&schema))]).err();
        for fine in ["object.size > 1", "object.port == 'a' || object.port == 1", "object.metadata.labels.a == 'b'"] {
            assert_eq!(check(fine), None, "{fine}");
        }
        for (text, field) in [
            ("object.nope == 1", "nope"),
            ("object.amount == 1", "amount"),
            ("object.amounts.x == 1", "amounts"),
            ("object.inner.size == 1", "size"),
            ("object.metadata.uid == ''", "uid"),
        ] {
            let reason = check(text).unwrap();
            assert!(reason.contains(&format!("undefined field '{field}'")), "{text}: {reason}");
        }
    }
}
