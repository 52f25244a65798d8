//! Fields of an object: paths, values, and their owners in the managed fields.

use crate::error::{Error, Result};
use flyball_core::time::{Timestamp, parse_rfc3339};
use serde_json::Value;

/// A step of a path: a field, or the element of a list with a name or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Field(String),
    /// `[name=web]`.
    Named(String, String),
    /// `[0]`.
    Index(usize),
}

/// Parses a path such as `spec.replicas` or `spec.template.spec.containers[name=web].image`. A key with dots is in
/// brackets: `metadata.annotations[example.com/size]`.
pub(super) fn parse(path: &str) -> Result<Vec<Segment>> {
    let wrong = || {
        Error::usage(format!("{path:?} is not the path of a field"))
            .hint("use a path such as spec.replicas or spec.containers[name=web].image")
    };
    let (mut segments, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        if let Some(bracket) = rest.strip_prefix('[') {
            let (inner, after) = bracket.split_once(']').ok_or_else(wrong)?;
            segments.push(match (inner.parse(), inner.split_once('=')) {
                (Ok(index), _) => Segment::Index(index),
                (_, Some((field, name))) if !field.contains(['/', '.']) => Segment::Named(field.into(), name.into()),
                _ => Segment::Field(inner.trim_matches('"').to_owned()),
            });
            rest = after.strip_prefix('.').unwrap_or(after);
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (field, after) = rest.split_at(end);
        if field.is_empty() {
            return Err(wrong());
        }
        segments.push(Segment::Field(field.to_owned()));
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    if segments.is_empty() { Err(wrong()) } else { Ok(segments) }
}

/// Returns the value of a field; `null` if it is absent.
pub(super) fn value<'a>(object: &'a Value, path: &[Segment]) -> &'a Value {
    path.iter().fold(object, |value, segment| match segment {
        Segment::Field(name) => &value[name.as_str()],
        Segment::Index(index) => &value[*index],
        Segment::Named(field, name) => {
            let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
            elements.iter().find(|element| is_text(&element[field.as_str()], name)).unwrap_or(&Value::Null)
        }
    })
}

fn is_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string == text,
        other => *other.to_string() == *text,
    }
}

/// Returns true for Secrets, whose values are not printed.
pub(super) fn is_secret(object: &Value) -> bool {
    object["kind"] == "Secret" && object["apiVersion"] == "v1"
}

/// An entry of the managed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: String,
    pub(super) subresource: String,
    pub(super) time: Option<Timestamp>,
}

/// Returns true if an entry of the managed fields contains only finalizers, which are no part of a spec.
pub(super) fn owns_only_finalizers(object: &Value, manager: &str, subresource: &str) -> bool {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let is_of = |entry: &&Value| {
        entry["manager"] == manager && entry["subresource"].as_str().unwrap_or_default() == subresource
    };
    let mut own = entries.filter(is_of).map(|entry| &entry["fieldsV1"]).peekable();
    let has_only = |fields: &Value, key: &str| {
        fields.as_object().is_some_and(|fields| !fields.is_empty() && fields.keys().all(|known| known == key))
    };
    own.peek().is_some()
        && own.all(|fields| has_only(fields, "f:metadata") && has_only(&fields["f:metadata"], "f:finalizers"))
}

/// Returns the managers of an object, or of one of its fields, the last writer first.
pub(super) fn managers(object: &Value, path: Option<&[Segment]>) -> Vec<Manager> {
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let owning: Vec<&Value> = match path {
        Some(path) => owners(entries, path),
        None => entries.iter().collect(),
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut managers: Vec<Manager> = owning
        .into_iter()
        .map(|entry| Manager {
            name: text(&entry["manager"]),
            operation: text(&entry["operation"]),
            subresource: text(&entry["subresource"]),
            time: entry["time"].as_str().and_then(parse_rfc3339),
        })
        .collect();
    managers.sort_by_key(|manager| std::cmp::Reverse(manager.time));
    managers
}

/// Returns the entries that own a field or parts of it, or else a field around it as a whole. A map of which another
/// entry owns a part is not owned as a whole: the entry has only created the map.
fn owners<'a>(entries: &'a [Value], path: &[Segment]) -> Vec<&'a Value> {
    let has_fields = |entry: &Value| entry["fieldsV1"].as_object().is_some_and(|fields| !fields.is_empty());
    let of = |entry: &'a Value| (entry, owned_depth(&entry["fieldsV1"], path).unwrap_or_default());
    let owning = || entries.iter().filter(|entry| has_fields(entry)).map(of);
    let own: Vec<&Value> = owning().filter(|(_, depth)| *depth == path.len()).map(|(entry, _)| entry).collect();
    if !own.is_empty() {
        return own;
    }
    let has_parts = |depth: usize| entries.iter().any(|entry| owns_parts(&entry["fieldsV1"], &path[..depth]));
    owning().filter(|(_, depth)| *depth > 0 && !has_parts(*depth)).map(|(entry, _)| entry).collect()
}

/// Returns the number of segments of the longest owned path that leads to a field.
fn owned_depth(fields: &Value, path: &[Segment]) -> Option<usize> {
    let Some((first, rest)) = path.split_first() else { return Some(0) };
    let fields = fields.as_object()?;
    if fields.keys().all(|key| key == ".") {
        return Some(0);
    }
    let next = fields.iter().filter(|(key, _)| is_key_of(key, first));
    next.filter_map(|(_, below)| owned_depth(below, rest)).max().map(|depth| depth + 1)
}

/// Returns true if the fields below a path are owned one by one.
fn owns_parts(fields: &Value, path: &[Segment]) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    match path.split_first() {
        Some((first, rest)) => fields.iter().any(|(key, below)| is_key_of(key, first) && owns_parts(below, rest)),
        None => fields.keys().any(|key| key != "."),
    }
}

/// Returns true if a key of managed fields is that of a segment.
fn is_key_of(key: &str, segment: &Segment) -> bool {
    match segment {
        Segment::Field(name) => {
            key.strip_prefix("f:") == Some(name) || key.strip_prefix("v:").is_some_and(|v| v == format!("{name:?}"))
        }
        Segment::Named(field, name) => key.strip_prefix("k:").is_some_and(|key| {
            let key: Value = serde_json::from_str(key).unwrap_or_default();
            is_text(&key[field.as_str()], name)
        }),
        Segment::Index(_) => key.starts_with("k:") || key.starts_with("i:"),
    }
}

/// Returns true if a path begins with this field.
pub(super) fn begins_with(path: &[Segment], field: &str) -> bool {
    matches!(path, [Segment::Field(first), ..] if first == field)
}

/// Returns true for the node of a pod, which a binding sets; managed fields do not contain bindings.
pub(super) fn is_bound_node(path: &[Segment]) -> bool {
    begins_with(path, "spec") && matches!(path, [_, Segment::Field(name)] if name == "nodeName")
}

/// Returns true if a path in a ledger is that of a field, contains it, or is part of it.
pub(super) fn overlaps(recorded: &str, path: &[Segment]) -> bool {
    let Ok(recorded) = parse(recorded) else { return false };
    recorded.iter().zip(path).all(|(one, other)| one == other || matches!(other, Segment::Index(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_parsed() {
        let field = |name: &str| Segment::Field(name.into());
        let web = Segment::Named("name".into(), "web".into());
        assert_eq!(parse("spec.replicas").unwrap(), [field("spec"), field("replicas")]);
        assert_eq!(
            parse("spec.containers[name=web].args[0]").unwrap(),
            [field("spec"), field("containers"), web, field("args"), Segment::Index(0)]
        );
        let annotation = [field("metadata"), field("annotations"), field("a.b/c=d")];
        assert_eq!(parse("metadata.annotations[a.b/c=d]").unwrap(), annotation);
        for bad in ["", ".", "a..b", "a[b", "[", "a.[0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn managers_of_finalizers_alone_are_found() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": "op", "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, "v:\"a\"": {}}}}},
            {"manager": "op", "subresource": "status", "fieldsV1": {"f:status": {}}},
            {"manager": "both", "fieldsV1": {"f:metadata": {"f:finalizers": {}}, "f:spec": {}}},
        ]}});
        let only = |manager: &str| owns_only_finalizers(&object, manager, "");
        assert_eq!([only("op"), only("both"), only("other")], [true, false, false]);
        assert!(!owns_only_finalizers(&object, "op", "status"));
    }

    #[test]
    fn creator_of_a_map_owns_none_of_its_keys() {
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "fieldsV1": fields});
        let owners = |entries: &[Value], path: &str| {
            let object = json!({"metadata": {"managedFields": entries}});
            let found = managers(&object, Some(&parse(path).unwrap())).into_iter().map(|manager| manager.name);
            found.collect::<Vec<_>>().join(" ")
        };
        let creator = entry("create", json!({"f:data": {}}));
        let patch = entry("patch", json!({"f:data": {"f:x": {}}}));
        let both = [creator.clone(), patch];
        assert_eq!((owners(&both, "data.x"), owners(&both, "data.y")), ("patch".into(), String::new()));
        assert_eq!(
            (owners(std::slice::from_ref(&creator), "data.x"), owners(std::slice::from_ref(&creator), "spec.x")),
            ("create".into(), String::new())
        );
    }

    const WEB: &str = r#"k:{"name":"web"}"#;

    #[test]
    fn values_and_owners_are_found_by_path() {
        let entry = |manager: &str, second: u32, fields: Value| {
            let time = format!("2026-01-01T00:00:0{second}Z");
            json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields})
        };
        let object = json!({
            "kind": "Deployment", "metadata": {"managedFields": [
                entry("op", 1, json!({"f:spec": {"f:replicas": {}, "f:containers": {WEB: {"f:image": {}}}}})),
                entry("kubectl-scale", 3, json!({"f:spec": {"f:replicas": {}}})),
                entry("kubelet", 5, json!({"f:status": {"f:ready": {}}})),
            ]},
            "spec": {"replicas": 3, "containers": [{"name": "web", "image": "a"}]},
        });
        let owners = |path: &str| {
            managers(&object, Some(&parse(path).unwrap())).into_iter().map(|m| m.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(owners("spec.replicas"), "kubectl-scale op");
        assert_eq!(
            (owners("spec.containers[name=web].image"), owners("spec.containers[0].image")),
            ("op".into(), "op".into())
        );
        assert_eq!(owners("spec.paused"), "");
        let at = |path: &str| value(&object, &parse(path).unwrap()).clone();
        assert_eq!((at("spec.replicas"), at("spec.containers[name=web].image")), (json!(3), json!("a")));
        assert_eq!((at("spec.containers[0].name"), at("spec.x.y")), (json!("web"), Value::Null));
        let path = parse("spec.containers[name=web].image").unwrap();
        assert!(overlaps("spec.containers[name=web]", &path) && overlaps("spec", &path));
        assert!(!overlaps("spec.containers[name=side].image", &path) && !overlaps("spec.replicas", &path));
    }
}
