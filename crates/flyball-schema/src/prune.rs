//! Prunes custom resources to the fields of their schema, and applies its defaults.
//!
//! See <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning>
//! and the section on defaulting there.

use crate::decode;
use crate::schema::{Map as MapShape, Node, Presence, Shape};
use flyball_core::field::FieldError;
use flyball_core::memory;
use serde_json::{Map, Value};

/// Fields of every object besides those of its schema.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes fields that the schema does not specify, and decodes the metadata.
///
/// Returns the paths of the unknown fields: those of the metadata first, then the others in order. Fails if metadata,
/// the object's own or that of one embedded in it, is not of the right types.
pub fn prune(node: Node<'_>, object: &mut Map<String, Value>) -> Result<Vec<String>, decode::Error> {
    let mut unknown = read_metadata(node, object)?;
    let mut pruner = Pruner { unknown: Vec::new(), path: String::new() };
    pruner.fields(Some(node), object, true, false);
    pruner.unknown.sort();
    unknown.extend(pruner.unknown);
    drop_nulls(Some(node), object);
    let mut embedded = Vec::new();
    read_embedded(node, object, &mut String::new(), &mut embedded)?;
    unknown.extend(embedded);
    Ok(unknown)
}

fn read_metadata(node: Node<'_>, object: &mut Map<String, Value>) -> Result<Vec<String>, decode::Error> {
    let mut unknown = Vec::new();
    if let (Some(schema), Some(metadata)) = (node.field("metadata"), object.get_mut("metadata")) {
        *metadata = decode::decode(schema, metadata.take(), &mut unknown)?;
    }
    Ok(unknown.into_iter().map(|path| format!("metadata.{path}")).collect())
}

struct Pruner {
    unknown: Vec<String>,
    path: String,
}

impl Pruner {
    /// Prunes a value; `keep` is set if the list around it preserves unknown fields.
    fn value(&mut self, node: Option<Node<'_>>, value: &mut Value, keep: bool) {
        match value {
            Value::Object(fields) => self.fields(node, fields, false, keep),
            Value::Array(items) => {
                let keep = keep || node.is_some_and(|node| node.preserve_unknown);
                let inner = node.and_then(Node::items);
                if keep && inner.is_none() {
                    return;
                }
                let length = self.path.len();
                for (i, item) in items.iter_mut().enumerate() {
                    self.path += &format!("[{i}]");
                    self.value(inner, item, keep);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn fields(&mut self, node: Option<Node<'_>>, fields: &mut Map<String, Value>, root: bool, keep: bool) {
        let length = self.path.len();
        let object = root || node.is_some_and(|node| node.embedded);
        let keep_all = keep || node.is_some_and(|node| node.preserve_unknown || open_map(node));
        fields.retain(|name, value| {
            if object && META_FIELDS.contains(&name.as_str()) {
                return true;
            }
            let inner = node.and_then(|node| node.field(name));
            if inner.is_none() && keep_all {
                // The values of an open map have no schema: maps inside it lose all their fields.
                if node.is_some_and(open_map) {
                    self.step(name);
                    self.value(None, value, false);
                    self.path.truncate(length);
                }
                return true;
            }
            self.step(name);
            if inner.is_some() {
                self.value(inner, value, false);
            } else if decode::has_room(&self.unknown) {
                self.unknown.push(self.path.clone());
            }
            self.path.truncate(length);
            inner.is_some()
        });
    }

    fn step(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

/// Returns true if a schema sets `additionalProperties: true`.
fn open_map(node: Node<'_>) -> bool {
    matches!(node.get().shape, Shape::Map(MapShape { values: None, .. }))
}

/// Drops the nulls that a schema neither allows nor replaces by a default.
fn drop_nulls(node: Option<Node<'_>>, fields: &mut Map<String, Value>) {
    fields.retain(|name, value| {
        let inner = node.and_then(|node| node.field(name));
        let dropped = value.is_null() && inner.is_some_and(|inner| !inner.nullable && inner.default.is_none());
        if !dropped {
            drop_nulls_in(inner, value);
        }
        !dropped
    });
}

fn drop_nulls_in(node: Option<Node<'_>>, value: &mut Value) {
    match value {
        Value::Object(fields) => drop_nulls(node, fields),
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls_in(node.and_then(Node::items), item)),
        _ => {}
    }
}

/// Decodes the metadata of embedded objects.
fn read_embedded(
    node: Node<'_>,
    fields: &mut Map<String, Value>,
    path: &mut String,
    unknown: &mut Vec<String>,
) -> Result<(), decode::Error> {
    let length = path.len();
    for (name, value) in fields.iter_mut() {
        let Some(inner) = node.field(name).filter(|_| !META_FIELDS.contains(&name.as_str())) else { continue };
        path.push_str(if path.is_empty() { "" } else { "." });
        path.push_str(name);
        embedded_in(inner, value, path, unknown)?;
        path.truncate(length);
    }
    Ok(())
}

fn embedded_in(
    node: Node<'_>,
    value: &mut Value,
    path: &mut String,
    unknown: &mut Vec<String>,
) -> Result<(), decode::Error> {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            if node.embedded {
                check_embedded(node, fields, path, unknown)?;
            }
            read_embedded(node, fields, path, unknown)
        }
        Value::Array(items) => {
            let Some(schema) = node.items() else { return Ok(()) };
            for (i, item) in items.iter_mut().enumerate() {
                *path += &format!("[{i}]");
                embedded_in(schema, item, path, unknown)?;
                path.truncate(length);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn check_embedded(
    node: Node<'_>,
    fields: &mut Map<String, Value>,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), decode::Error> {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = fields.get(name).filter(|value| !value.is_string()) {
            let error = FieldError::invalid(format!("{path}.{name}"), value.clone(), "must be a string");
            return Err(decode::Error(error.to_string()));
        }
    }
    let original = fields.get("metadata").cloned().unwrap_or_default();
    let found = read_metadata(node, fields)
        .map_err(|e| decode::Error(FieldError::invalid(format!("{path}.metadata"), original, e.0).to_string()))?;
    for found in found {
        if decode::has_room(unknown) {
            unknown.push(format!("{path}.{found}"));
        }
    }
    Ok(())
}

/// Approximate maximum memory of the defaults in one object: the limit of a whole object.
pub const MAX_DEFAULT_MEMORY: usize = 32 << 20;

/// Error of defaults that would take more than [`MAX_DEFAULT_MEMORY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Applies the defaults of fields that are absent, or null where null is not allowed.
///
/// Fails once the defaults exceed [`MAX_DEFAULT_MEMORY`]; the caller must reject the object then.
pub fn default(node: Node<'_>, value: &mut Value) -> Result<(), TooLarge> {
    let mut room = Some(MAX_DEFAULT_MEMORY);
    fill(node, value, &mut room);
    room.map(drop).ok_or(TooLarge)
}

/// Copies a default if it fits into `room`, which is `None` once the limit was exceeded.
fn copy(default: &Value, room: &mut Option<usize>) -> Option<Value> {
    // It takes an entry in a map.
    *room = room.and_then(|room| room.checked_sub(memory::of(default) + memory::NODE / 6));
    room.map(|_| default.clone())
}

fn fill(node: Node<'_>, value: &mut Value, room: &mut Option<usize>) {
    let refill = |node: Node<'_>, value: &mut Value, room: &mut Option<usize>| {
        if value.is_null()
            && !node.nullable
            && let Some(default) = &node.get().default
            && let Some(default) = copy(default, room)
        {
            *value = default;
        }
        fill(node, value, room);
    };
    match value {
        Value::Object(fields) => {
            if let Some(named) = node.as_struct() {
                for (name, field) in &named.fields {
                    let inner = node.at(field.schema).get();
                    // A field that is omitted when empty gets no empty default.
                    let empty =
                        |default: &Value| matches!(default.as_str(), Some("")) || *default == 0 || *default == false;
                    let silent = |default: &Value| field.presence == Presence::NotEmpty && empty(default);
                    if let (Some(default), None) =
                        (inner.default.as_ref().filter(|default| !silent(default)), fields.get(&**name))
                        && let Some(default) = copy(default, room)
                    {
                        fields.insert(name.to_string(), default);
                    }
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(inner) = node.field(name) {
                    refill(inner, value, room);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = node.items() {
                items.iter_mut().for_each(|item| refill(inner, item, room));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi;
    use serde_json::json;

    fn schema() -> crate::schema::Root {
        openapi::read(Some(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"},
            "n": {"type": "integer", "nullable": true, "default": 3},
            "d": {"type": "integer", "default": 4},
            "o": {"type": "object", "default": {}, "properties": {"x": {"type": "integer", "default": 5}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"y": {"type": "string"}}}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"k": {"type": "object", "properties": {}}}},
            "open": {"type": "object", "additionalProperties": true},
            "obj": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        }}}})))
    }

    fn pruned(object: Value) -> (Value, Vec<String>) {
        let Value::Object(mut object) = object else { panic!("an object") };
        let unknown = prune(schema().node(), &mut object).unwrap();
        (Value::Object(object), unknown)
    }

    #[test]
    fn unknown_fields_are_pruned_and_reported() {
        let (object, unknown) = pruned(
            json!({"metadata": {"name": "a", "color": 1}, "top": 1, "spec": {"a": "x", "z": 1, "l": [{"y": "a", "w": 2}], "any": {"p": {"q": 1}, "k": {"r": 1}}}}),
        );
        assert_eq!(
            object,
            json!({"metadata": {"name": "a"}, "spec": {"a": "x", "l": [{"y": "a"}], "any": {"p": {"q": 1}, "k": {}}}})
        );
        assert_eq!(unknown, ["metadata.color", "spec.any.k.r", "spec.l[0].w", "spec.z", "top"]);
    }

    #[test]
    fn embedded_objects_retain_metadata() {
        let (object, unknown) = pruned(
            json!({"spec": {"obj": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "b": 1}, "other": 1}}}),
        );
        assert_eq!(object, json!({"spec": {"obj": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}}}}));
        assert_eq!(unknown, ["spec.obj.other", "spec.obj.metadata.b"]);
        let Value::Object(mut bad) = json!({"spec": {"obj": {"metadata": {"labels": "x"}}}}) else { panic!() };
        let error = prune(schema().node(), &mut bad).unwrap_err().to_string();
        assert_eq!(
            error,
            r#"spec.obj.metadata: Invalid value: {"labels":"x"}: json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string"#
        );
    }

    #[test]
    fn unknown_fields_are_preserved_inside_lists() {
        let schema = json!({"type": "object", "properties": {
            "free": {"x-kubernetes-preserve-unknown-fields": true},
            "list": {"type": "array", "x-kubernetes-preserve-unknown-fields": true,
                     "items": {"type": "object", "properties": {"known": {"type": "object"}}}},
        }});
        let root = crate::openapi::read(Some(&schema));
        let mut object = json!({"free": [1, {"a": null}], "list": [{"known": {"gone": 1}, "kept": {"b": 2}}]});
        let unknown = prune(root.node(), object.as_object_mut().unwrap()).unwrap();
        assert_eq!(object, json!({"free": [1, {"a": null}], "list": [{"known": {}, "kept": {"b": 2}}]}));
        assert_eq!(unknown, ["list[0].known.gone"]);
    }

    #[test]
    fn nulls_are_pruned_unless_nullable_or_defaulted() {
        let (mut object, _) = pruned(json!({"spec": {"a": null, "n": null, "d": null}}));
        assert_eq!(object, json!({"spec": {"n": null, "d": null}}));
        assert_eq!(default(schema().node(), &mut object), Ok(()));
        assert_eq!(object, json!({"spec": {"n": null, "d": 4, "o": {"x": 5}}}));
    }

    #[test]
    fn defaults_are_bounded_by_memory() {
        let deep = (0..16).fold(json!({}), |inner, _| json!({"a": inner}));
        let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "object",
            "properties": {"d": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": deep}}}}}});
        let root = openapi::read(Some(&schema));
        let filled = |count: usize| {
            let mut object = json!({"list": vec![json!({}); count]});
            let result = default(root.node(), &mut object);
            (result, memory::of(&object))
        };
        assert_eq!(filled(2_000).0, Ok(()));
        let (result, bytes) = filled(70_000);
        assert_eq!(result, Err(TooLarge));
        assert!(bytes < MAX_DEFAULT_MEMORY * 5 / 4, "{bytes}");
    }
}
