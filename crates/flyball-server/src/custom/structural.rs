//! Whether the schema of a CRD is structural: whether it says of every place what may stand there.
//!
//! See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.

use super::rules;
use flyball_core::field::{FieldError, Path};
use flyball_schema::cel;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

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

/// Finds what is wrong with a schema.
pub(super) fn validate(schema: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(root) = schema.as_object() else { return errors };
    forms(root, path, &mut errors);
    if !errors.is_empty() {
        return errors;
    }
    types(root, path, Place::Root, &mut errors);
    if errors.is_empty() {
        defaults(schema, path, &mut errors);
    }
    if errors.is_empty() {
        errors.extend(rules::validate(root, path));
    }
    errors
}

/// Where in a schema a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Root,
    Field,
    Items,
    /// Inside `anyOf` and its like: what may be said there is only about values.
    Values,
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Calls `visit` with each schema inside a schema.
pub(super) fn inner<'s>(schema: &'s Schema, path: &Path<'_>, visit: &mut dyn FnMut(&'s Schema, &Path<'_>, Place)) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let path = path.field("properties");
        for (name, schema) in properties {
            if let Some(schema) = schema.as_object() {
                visit(schema, &path.key(name), Place::Field);
            }
        }
    }
    for (field, place) in [("additionalProperties", Place::Field), ("items", Place::Items), ("not", Place::Values)] {
        if let Some(schema) = schema.get(field).and_then(Value::as_object) {
            visit(schema, &path.field(field), place);
        }
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        let path = path.field(field);
        for (i, schema) in schema.get(field).and_then(Value::as_array).into_iter().flatten().enumerate() {
            if let Some(schema) = schema.as_object() {
                visit(schema, &path.index(i), Place::Values);
            }
        }
    }
}

/// Finds forms that are never allowed, wherever they stand.
fn forms(schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut forbid = |field: &str, detail: &str| errors.push(FieldError::forbidden(path.field(field), detail));
    if flag(schema, "uniqueItems") {
        forbid("uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic");
    }
    if has(schema, "$ref") {
        forbid("$ref", "$ref is not supported");
    }
    for field in ["definitions", "dependencies", "patternProperties", "additionalItems"] {
        if has(schema, field) {
            forbid(field, &format!("{field} is not supported"));
        }
    }
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let properties =
        schema.get("properties").and_then(Value::as_object).is_some_and(|properties| !properties.is_empty());
    if has(schema, "additionalProperties") && (closed || properties) {
        forbid("additionalProperties", "additionalProperties and properties are mutual exclusive");
    }
    let ty = text(schema, "type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported(path.field("type"), ty, TYPES));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(
            path.field("x-kubernetes-preserve-unknown-fields"),
            false,
            "must be true or undefined",
        ));
    }
    if let Some(Err(error)) = schema.get("pattern").and_then(Value::as_str).map(flyball_schema::openapi::pattern) {
        let pattern = text(schema, "pattern");
        let detail = format!(
            "must be a valid regular expression, but isn't: {}",
            error.to_string().lines().last().unwrap_or_default()
        );
        errors.push(FieldError::invalid(path.field("pattern"), pattern, detail));
    }
    lists(schema, path, errors);
    maps(schema, path, errors);
    inner(schema, path, &mut |schema, path, _| forms(schema, path, errors));
}

fn lists(schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "x-kubernetes-list-type");
    let empty = Vec::new();
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).unwrap_or(&empty);
    let keys_path = path.field("x-kubernetes-list-map-keys");
    if has(schema, "x-kubernetes-list-type") {
        if text(schema, "type") != "array" {
            let shown = text(schema, "type");
            errors.push(FieldError::invalid(
                path.field("type"),
                shown,
                "must be array if x-kubernetes-list-type is specified",
            ));
            return;
        }
        if !matches!(kind, "atomic" | "set" | "map") {
            errors.push(FieldError::not_supported(
                path.field("x-kubernetes-list-type"),
                kind,
                ["atomic", "set", "map"],
            ));
            return;
        }
    }
    if !keys.is_empty() && kind != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if kind.is_empty() {
            FieldError::required(path.field("x-kubernetes-list-type"), detail)
        } else {
            FieldError::invalid(path.field("x-kubernetes-list-type"), kind, detail)
        });
        return;
    }
    let Some(items) = schema.get("items").and_then(Value::as_object) else { return };
    let items_path = path.field("items");
    match kind {
        "map" => {
            if keys.is_empty() {
                errors.push(FieldError::required(keys_path, "must not be empty if x-kubernetes-list-type is map"));
                return;
            }
            if text(items, "type") != "object" {
                let detail = "must be object if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(items_path.field("type"), text(items, "type"), detail));
                return;
            }
            let properties = items.get("properties").and_then(Value::as_object);
            let names: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
            if names.iter().any(|name| properties.is_none_or(|properties| !properties.contains_key(*name))) {
                errors.push(FieldError::invalid(
                    keys_path,
                    keys.clone(),
                    "entries must all be names of item properties",
                ));
                return;
            }
            if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
                errors.push(FieldError::invalid(keys_path, keys.clone(), "must not contain duplicate entries"));
            }
            let required: BTreeSet<&str> = items
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let properties_path = items_path.field("properties");
            for name in names {
                let Some(key) = properties.and_then(|properties| properties.get(name)).and_then(Value::as_object)
                else {
                    continue;
                };
                let at = properties_path.key(name);
                if matches!(text(key, "type"), "object" | "array") {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.push(FieldError::invalid(at.field("type"), text(key, "type"), detail));
                } else if !required.contains(name) && !has(key, "default") {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    errors.push(FieldError::required(at.field("default"), detail));
                }
            }
        }
        "set" => {
            let atomic = |field: &str| text(items, field) == "atomic";
            if text(items, "type") == "object" && !atomic("x-kubernetes-map-type") {
                let shown = items.get("x-kubernetes-map-type").cloned().unwrap_or_default();
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                errors.push(FieldError::invalid(items_path.field("x-kubernetes-map-type"), shown, detail));
            }
            if text(items, "type") == "array"
                && has(items, "x-kubernetes-list-type")
                && !atomic("x-kubernetes-list-type")
            {
                let shown = items.get("x-kubernetes-list-type").cloned().unwrap_or_default();
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                errors.push(FieldError::invalid(items_path.field("x-kubernetes-list-type"), shown, detail));
            }
            if flag(items, "nullable") {
                errors.push(FieldError::forbidden(
                    items_path.field("nullable"),
                    "cannot be nullable when x-kubernetes-list-type is set",
                ));
            }
        }
        _ => {}
    }
}

fn maps(schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !has(schema, "x-kubernetes-map-type") {
        return;
    }
    if text(schema, "type") != "object" {
        errors.push(FieldError::invalid(
            path.field("type"),
            text(schema, "type"),
            "must be object if x-kubernetes-map-type is specified",
        ));
        return;
    }
    let kind = text(schema, "x-kubernetes-map-type");
    if !matches!(kind, "atomic" | "granular") {
        errors.push(FieldError::not_supported(path.field("x-kubernetes-map-type"), kind, ["atomic", "granular"]));
    }
}

/// Finds places of which the schema does not say what stands there, or says it where it may not.
fn types(schema: &Schema, path: &Path<'_>, place: Place, errors: &mut Vec<FieldError>) {
    let ty = text(schema, "type");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    let open = int_or_string || flag(schema, "x-kubernetes-preserve-unknown-fields");
    match place {
        Place::Values => {
            for field in ["type", "default", "additionalProperties", "nullable", "title", "description"] {
                let set = match schema.get(field) {
                    Some(Value::Bool(set)) => *set,
                    Some(Value::String(text)) => !text.is_empty(),
                    Some(value) => !value.is_null(),
                    None => false,
                };
                if set {
                    errors.push(FieldError::forbidden(path.field(field), "must be empty to be structural"));
                }
            }
        }
        Place::Root if ty.is_empty() => {
            errors.push(FieldError::required(path.field("type"), "must not be empty at the root"))
        }
        Place::Root if ty != "object" => {
            errors.push(FieldError::invalid(path.field("type"), ty, "must be object at the root"))
        }
        Place::Field if ty.is_empty() && !open => {
            errors.push(FieldError::required(path.field("type"), "must not be empty for specified object fields"));
        }
        Place::Items if ty.is_empty() && !open => {
            errors.push(FieldError::required(path.field("type"), "must not be empty for specified array items"));
        }
        _ => {}
    }
    if ty == "array" && place != Place::Values && !schema.get("items").is_some_and(Value::is_object) {
        errors.push(FieldError::required(path.field("items"), "must be specified"));
    }
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if embedded && ty != "object" {
        errors.push(FieldError::invalid(
            path.field("type"),
            ty,
            "must be object if x-kubernetes-embedded-resource is true",
        ));
    }
    if place == Place::Root || embedded {
        restricted_metadata(schema, path, errors);
    }
    inner(schema, path, &mut |inner_schema, inner_path, inner_place| {
        // Inside an int-or-string the types of both are allowed.
        if inner_place == Place::Values && int_or_string && only_types(inner_schema) {
            return;
        }
        let inner_place = if place == Place::Values { Place::Values } else { inner_place };
        types(inner_schema, inner_path, inner_place, errors);
    });
}

fn only_types(schema: &Schema) -> bool {
    let told = |schema: &Schema| schema.len() == 1 && matches!(text(schema, "type"), "integer" | "string");
    told(schema)
        || schema
            .get("anyOf")
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().filter_map(Value::as_object).all(told))
}

fn restricted_metadata(schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(metadata) =
        schema.get("properties").and_then(|properties| properties.get("metadata")).and_then(Value::as_object)
    else {
        return;
    };
    let properties = path.field("properties");
    let at = properties.key("metadata");
    let inner = metadata.get("properties").and_then(Value::as_object);
    let fields = at.field("properties");
    for field in ["name", "generateName"] {
        let default = inner.and_then(|inner| inner.get(field)).and_then(|schema| schema.get("default"));
        if default.is_some_and(|default| !default.is_null()) {
            errors.push(FieldError::forbidden(
                fields.key(field).field("default"),
                "must not be set in top-level metadata",
            ));
            return;
        }
    }
    let other = inner.into_iter().flatten().any(|(name, _)| !matches!(name.as_str(), "name" | "generateName"));
    let more = metadata.keys().any(|key| !matches!(key.as_str(), "type" | "properties" | "description"));
    if other || more {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(at, detail));
    }
}

/// Finds defaults that their own schema refuses.
fn defaults(schema: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(fields) = schema.as_object() else { return };
    if let Some(default) = fields.get("default").filter(|default| !default.is_null()) {
        let at = path.field("default");
        let place = at.to_string();
        let wrapped = serde_json::json!({"type": "object", "properties": {"x": schema}});
        let root = flyball_schema::openapi::read(Some(&wrapped));
        let node = root.node().field("x").expect("just made it");
        let mut pruned = serde_json::json!({"x": default}).as_object().cloned().unwrap_or_default();
        let unknown = flyball_schema::prune::prune(root.node(), &mut pruned);
        if unknown.is_err() || pruned.get("x") != Some(default) {
            errors.push(FieldError::invalid(&place, default.clone(), "must not have unknown fields"));
            return;
        }
        // Its own rules run on it as on any value.
        let found = flyball_schema::validate::validate(node, default, None, &place);
        let broken = !found.is_empty();
        errors.extend(found);
        if !broken {
            errors.extend(cel::validate(node, default, None, &at));
        }
    }
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        let path = path.field("properties");
        properties.iter().for_each(|(name, schema)| defaults(schema, &path.key(name), errors));
    }
    for field in ["additionalProperties", "items"] {
        if let Some(schema) = fields.get(field).filter(|schema| schema.is_object()) {
            defaults(schema, &path.field(field), errors);
        }
    }
}
