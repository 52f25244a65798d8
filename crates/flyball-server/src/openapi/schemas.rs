//! Schemas of OpenAPI documents.

use crate::catalog::Resource;
use crate::kinds::library;
use flyball_core::GroupVersionKind;
use flyball_schema::schema::{Field, Id, ListKind, Node, Presence, Shape, Text};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The version of OpenAPI that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    pub(super) fn refer(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }

    /// Refers to another schema, with the prefix of the dialect.
    fn refer_with(self, name: &str, description: &str) -> Value {
        match self {
            Self::V2 => json!({"description": description, "$ref": self.refer(name)["$ref"]}),
            Self::V3 => json!({"description": description, "allOf": [self.refer(name)]}),
        }
    }
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The full names of the built-in types.
static NAMES: LazyLock<BTreeMap<Id, String>> = LazyLock::new(|| {
    let types = library().types().filter(|(_, node)| matches!(node.get().shape, Shape::Struct(_)));
    types.map(|(name, node)| (node.id(), full_name(name))).collect()
});

/// Returns the OpenAPI name of a type such as `core/v1.PodSpec`.
fn full_name(name: &str) -> String {
    let (package, name) = name.rsplit_once('.').unwrap_or(("", name));
    let (group, version) = package.split_once('/').unwrap_or((package, "v1"));
    let short = group.split('.').next().unwrap_or_default();
    match group {
        "meta" => format!("{META}.{name}"),
        "apiextensions.k8s.io" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{name}"),
        "apiregistration.k8s.io" => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}.{name}"),
        _ if group == "rbac.authorization.k8s.io" => format!("io.k8s.api.rbac.{version}.{name}"),
        _ => format!("io.k8s.api.{short}.{version}.{name}"),
    }
}

/// Schemas by name, including referenced ones.
pub(super) struct Definitions {
    dialect: Dialect,
    all: Map<String, Value>,
}

impl Definitions {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, all: Map::new() }
    }

    pub(super) fn finish(mut self) -> Map<String, Value> {
        self.add_named("DeleteOptions");
        self.add_named("Status");
        self.all.entry(format!("{META}.Patch")).or_insert_with(|| json!({"type": "object"}));
        self.all
    }

    /// Adds a type that all resources share.
    fn add_named(&mut self, name: &str) {
        if let Some(root) = library().get("meta/v1", name) {
            self.reference(root.node());
        }
    }

    /// Adds the schema of a resource and of its lists; returns its name.
    pub(super) fn add(&mut self, resource: &Resource) -> String {
        let kind = &resource.kind;
        let name = match resource.custom() {
            None => {
                self.reference(resource.schema.node());
                NAMES[&resource.schema.node().id()].clone()
            }
            Some(custom) => {
                self.add_named("ObjectMeta");
                let group: Vec<&str> = kind.group.rsplit('.').collect();
                let name = format!("{}.{}.{}", group.join("."), kind.version, kind.kind);
                let mut schema = match (&custom.openapi, self.dialect) {
                    (Some(schema), Dialect::V3) => self.custom(schema, true),
                    // Version 2 lacks keywords that CRDs may use.
                    (Some(schema), Dialect::V2) => self.custom(&plainer(schema), true),
                    (None, _) => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
                };
                self.complete(&mut schema, false);
                self.all.insert(name.clone(), schema);
                name
            }
        };
        self.tag(&name, kind);
        if resource.custom().is_some_and(|custom| custom.scale.is_some())
            && let Some(scale) = library().get("autoscaling/v1", "Scale")
        {
            self.reference(scale.node());
        }
        let list = GroupVersionKind { kind: resource.list_kind.as_str().into(), ..kind.clone() };
        let list_name =
            name.rsplit_once('.').map(|(prefix, _)| format!("{prefix}.{}", resource.list_kind)).unwrap_or_default();
        self.add_named("ListMeta");
        let metadata = self.dialect.refer_with(&format!("{META}.ListMeta"), "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds");
        let items = json!({
            "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", resource.plural),
            "type": "array", "items": self.dialect.refer(&name),
        });
        let list_schema = json!({
            "description": format!("{} is a list of {}", resource.list_kind, kind.kind),
            "type": "object", "required": ["items"],
            "properties": {"apiVersion": api_version(), "kind": kind_field(), "metadata": metadata, "items": items},
        });
        self.all.insert(list_name.clone(), list_schema);
        self.tag(&list_name, &list);
        let selectable = resource.custom().map(|custom| custom.selectable.as_slice()).unwrap_or_default();
        if !selectable.is_empty() {
            let path = |path: &String| json!({"fieldPath": path.trim_start_matches('.')});
            let paths: Value = selectable.iter().map(path).collect();
            for name in [&name, &list_name] {
                self.all[name.as_str()]["x-kubernetes-selectable-fields"] = paths.clone();
            }
        }
        name
    }

    /// Adds the kind of a schema.
    fn tag(&mut self, name: &str, kind: &GroupVersionKind) {
        let kind = json!({"group": &*kind.group, "version": &*kind.version, "kind": &*kind.kind});
        if let Some(schema) = self.all.get_mut(name).and_then(Value::as_object_mut) {
            let kinds = schema.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
            kinds
                .as_array_mut()
                .into_iter()
                .filter(|kinds| !kinds.contains(&kind))
                .for_each(|kinds| kinds.push(kind.clone()));
        }
    }

    /// Adds the fields of all objects to the schema of a custom resource.
    fn complete(&mut self, schema: &mut Value, embedded: bool) {
        let Some(schema) = schema.as_object_mut() else { return };
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            let metadata = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
            properties.insert("metadata".into(), self.dialect.refer_with(&format!("{META}.ObjectMeta"), metadata));
            properties.insert("apiVersion".into(), if embedded { embedded_field("apiVersion") } else { api_version() });
            properties.insert("kind".into(), if embedded { embedded_field("kind") } else { kind_field() });
        }
        if embedded {
            let required = schema.entry("required").or_insert_with(|| json!([]));
            for field in ["kind", "apiVersion"] {
                required
                    .as_array_mut()
                    .into_iter()
                    .filter(|list| !list.contains(&field.into()))
                    .for_each(|list| list.push(field.into()));
            }
        }
    }

    /// Converts a schema of a CRD to OpenAPI.
    fn custom(&mut self, schema: &Value, root: bool) -> Value {
        let Some(fields) = schema.as_object() else { return schema.clone() };
        let mut out = Map::new();
        for (name, value) in fields {
            let value = match (name.as_str(), value) {
                ("properties", Value::Object(properties)) => properties
                    .iter()
                    .map(|(name, schema)| (name.clone(), self.custom(schema, false)))
                    .collect::<Map<_, _>>()
                    .into(),
                ("items" | "additionalProperties" | "not", Value::Object(_)) => self.custom(value, false),
                ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                    schemas.iter().map(|schema| self.custom(schema, false)).collect()
                }
                _ => value.clone(),
            };
            out.insert(name.clone(), value);
        }
        let mut out = Value::Object(out);
        if out["x-kubernetes-int-or-string"] == true && out["anyOf"].is_null() && self.dialect == Dialect::V3 {
            out["anyOf"] = json!([{"type": "integer"}, {"type": "string"}]);
        }
        if let Some(out) = out.as_object_mut() {
            out.retain(|_, value| !value.is_null());
        }
        if !root && out["x-kubernetes-embedded-resource"] == true {
            self.complete(&mut out, true);
        }
        out.as_object_mut().into_iter().for_each(|out| out.retain(|_, value| !value.is_null()));
        out
    }

    /// Refers to the schema of a node: by name if it has one.
    fn reference(&mut self, node: Node<'_>) -> Value {
        let Some(name) = NAMES.get(&node.id()) else { return self.write(node) };
        if !self.all.contains_key(name) {
            // The name is reserved before the fields are written, because types may refer to themselves.
            self.all.insert(name.clone(), Value::Null);
            let schema = self.write(node);
            self.all.insert(name.clone(), schema);
        }
        self.dialect.refer(name)
    }

    fn write(&mut self, node: Node<'_>) -> Value {
        let schema = node.get();
        let mut out = match &schema.shape {
            Shape::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
            Shape::Open(open) => self.reference(node.at(open.object)),
            Shape::Boolean => json!({"type": "boolean"}),
            Shape::Integer(64) => json!({"type": "integer", "format": "int64"}),
            Shape::Integer(_) => json!({"type": "integer", "format": "int32"}),
            Shape::Number => json!({"type": "number", "format": "double"}),
            Shape::Text(Text::Time | Text::MicroTime) => json!({"type": "string", "format": "date-time"}),
            Shape::Text(Text::Bytes) => json!({"type": "string", "format": "byte"}),
            Shape::Text(Text::Quantity) if self.dialect == Dialect::V3 => {
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
            }
            Shape::Text(_) => json!({"type": "string"}),
            Shape::IntOrString if self.dialect == Dialect::V3 => {
                json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"})
            }
            Shape::IntOrString => json!({"type": "string", "format": "int-or-string"}),
            Shape::List(list) => {
                let mut out = json!({"type": "array", "items": list.items.map_or_else(|| json!({}), |items| self.reference(node.at(items)))});
                match &list.kind {
                    ListKind::Atomic => out["x-kubernetes-list-type"] = "atomic".into(),
                    ListKind::Set => out["x-kubernetes-list-type"] = "set".into(),
                    ListKind::Map(keys) => {
                        out["x-kubernetes-list-type"] = "map".into();
                        out["x-kubernetes-list-map-keys"] = json!(keys);
                    }
                }
                out
            }
            Shape::Map(map) => {
                let mut out = json!({"type": "object", "additionalProperties": map.values.map_or_else(|| json!({}), |values| self.reference(node.at(values)))});
                if map.atomic {
                    out["x-kubernetes-map-type"] = "atomic".into();
                }
                out
            }
            Shape::Struct(fields) => {
                let mut properties = Map::new();
                let mut required = Vec::new();
                for (name, field) in &fields.fields {
                    properties.insert(name.to_string(), self.field(node, field));
                    if field.presence == Presence::Always && !is_object(node.at(field.schema)) {
                        required.push(name);
                    }
                }
                let mut out = json!({"type": "object", "properties": properties});
                if !required.is_empty() {
                    out["required"] = json!(required);
                }
                if fields.atomic {
                    out["x-kubernetes-map-type"] = "atomic".into();
                }
                out
            }
        };
        if let Some(default) = &schema.default {
            out["default"] = default.clone();
        }
        out
    }

    /// Writes the schema of a field, with how it merges.
    fn field(&mut self, node: Node<'_>, field: &Field) -> Value {
        let mut out = self.reference(node.at(field.schema));
        let mut notes = Map::new();
        if field.patch.merge || field.patch.retain_keys {
            let strategies = [(field.patch.merge, "merge"), (field.patch.retain_keys, "retainKeys")];
            let strategy: Vec<&str> = strategies.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
            notes.insert("x-kubernetes-patch-strategy".into(), strategy.join(",").into());
        }
        if let Some(key) = &field.patch.key {
            notes.insert("x-kubernetes-patch-merge-key".into(), key.as_ref().into());
        }
        if notes.is_empty() {
            return out;
        }
        if self.dialect == Dialect::V3 && out.get("$ref").is_some() {
            out = json!({"allOf": [out]});
        }
        out.as_object_mut().into_iter().for_each(|out| out.extend(notes.clone()));
        out
    }
}

fn is_object(node: Node<'_>) -> bool {
    matches!(node.get().shape, Shape::Struct(_))
}

/// Removes keywords from a CRD's schema that OpenAPI version 2 lacks.
fn plainer(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let mut out = Map::new();
    for (name, value) in fields {
        let value = match (name.as_str(), value) {
            ("allOf" | "anyOf" | "oneOf" | "not" | "nullable", _) => continue,
            ("properties", Value::Object(properties)) => {
                properties.iter().map(|(name, schema)| (name.clone(), plainer(schema))).collect::<Map<_, _>>().into()
            }
            ("items" | "additionalProperties", Value::Object(_)) => plainer(value),
            _ => value.clone(),
        };
        out.insert(name.clone(), value);
    }
    Value::Object(out)
}

fn api_version() -> Value {
    let description = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest \
                       internal value, and may reject unrecognized values. More info: \
                       https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
    json!({"type": "string", "description": description})
}

fn kind_field() -> Value {
    let description = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client \
                       submits requests to. Cannot be updated. In CamelCase. More info: \
                       https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
    json!({"type": "string", "description": description})
}

fn embedded_field(name: &str) -> Value {
    let description = if name == "kind" {
        "kind is a string value representing the type of this object. In CamelCase. More info: \
         https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
    } else {
        "apiVersion defines the versioned schema of this representation of an object. More info: \
         https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
    };
    json!({"type": "string", "description": description})
}
