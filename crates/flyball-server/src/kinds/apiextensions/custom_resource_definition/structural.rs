//! Structural schemas: schemas of CRDs that specify the type of every position.
//!
//! See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.

use super::rules;
use super::schema::{Position, Schema, flag, has, inner, text};
use flyball_core::field::{FieldError, Path};
use flyball_schema::pattern;
use serde_json::Value;
use std::collections::BTreeSet;

/// Validates a schema.
///
/// Forbidden constructs hide other structural errors; all other errors are reported together. Rules are compiled if
/// their schema is valid.
pub(super) fn validate(schema: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(root) = schema.as_object() else { return errors };
    if flag(root, "nullable") {
        errors.push(FieldError::forbidden(path.field("nullable"), "nullable cannot be true at the root"));
    }
    let structural = is_representable(root, path);
    if structural {
        types(root, path, Position::Root, &mut errors);
        // Sorted like in kube-apiserver.
        errors.sort_by_cached_key(ToString::to_string);
        if errors.is_empty() {
            defaults(schema, path, &mut errors);
        }
    }
    let sound = structural && errors.is_empty();
    let mut found = Vec::new();
    forms(root, path, &SchemaContext::Root, &mut found);
    let rules = if sound { rules::validate(root, path, &found) } else { Vec::new() };
    errors.extend(found);
    errors.extend(rules);
    errors
}

/// Limits the total number of states of the distinct patterns of a CRD; an error names the pattern that exceeds the
/// limit.
pub(super) fn count_states<'s>(
    schema: &'s Schema,
    path: &Path<'_>,
    counted: &mut BTreeSet<&'s str>,
    sum: &mut u64,
) -> Option<FieldError> {
    if let Some(text) = schema.get("pattern").and_then(Value::as_str)
        && counted.insert(text)
        && let Ok(states) = pattern::states(text)
    {
        *sum += states;
        if *sum > pattern::MAX_STATES_TOGETHER {
            let detail = format!(
                "the patterns of a definition may have {} states together, and with this one they have {sum}",
                pattern::MAX_STATES_TOGETHER
            );
            return Some(FieldError::forbidden(path.field("pattern"), detail));
        }
    }
    let mut error = None;
    inner(schema, path, &mut |schema, path, _| {
        if error.is_none() {
            error = count_states(schema, path, counted, sum);
        }
    });
    error
}

/// Returns true if a schema has no constructs that are forbidden in structural schemas.
fn is_representable(schema: &Schema, path: &Path<'_>) -> bool {
    const UNSUPPORTED: [&str; 6] =
        ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
    let mut representable = !UNSUPPORTED.iter().any(|field| has(schema, field))
        && !schema.get("items").is_some_and(Value::is_array)
        && schema.get("x-kubernetes-preserve-unknown-fields") != Some(&Value::Bool(false));
    inner(schema, path, &mut |schema, path, _| representable = representable && is_representable(schema, path));
    representable
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The context of the values of a schema.
enum SchemaContext<'p> {
    Root,
    /// The type or the metadata of an object; for the root object, the name of the field.
    Meta(Option<&'p str>),
    /// Keys of maps in the metadata.
    MetaMap,
    Elsewhere,
}

/// Finds constructs that are always forbidden.
fn forms(schema: &Schema, path: &Path<'_>, inside: &SchemaContext<'_>, errors: &mut Vec<FieldError>) {
    let ty = text(schema, "type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported(path.field("type"), ty, TYPES));
    }
    let mut forbid = |field: &str, detail: &str| errors.push(FieldError::forbidden(path.field(field), detail));
    match inside {
        _ if !has(schema, "default") => {}
        SchemaContext::Meta(Some(name)) => forbid("default", &format!("must not be set in top-level {name}")),
        SchemaContext::MetaMap => {
            forbid("default", "must not be set inside additionalProperties applying to object metadata");
        }
        _ => {}
    }
    for field in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if has(schema, field) {
            forbid(field, &format!("{field} is not supported"));
        }
    }
    if ty == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if schema.get("items").is_some_and(Value::is_array) {
        forbid("items", "items must be a schema object and not an array");
    }
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if embedded && matches!(inside, SchemaContext::Meta(_) | SchemaContext::MetaMap) {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    if flag(schema, "uniqueItems") {
        forbid("uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic");
    }
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let properties =
        schema.get("properties").and_then(Value::as_object).is_some_and(|properties| !properties.is_empty());
    if has(schema, "additionalProperties") && (closed || properties) {
        forbid("additionalProperties", "additionalProperties and properties are mutual exclusive");
    }
    let own = ["metadata", "kind", "apiVersion"].map(|name| path.field("properties").key(name).to_string());
    inner(schema, path, &mut |schema, below, place| {
        let whole = embedded || matches!(inside, SchemaContext::Root);
        let meta = (place == Position::Field && whole)
            .then(|| own.iter().position(|known| *known == below.to_string()))
            .flatten()
            .map(|at| ["metadata", "kind", "apiVersion"][at]);
        let map = below.to_string() == path.field("additionalProperties").to_string();
        let inside = match (meta, inside) {
            (Some(name), SchemaContext::Root) => SchemaContext::Meta(Some(name)),
            (Some(_), _) => SchemaContext::Meta(None),
            (None, SchemaContext::Meta(_)) if map => SchemaContext::MetaMap,
            (None, SchemaContext::Meta(name)) => SchemaContext::Meta(*name),
            (None, SchemaContext::MetaMap) => SchemaContext::MetaMap,
            (None, SchemaContext::Root | SchemaContext::Elsewhere) => SchemaContext::Elsewhere,
        };
        forms(schema, below, &inside, errors);
    });
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(
            path.field("x-kubernetes-preserve-unknown-fields"),
            false,
            "must be true or undefined",
        ));
    }
    maps(schema, path, errors);
    lists(schema, path, errors);
    rules::forms(schema, path, errors);
}

/// Returns the error for a schema whose extension requires another type.
fn wrong_type(path: &Path<'_>, ty: &str, detail: &str) -> FieldError {
    if ty.is_empty() {
        FieldError::required(path.field("type"), detail)
    } else {
        FieldError::invalid(path.field("type"), ty, detail)
    }
}

fn maps(schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !has(schema, "x-kubernetes-map-type") {
        return;
    }
    if text(schema, "type") != "object" {
        let detail = "must be object if x-kubernetes-map-type is specified";
        errors.push(wrong_type(path, text(schema, "type"), detail));
    }
    let kind = text(schema, "x-kubernetes-map-type");
    if !matches!(kind, "atomic" | "granular") {
        errors.push(FieldError::not_supported(path.field("x-kubernetes-map-type"), kind, ["atomic", "granular"]));
    }
}

fn lists(schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "x-kubernetes-list-type");
    let has_kind = has(schema, "x-kubernetes-list-type");
    let items = schema.get("items").and_then(Value::as_object);
    let items_path = path.field("items");
    let keys: Vec<&str> = schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let ty = text(schema, "type");
    if has_kind && ty != "array" {
        errors.push(wrong_type(path, ty, "must be array if x-kubernetes-list-type is specified"));
    } else if let Some(items) = items.filter(|_| kind == "set") {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        // kube-apiserver reports the type of the list instead of the type of the map.
        let shown = items.get("x-kubernetes-list-type").cloned().unwrap_or_default();
        let inner = text(items, "x-kubernetes-list-type");
        if text(items, "type") == "array" && has(items, "x-kubernetes-list-type") && inner != "atomic" {
            errors.push(FieldError::invalid(items_path.field("x-kubernetes-list-type"), shown, detail));
        } else if text(items, "type") == "object" && text(items, "x-kubernetes-map-type") != "atomic" {
            errors.push(FieldError::invalid(items_path.field("x-kubernetes-map-type"), shown, detail));
        }
    }
    if has_kind && !matches!(kind, "atomic" | "set" | "map") {
        errors.push(FieldError::not_supported(path.field("x-kubernetes-list-type"), kind, ["atomic", "set", "map"]));
    }
    if !keys.is_empty() && kind != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if has_kind {
            FieldError::invalid(path.field("x-kubernetes-list-type"), kind, detail)
        } else {
            FieldError::required(path.field("x-kubernetes-list-type"), detail)
        });
    }
    if kind == "map" {
        map_keys(schema, &keys, path, errors);
    }
    let Some(items) = items.filter(|_| matches!(kind, "set" | "map")) else { return };
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        errors.push(FieldError::forbidden(items_path.field("nullable"), detail));
    }
    if kind == "map" {
        validate_required_keys(items, &keys, &items_path, errors);
    }
}

/// Validates the keys of a map list: its items must have them, with scalar values.
fn map_keys(schema: &Schema, keys: &[&str], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let (keys_path, items_path) = (path.field("x-kubernetes-list-map-keys"), path.field("items"));
    if keys.is_empty() {
        errors.push(FieldError::required(keys_path, "must not be empty if x-kubernetes-list-type is map"));
    }
    if !has(schema, "items") {
        errors.push(FieldError::required(items_path, "must have a schema if x-kubernetes-list-type is map"));
    }
    let Some(items) = schema.get("items").and_then(Value::as_object) else { return };
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(items_path.field("type"), text(items, "type"), detail));
        return;
    }
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut wrong = (false, false);
    for name in keys {
        let key = items.get("properties").and_then(|properties| properties.get(*name)).and_then(Value::as_object);
        match key {
            Some(key) if matches!(text(key, "type"), "object" | "array") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let properties = items_path.field("properties");
                // kube-apiserver reports the type of the item.
                errors.push(FieldError::invalid(properties.key(name).field("type"), "object", detail));
            }
            Some(_) => {}
            None => wrong.0 = true,
        }
        wrong.1 |= !known.insert(name);
    }
    for (wrong, detail) in
        [(wrong.0, "entries must all be names of item properties"), (wrong.1, "must not contain duplicate entries")]
    {
        if wrong {
            errors.push(FieldError::invalid(keys_path, Value::from(keys.to_vec()), detail));
        }
    }
}

/// Finds keys of a list that are optional in its items.
fn validate_required_keys(items: &Schema, keys: &[&str], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let required = items.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
    let properties = path.field("properties");
    for name in keys {
        let key = items.get("properties").and_then(|properties| properties.get(*name)).and_then(Value::as_object);
        let Some(key) = key else { continue };
        let at = properties.key(name);
        if !required.contains(name) && !has(key, "default") {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(at.field("default"), detail));
        }
        if flag(key, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(at.field("nullable"), detail));
        }
    }
}

/// Returns the error of a pattern: Go's message, or an error that it is too large to compile.
fn wrong_pattern(text: &str) -> Option<String> {
    pattern::states(text).err().map(|error| error.to_string())
}

/// Validates the types and patterns of a schema and of its inner schemas.
fn types(schema: &Schema, path: &Path<'_>, place: Position, errors: &mut Vec<FieldError>) {
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    if let Some(why) = schema.get("pattern").and_then(Value::as_str).and_then(wrong_pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(path.field("pattern"), text(schema, "pattern"), detail));
    }
    if place == Position::Values {
        validate_value_constraints(schema, path, errors);
    } else {
        validate_structure(schema, path, place, errors);
    }
    let map = path.field("additionalProperties").to_string();
    inner(schema, path, &mut |inner_schema, inner_path, inner_place| {
        // Inside an int-or-string both types are allowed.
        if inner_place == Position::Values && int_or_string && only_types(inner_schema) {
            return;
        }
        // Other fields of metadata were rejected earlier.
        if place == Position::Values && inner_path.to_string() == map {
            return;
        }
        let inner_place = if place == Position::Values { Position::Values } else { inner_place };
        types(inner_schema, inner_path, inner_place, errors);
    });
}

/// Validates a schema inside of `anyOf` and similar keywords, which may only constrain values.
fn validate_value_constraints(schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let is_set = |field: &str| match schema.get(field) {
        Some(Value::Bool(set)) => *set || field == "additionalProperties",
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(value) => !value.is_null(),
        None => false,
    };
    for (field, required) in [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ] {
        if is_set(field) || field == "default" && has(schema, field) {
            errors.push(FieldError::forbidden(path.field(field), format!("must be {required} to be structural")));
        }
    }
    if schema.get("properties").is_some_and(|properties| properties.get("metadata").is_some()) {
        let properties = path.field("properties");
        errors.push(FieldError::forbidden(properties.key("metadata"), "must not be specified in a nested context"));
    }
}

/// Validates the keywords of a schema node against its type.
fn validate_structure(schema: &Schema, path: &Path<'_>, place: Position, errors: &mut Vec<FieldError>) {
    let ty = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let (int_or_string, open) =
        (flag(schema, "x-kubernetes-int-or-string"), flag(schema, "x-kubernetes-preserve-unknown-fields"));
    if ty == "array" && !has(schema, "items") {
        errors.push(FieldError::required(path.field("items"), "must be specified"));
    }
    if int_or_string {
        for field in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(schema, field) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid(path.field(field), true, detail));
            }
        }
    }
    if embedded && ty != "object" {
        errors.push(wrong_type(path, ty, "must be object if x-kubernetes-embedded-resource is true"));
    } else if ty.is_empty() && !int_or_string && !open {
        let detail = match place {
            Position::Root => "must not be empty at the root",
            Position::Items => "must not be empty for specified array items",
            Position::Field | Position::Values => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(path.field("type"), detail));
    }
    if place == Position::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(path.field("type"), ty, "must be object at the root"));
    }
    if has(schema, "additionalProperties") {
        let at = path.field("additionalProperties");
        if place == Position::Root {
            errors.push(FieldError::forbidden(at, "must not be used at the root"));
        }
        if embedded {
            errors.push(FieldError::forbidden(at, "must not be used if x-kubernetes-embedded-resource is set"));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty());
    if embedded && !open && properties.is_none() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(path.field("properties"), detail));
    }
    if place == Position::Root || embedded {
        for (name, ty) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
            let property = properties.and_then(|properties| properties.get(name)).and_then(Value::as_object);
            if let Some(property) = property.filter(|property| text(property, "type") != ty) {
                let properties = path.field("properties");
                let at = properties.key(name);
                errors.push(FieldError::invalid(at.field("type"), text(property, "type"), format!("must be {ty}")));
            }
        }
    }
    if place == Position::Root {
        restricted_metadata(schema, path, errors);
    }
}

fn only_types(schema: &Schema) -> bool {
    let is_bare_type = |schema: &Schema| schema.len() == 1 && matches!(text(schema, "type"), "integer" | "string");
    is_bare_type(schema)
        || schema
            .get("anyOf")
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().filter_map(Value::as_object).all(is_bare_type))
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
    let other = inner.into_iter().flatten().any(|(name, _)| !matches!(name.as_str(), "name" | "generateName"));
    let more = metadata.keys().any(|key| !matches!(key.as_str(), "type" | "properties" | "description" | "default"));
    if other || more {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(at, detail));
    }
}

/// Finds defaults that do not match their schema.
fn defaults(schema: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(fields) = schema.as_object() else { return };
    if let Some(default) = fields.get("default").filter(|default| !default.is_null()) {
        default_of(schema, default, &path.field("default"), errors);
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

fn default_of(schema: &Value, default: &Value, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let read = |schema: Value| {
        let wrapped = serde_json::json!({"type": "object", "properties": {"x": schema}});
        flyball_schema::openapi::read(Some(&wrapped))
    };
    let place = at.to_string();
    let root = read(schema.clone());
    let node = root.node().field("x").expect("just made it");
    let mut pruned = serde_json::json!({"x": default}).as_object().cloned().unwrap_or_default();
    let unknown = flyball_schema::prune::prune(root.node(), &mut pruned);
    if unknown.is_err() || pruned.get("x") != Some(default) {
        errors.push(FieldError::invalid(&place, default.clone(), "must not have unknown fields"));
    }
    // Embedded objects have `apiVersion` and `kind`.
    let nameless = super::embedded::validate_embedded(node, default, at, false);
    if !nameless.is_empty() {
        errors.extend(nameless);
        return;
    }
    let mut untyped = schema.clone();
    let lenient = drop_unions(&mut untyped).then(|| read(untyped));
    let checked = lenient.as_ref().and_then(|root| root.node().field("x")).unwrap_or(node);
    // The rules of the schema apply to the default, as to any value.
    let found = flyball_schema::validate::validate(checked, default, None, &place);
    let broken = !found.is_empty();
    errors.extend(found);
    if !broken {
        errors.extend(flyball_schema::rules::validate(node, default, None, false, at).errors);
    }
}

/// Removes the int-or-string marker: kube-apiserver does not check that defaults are one of these types.
fn drop_unions(schema: &mut Value) -> bool {
    let Some(fields) = schema.as_object_mut() else { return false };
    let mut dropped = fields.remove("x-kubernetes-int-or-string").is_some();
    if dropped && !fields.contains_key("x-kubernetes-preserve-unknown-fields") {
        fields.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    }
    for (name, value) in fields.iter_mut() {
        match (name.as_str(), value) {
            ("properties", Value::Object(inner)) => {
                inner.values_mut().for_each(|schema| dropped |= drop_unions(schema));
            }
            ("items" | "additionalProperties", schema) => dropped |= drop_unions(schema),
            _ => {}
        }
    }
    dropped
}
