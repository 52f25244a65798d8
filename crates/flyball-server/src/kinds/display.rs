//! Values in errors of kube-apiserver, which are formatted as Go's internal types.
//!
//! They have Go's field names and order, and include unset fields. Clients compare these messages. `types/internal.txt`
//! lists the types. An error in this file is a broken invariant and panics; a test parses it.

use flyball_core::field::{BadValue, go_json};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A field of an internal type.
struct InternalField {
    name: &'static str,
    /// Name of the field in JSON; begins with `^` if it is in the outer object.
    outside: String,
    shape: Shape,
}

#[derive(Clone, Copy)]
enum Shape {
    /// A value with a representation for unset fields.
    Zero(&'static str),
    /// A struct that is always present.
    Struct(&'static str),
    /// A struct that may be absent.
    Optional(&'static str),
    List(&'static str),
    /// The fields of another struct are inlined.
    Embedded(&'static str),
}

static TYPES: LazyLock<BTreeMap<&'static str, Vec<InternalField>>> = LazyLock::new(|| {
    let mut types: BTreeMap<&str, Vec<InternalField>> = BTreeMap::new();
    let mut current = "";
    for line in include_str!("types/internal.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let mut fields = line;
        if let Some((name, rest)) = line.split_once(": ").filter(|_| !line.starts_with(' ')) {
            (current, fields) = (name, rest);
        }
        types.entry(current).or_default().extend(fields.split_whitespace().map(read));
    }
    types
});

fn read(token: &'static str) -> InternalField {
    if let Some(embedded) = token.strip_prefix("...") {
        return InternalField { name: embedded, outside: String::new(), shape: Shape::Embedded(embedded) };
    }
    let (field, ty) = token.split_once(':').map_or((token, None), |(field, ty)| (field, Some(ty)));
    let bare = field.trim_end_matches(['?', '*', '#', '!', '~']);
    let shape = match (&field[bare.len()..], ty) {
        ("", None) => Shape::Zero("\"\""),
        ("#", None) => Shape::Zero("0"),
        ("!", None) => Shape::Zero("false"),
        ("~", None) => Shape::Zero("\"0\""),
        ("?", None) => Shape::Zero("null"),
        ("", Some(ty)) => Shape::Struct(ty),
        ("?", Some(ty)) => Shape::Optional(ty),
        ("*", Some(ty)) => Shape::List(ty),
        _ => panic!("{token} is not a field"),
    };
    let (name, outside) = match bare.split_once('=') {
        Some((name, outside)) => (name, outside.to_owned()),
        None => (bare, small(bare)),
    };
    InternalField { name, outside, shape }
}

/// Converts a Go name to its JSON name: `APIGroup` as `apiGroup`, `TTY` as `tty`.
fn small(name: &str) -> String {
    let capitals = name.bytes().take_while(u8::is_ascii_uppercase).count();
    let first = if capitals == name.len() { capitals } else { capitals.saturating_sub(1).max(1) };
    name[..first].to_ascii_lowercase() + &name[first..]
}

/// Formats a value of an internal type.
pub(crate) fn internal(ty: &str, value: &Value) -> BadValue {
    let mut out = String::new();
    write(&mut out, ty, value, &Value::Null);
    BadValue::Raw(out)
}

/// Formats a label selector, labels first.
pub(crate) fn selector(selector: &Value) -> BadValue {
    let mut out = String::new();
    write(&mut out, "LabelSelector", selector, &Value::Null);
    BadValue::Raw(out)
}

fn write(out: &mut String, ty: &str, value: &Value, outer: &Value) {
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null if ty != "LabelSelector" => &Map::new(),
        other => return out.push_str(&go_json(other)),
    };
    out.push('{');
    let start = out.len();
    write_fields(out, start, ty, fields, value, outer);
    out.push('}');
}

fn write_fields(out: &mut String, start: usize, ty: &str, fields: &Map<String, Value>, value: &Value, outer: &Value) {
    // These two have JSON names, and omit unset fields.
    let tagged: &[&str] = match ty {
        "LabelSelector" => &["matchLabels", "matchExpressions"],
        "ObjectMeta" => {
            &["name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers"]
        }
        _ => &[],
    };
    let fields = if ty == "ObjectMeta" { fields.get("metadata").and_then(Value::as_object) } else { Some(fields) };
    for (name, value) in tagged.iter().filter_map(|name| Some((name, fields?.get(*name)?))) {
        label(out, start, name);
        out.push_str(&go_json(value));
    }
    for field in TYPES.get(ty).into_iter().flatten() {
        if let Shape::Embedded(ty) = field.shape {
            write_fields(out, start, ty, fields.unwrap_or(&Map::new()), value, outer);
            continue;
        }
        label(out, start, field.name);
        let inner = match field.outside.strip_prefix('^') {
            Some(name) => outer.get(name),
            None => fields.and_then(|fields| fields.get(&field.outside)),
        };
        write_field(out, field.shape, inner.unwrap_or(&Value::Null), value);
    }
}

fn write_field(out: &mut String, shape: Shape, value: &Value, outer: &Value) {
    match shape {
        Shape::Zero(zero) if value.is_null() => out.push_str(zero),
        Shape::Zero(_) => out.push_str(&go_json(value)),
        Shape::Optional(_) if value.is_null() => out.push_str("null"),
        Shape::Struct(ty) | Shape::Optional(ty) => write(out, ty, value, outer),
        Shape::List(ty) => list(out, ty, value),
        Shape::Embedded(_) => unreachable!("written with the fields around it"),
    }
}

fn list(out: &mut String, ty: &str, values: &Value) {
    let Some(items) = values.as_array() else { return out.push_str("null") };
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { "," });
        write(out, ty, item, &Value::Null);
    }
    out.push(']');
}

fn label(out: &mut String, start: usize, name: &str) {
    if out.len() > start {
        out.push(',');
    }
    out.push_str(&format!("\"{name}\":"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(ty: &str, value: Value, text: &str) {
        assert_eq!(internal(ty, &value), BadValue::Raw(text.into()));
    }

    #[test]
    fn unset_fields_are_shown() {
        check(
            "RoleRef",
            json!({"kind": "Role", "name": "a", "apiGroup": "g"}),
            r#"{"APIGroup":"g","Kind":"Role","Name":"a"}"#,
        );
        check("DeploymentStrategy", json!({"type": "<"}), r#"{"Type":"\u003c","RollingUpdate":null}"#);
        check("SeccompProfile", Value::Null, r#"{"Type":"","LocalhostProfile":null}"#);
    }

    #[test]
    fn selectors_keep_their_names_and_order() {
        let selector_value =
            json!({"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchLabels": {"b": "c"}});
        let text = r#"{"matchLabels":{"b":"c"},"matchExpressions":[{"key":"a","operator":"Exists"}]}"#;
        assert_eq!(selector(&selector_value), BadValue::Raw(text.into()));
    }

    #[test]
    fn host_network_is_shown_in_the_security_context() {
        let BadValue::Raw(text) = internal("PodSpec", &json!({"hostNetwork": true, "securityContext": {}})) else {
            unreachable!()
        };
        assert!(text.contains(r#""SecurityContext":{"HostNetwork":true,"HostPID":false,"#), "{text}");
        let BadValue::Raw(text) = internal("PodTemplateSpec", &json!({"metadata": {"labels": {"a": "b"}}, "spec": {}}))
        else {
            unreachable!()
        };
        assert!(text.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"#), "{text}");
    }

    #[test]
    fn every_referenced_type_is_listed() {
        for field in TYPES.values().flatten() {
            if let Shape::Struct(ty) | Shape::Optional(ty) | Shape::List(ty) | Shape::Embedded(ty) = field.shape {
                assert!(TYPES.contains_key(ty) || matches!(ty, "LabelSelector" | "ObjectMeta"), "{ty}");
            }
        }
    }
}
