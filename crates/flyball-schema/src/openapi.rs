//! Schemas of custom resources: `openAPIV3Schema` of a CRD, parsed to [`Schema`]s.
//!
//! Parsing never fails: malformed parts are ignored. The server validates the schema when the CRD is written. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.

use crate::cel::Rule;
use crate::matching::Pattern;
use crate::schema::{
    Bound, Constraints, Field, Id, List, ListKind, Map, Patch, Presence, Root, Schema, Schemas, Shape, Struct, Text,
};
use crate::{notation, pattern};
use serde_json::Value;
use std::sync::Arc;

/// Parses the schema of one version of a CRD; without a schema, all values are valid.
pub fn read(schema: Option<&Value>) -> Root {
    let mut reader = Reader::default();
    let open = serde_json::json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let id = reader.read(schema.unwrap_or(&open));
    reader.make_object(id);
    Root::new(Arc::new(reader.schemas), id)
}

#[derive(Default)]
struct Reader {
    schemas: Schemas,
    object_meta: Option<Id>,
}

impl Reader {
    fn read(&mut self, from: &Value) -> Id {
        let flag = |name: &str| from.get(name).and_then(Value::as_bool).unwrap_or_default();
        let schema = Schema {
            shape: self.shape(from),
            nullable: flag("nullable"),
            default: from.get("default").filter(|default| !default.is_null() || flag("nullable")).cloned(),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            go: None,
            constraints: Some(Box::new(self.constraints(from))),
        };
        let embedded = schema.embedded;
        let id = self.schemas.add(schema);
        if embedded {
            self.make_object(id);
        }
        id
    }

    fn shape(&mut self, from: &Value) -> Shape {
        if from.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true) {
            return Shape::IntOrString;
        }
        let has = |field: &str| from.get(field).is_some_and(|value| !value.is_null());
        match from.get("type").and_then(Value::as_str) {
            Some("boolean") => Shape::Boolean,
            Some("integer") => Shape::Integer(64),
            Some("number") => Shape::Number,
            Some("string") => Shape::Text(Text::Plain),
            Some("array") => self.list(from),
            Some("object") => self.object(from),
            // Inside anyOf and the like, a schema may omit the type but contain properties or items.
            _ if has("properties") || has("additionalProperties") => self.object(from),
            _ if has("items") => self.list(from),
            _ => Shape::Any,
        }
    }

    fn list(&mut self, from: &Value) -> Shape {
        let items = from.get("items").filter(|items| items.is_object()).map(|items| self.read(items));
        let kind = match from.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(texts(from.get("x-kubernetes-list-map-keys"))),
            _ => ListKind::Atomic,
        };
        Shape::List(List { items, kind })
    }

    fn object(&mut self, from: &Value) -> Shape {
        let atomic = from.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        match from.get("additionalProperties") {
            Some(values @ Value::Object(_)) => Shape::Map(Map { values: Some(self.read(values)), atomic }),
            Some(Value::Bool(true)) => Shape::Map(Map { values: None, atomic }),
            _ => {
                let properties = from.get("properties").and_then(Value::as_object);
                let fields = properties
                    .into_iter()
                    .flatten()
                    .map(|(name, schema)| (name.as_str().into(), field(self.read(schema))));
                Shape::Struct(Struct { fields: fields.collect(), atomic, ..Struct::default() })
            }
        }
    }

    /// Adds apiVersion, kind and metadata to a schema.
    fn make_object(&mut self, id: Id) {
        let meta = *self.object_meta.get_or_insert_with(|| notation::object_meta(&mut self.schemas));
        let text = || Schema { shape: Shape::Text(Text::Plain), ..Schema::default() };
        let (api_version, kind) = (self.schemas.add(text()), self.schemas.add(text()));
        let schema = self.schemas.change(id);
        if !matches!(schema.shape, Shape::Struct(_)) {
            schema.shape = Shape::Struct(Struct::default());
        }
        let Shape::Struct(fields) = &mut schema.shape else { return };
        fields.fields.insert("apiVersion".into(), field(api_version));
        fields.fields.insert("kind".into(), field(kind));
        let demanded = fields.fields.insert("metadata".into(), field(meta)).map(|demanded| demanded.schema);
        if let Some(constraints) = &mut schema.constraints {
            constraints.metadata = demanded;
        }
    }

    fn constraints(&mut self, from: &Value) -> Constraints {
        let count = |name: &str| from.get(name).and_then(Value::as_u64);
        let text = |name: &str| from.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let flag = |name: &str| from.get(name).and_then(Value::as_bool).unwrap_or_default();
        let number = |name: &str| from.get(name).and_then(Value::as_number).cloned();
        let bound = |name: &str, exclusive: &str| number(name).map(|value| Bound { value, exclusive: flag(exclusive) });
        let pattern = text("pattern").and_then(|text| Some(Pattern::new(text, pattern::compile(text).ok()?)));
        let mut each = |name: &str| -> Vec<Id> {
            from.get(name).and_then(Value::as_array).into_iter().flatten().map(|schema| self.read(schema)).collect()
        };
        Constraints {
            ty: text("type").map(Into::into),
            format: text("format").map(Into::into),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern,
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            required: texts(from.get("required")),
            one_of_values: from.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            all_of: each("allOf"),
            any_of: each("anyOf"),
            one_of: each("oneOf"),
            not: from.get("not").filter(|not| not.is_object()).map(|not| self.read(not)),
            metadata: None,
            rules: from
                .get("x-kubernetes-validations")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(Rule::read)
                .collect(),
        }
    }
}

fn field(schema: Id) -> Field {
    Field { schema, presence: Presence::Given, patch: Patch::default(), number: 0, order: 0 }
}

fn texts(list: Option<&Value>) -> Vec<Box<str>> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(|text| text.as_str().map(Into::into)).collect()
}
