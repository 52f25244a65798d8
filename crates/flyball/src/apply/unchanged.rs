//! Detection of applies that would change nothing, without a request.
//!
//! A server-side apply changes nothing exactly if the manager owns the fields that it applies, and the object has the
//! same values. Both can be read from the object: ownership is in `metadata.managedFields`, in the format of
//! [structured-merge-diff](https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management), which
//! also has the keys of list elements. So no schema is needed, and nothing is lost by a restart.
//!
//! If the API server normalizes a value (`1000m` to `1`), the comparison reports a change. Then
//! [`NormalizationCache`](crate::context) recognizes the result of the last apply.

use flyball_core::json::{Cursor, MalformedJson, RawJson};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::mem::replace;

/// Returns true if applying an object would not change `live`, whose fields `owned` belong to the manager.
pub(super) fn is_unchanged(owned: RawJson<'_>, object: &Value, live: RawJson<'_>) -> bool {
    leaves(Level::Object, owned, object, Some(live.cursor())).is_ok_and(|end| end.is_some())
}

/// Depth of a field in an object.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Object,
    Metadata,
    Field,
}

impl Level {
    /// Returns true if a field identifies the object. Such fields have no owner.
    fn is_name(self, field: &str) -> bool {
        match self {
            Self::Object => matches!(field, "apiVersion" | "kind"),
            Self::Metadata => matches!(field, "name" | "namespace" | "resourceVersion" | "uid"),
            Self::Field => false,
        }
    }

    fn of(self, field: &str) -> Self {
        if self == Self::Object && field == "metadata" { Self::Metadata } else { Self::Field }
    }
}

/// Returns the end of `live` (0 if it is missing), or `None` if applying would change it.
fn leaves(
    level: Level,
    owned: RawJson<'_>,
    desired: &Value,
    live: Option<Cursor<'_>>,
) -> Result<Option<usize>, MalformedJson> {
    // A leaf, or an atomic list or map.
    if owned.members()?.begin()?.is_none() {
        return contains(live, desired);
    }
    match desired {
        Value::Object(desired) => fields(level, owned, desired, live),
        Value::Array(desired) => {
            let (live, end) =
                live.map_or(Ok((None, 0)), |live| live.read_value().map(|(live, end)| (Some(live), end)))?;
            Ok(elements(owned, desired, live)?.then_some(end))
        }
        _ => Ok(None),
    }
}

/// A field that is applied and owned.
struct Field<'a> {
    name: &'a str,
    owned: RawJson<'a>,
    desired: &'a Value,
    is_live: bool,
}

fn fields(
    level: Level,
    owned: RawJson<'_>,
    desired: &Map<String, Value>,
    live: Option<Cursor<'_>>,
) -> Result<Option<usize>, MalformedJson> {
    let (mut fields, mut members) = (Vec::with_capacity(desired.len()), owned.members()?);
    while let Some((name, owned)) = members.next()? {
        let Some(name) = name.strip_prefix("f:") else { continue };
        // Fields that are owned but no longer applied would be removed.
        let Some((name, desired)) = desired.get_key_value(name) else { return Ok(None) };
        fields.push(Field { name, owned, desired, is_live: false });
    }
    fields.sort_unstable_by_key(|field| field.name);
    let place = |fields: &[Field<'_>], name: &str| fields.binary_search_by_key(&name, |field| field.name);
    let is_nobodys = |(name, desired): (&String, &Value)| {
        level.is_name(name) || level.of(name) == Level::Metadata && names_only(desired) || place(&fields, name).is_ok()
    };
    if fields.len() < desired.len() && !desired.iter().all(is_nobodys) {
        return Ok(None);
    }
    let (mut missing, mut end) = (fields.len(), 0);
    match live {
        Some(live) if live.is_object() => {
            let mut members = live.members()?;
            while missing > 0
                && let Some((name, live)) = members.begin()?
            {
                let end = match place(&fields, &name) {
                    Ok(at) => {
                        let field = &mut fields[at];
                        missing -= usize::from(!replace(&mut field.is_live, true));
                        leaves(level.of(field.name), field.owned, field.desired, Some(live))?
                    }
                    Err(_) => Some(live.end()?),
                };
                let Some(end) = end else { return Ok(None) };
                members.resume(end);
            }
            end = members.end()?;
        }
        Some(live) => end = live.end()?,
        None => {}
    }
    for field in fields.iter().filter(|field| !field.is_live) {
        if leaves(level.of(field.name), field.owned, field.desired, None)?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(end))
}

/// Maximum number of elements of a list that are compared, since each is compared with all others. Longer lists count
/// as changed: applying them is always correct.
const MAX_ELEMENTS: usize = 256;

fn elements(owned: RawJson<'_>, desired: &[Value], live: Option<RawJson<'_>>) -> Result<bool, MalformedJson> {
    let live = live.and_then(RawJson::elements).unwrap_or_default();
    let (mut elements, mut members) = (Vec::with_capacity(desired.len()), owned.members()?);
    while let Some((name, owned)) = members.next()? {
        if name != "." {
            elements.push((name, owned));
        }
    }
    if elements.len() != desired.len() || desired.len() > MAX_ELEMENTS || live.len() > 2 * MAX_ELEMENTS {
        return Ok(false);
    }
    for desired in desired {
        let mut same = false;
        for (name, owned) in &elements {
            same = same || element(name, *owned, desired, &live)?;
        }
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if `desired` is the element with this key among the owned ones, and applying it would not change the
/// list `live`.
fn element(name: &str, owned: RawJson<'_>, desired: &Value, live: &[RawJson<'_>]) -> Result<bool, MalformedJson> {
    match name.split_at_checked(2) {
        Some(("k:", key)) => {
            let mut key = RawJson(key).members()?;
            let (mut parts, mut same) = (Vec::new(), true);
            while let Some((name, value)) = key.next()? {
                // A missing part of the key gets its default on the server, such as the protocol of a port.
                same = same && desired.get(&*name).is_none_or(|desired| value.is(desired));
                parts.push((name, value));
            }
            for live in live.iter().filter(|_| same) {
                if has(*live, &parts)? {
                    return Ok(leaves(Level::Field, owned, desired, Some(live.cursor()))?.is_some());
                }
            }
            Ok(false)
        }
        Some(("v:", value)) => Ok(RawJson(value).is(desired) && live.iter().any(|live| live.is(desired))),
        _ => Ok(false),
    }
}

/// Returns true if an element of a list has a key.
fn has(live: RawJson<'_>, key: &[(Cow<'_, str>, RawJson<'_>)]) -> Result<bool, MalformedJson> {
    let same = |a: RawJson<'_>, b: RawJson<'_>| a.0 == b.0 || b.decode().is_some_and(|b| a.is(&b));
    for (name, value) in key {
        if !live.find(name)?.is_some_and(|found| same(found, *value)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn names_only(metadata: &Value) -> bool {
    metadata.as_object().is_some_and(|fields| fields.keys().all(|field| Level::Metadata.is_name(field)))
}

/// Returns true if [`is_unchanged`] holds for an object that was just applied, without reading ownership: all of it
/// is stored in identical form. Empty lists have no owner, so the result is always false for them.
pub(super) fn is_stored_identically(live: RawJson<'_>, object: &Value) -> bool {
    !has_empty_collection(object) && contains(Some(live.cursor()), object).is_ok_and(|end| end.is_some())
}

fn has_empty_collection(desired: &Value) -> bool {
    match desired {
        Value::Object(desired) => desired.is_empty() || desired.values().any(has_empty_collection),
        Value::Array(desired) => desired.is_empty() || desired.iter().any(has_empty_collection),
        _ => false,
    }
}

/// Returns the end of `live` (0 if it is missing), or `None` if it lacks parts of `desired`.
fn contains(live: Option<Cursor<'_>>, desired: &Value) -> Result<Option<usize>, MalformedJson> {
    let Some(live) = live else { return Ok(is_empty(desired).then_some(0)) };
    match desired {
        Value::Object(desired) if live.is_object() => {
            // Counting is sufficient, since names are unique in objects from the API server.
            let mut empty = desired.values().filter(|desired| is_empty(desired)).count();
            let (mut missing, mut members) = (desired.len(), live.members()?);
            while missing > 0
                && let Some((name, live)) = members.begin()?
            {
                let end = match desired.get(&*name) {
                    Some(desired) => {
                        missing -= 1;
                        empty -= usize::from(empty > 0 && is_empty(desired));
                        contains(Some(live), desired)?
                    }
                    None => Some(live.end()?),
                };
                let Some(end) = end else { return Ok(None) };
                members.resume(end);
            }
            let same = missing == empty;
            let end = members.end()?;
            Ok(same.then_some(end))
        }
        _ => {
            let (live, end) = live.read_value()?;
            let same = match desired {
                _ if live.0 == "null" => is_empty(desired),
                Value::Array(desired) => {
                    let Some(live) = live.elements() else { return Ok(None) };
                    let mut same = desired.len() == live.len();
                    for (desired, live) in desired.iter().zip(&live) {
                        same = same && contains(Some(live.cursor()), desired)?.is_some();
                    }
                    same
                }
                _ => live.is(desired),
            };
            Ok(same.then_some(end))
        }
    }
}

/// Returns true if the API server drops this value.
fn is_empty(desired: &Value) -> bool {
    match desired {
        Value::Object(desired) => desired.is_empty(),
        Value::Array(desired) => desired.is_empty(),
        _ => desired.is_null(),
    }
}

/// Removes values that server-side apply ignores: `null` stands for a missing field.
pub(super) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A Deployment as it would be applied, and the fields that its manager then owns.
    fn applied() -> (Value, Value) {
        let desired = json!({
            "metadata": {"labels": {"app": "web"}, "finalizers": ["b", "a"]},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"spec": {"containers": [
                    {"name": "web", "args": ["-v"], "ports": [{"containerPort": 80}]},
                    {"name": "side"},
                ]}},
            },
        });
        let owned = json!({
            "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:selector": {},
                "f:template": {"f:spec": {"f:containers": {
                    "k:{\"name\":\"side\"}": {".": {}, "f:name": {}},
                    "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:args": {}, "f:ports": {
                        "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
                    }},
                }}},
            },
        });
        (desired, owned)
    }

    /// The object as stored: with defaults, and fields of other managers.
    fn live() -> Value {
        json!({
            "metadata": {"labels": {"app": "web", "theirs": "1"}, "finalizers": ["x", "a", "b"], "uid": "u"},
            "spec": {
                "replicas": 2.0,
                "strategy": {},
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"spec": {"containers": [
                    {"name": "injected"},
                    {"name": "side", "imagePullPolicy": "Always"},
                    {"name": "web", "args": ["-v"], "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                ]}},
            },
        })
    }

    fn check(change: impl FnOnce(&mut Value, &mut Value, &mut Value), expected: bool) {
        let ((mut desired, mut owned), mut live) = (applied(), live());
        change(&mut owned, &mut desired, &mut live);
        let (owned, live) = (owned.to_string(), live.to_string());
        assert_eq!(is_unchanged(RawJson(&owned), &desired, RawJson(&live)), expected, "{desired} {live}");
    }

    #[test]
    fn defaults_and_foreign_fields_are_ignored() {
        check(|_, _, _| {}, true);
    }

    #[test]
    fn different_value_is_a_change() {
        check(|_, _, live| live["spec"]["replicas"] = json!(3), false);
        check(|_, _, live| live["metadata"]["labels"]["app"] = json!("x"), false);
        check(|_, _, live| live["spec"]["selector"]["matchLabels"]["app"] = json!("x"), false);
        check(|_, _, live| live["spec"]["template"]["spec"]["containers"][2]["args"] = json!(["-v", "-q"]), false);
        check(|_, _, live| live["spec"]["template"]["spec"]["containers"][2]["ports"] = json!([]), false);
        check(|_, _, live| live["metadata"]["finalizers"] = json!(["a"]), false);
    }

    #[test]
    fn newly_applied_field_is_a_change() {
        check(
            |_, desired, live| {
                desired["spec"]["paused"] = json!(true);
                live["spec"]["paused"] = json!(true);
            },
            false,
        );
        check(|_, desired, _| desired["metadata"]["finalizers"] = json!(["a", "b", "x"]), false);
        let containers = |value: &mut Value| value["spec"]["template"]["spec"]["containers"].take();
        check(|_, desired, live| desired["spec"]["template"]["spec"]["containers"] = containers(live), false);
    }

    #[test]
    fn field_no_longer_applied_is_a_change() {
        check(|_, desired, _| drop(desired["spec"].as_object_mut().unwrap().remove("replicas")), false);
        check(|_, desired, _| desired["metadata"]["finalizers"] = json!(["a"]), false);
        check(
            |_, desired, _| drop(desired["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().pop()),
            false,
        );
    }

    #[test]
    fn identity_fields_need_no_owner() {
        let named = |_: &mut Value, desired: &mut Value, live: &mut Value| {
            for object in [desired, live] {
                (object["apiVersion"], object["kind"]) = (json!("apps/v1"), json!("Deployment"));
                (object["metadata"]["name"], object["metadata"]["namespace"]) = (json!("web"), json!("default"));
            }
        };
        check(named, true);
        let nothing_else = |owned: &mut Value, desired: &mut Value, _: &mut Value| {
            desired["metadata"] = json!({"name": "web", "uid": "u"});
            owned.as_object_mut().unwrap().remove("f:metadata");
        };
        check(nothing_else, true);
        check(|_, desired, _| desired["metadata"] = json!({"name": "web"}), false);
        check(|_, desired, _| desired["spec"]["name"] = json!("web"), false);
    }

    #[test]
    fn escapes_are_decoded() {
        let owned = r#"{"f:data":{"f:a\u003cb":{},"f:c":{"k:{\"n\":\"x\u003c\"}":{".":{},"f:n":{}}}}}"#;
        let live = r#"{ "data" : { "c" : [ {"n":"x<"} ] , "a<b" : "\u003e" } }"#;
        let desired = json!({"data": {"a<b": ">", "c": [{"n": "x<"}]}});
        assert!(is_unchanged(RawJson(owned), &desired, RawJson(live)));
        assert!(!is_unchanged(RawJson(owned), &desired, RawJson("{")));
        assert!(!is_unchanged(RawJson("[]"), &desired, RawJson(live)));
    }

    #[test]
    fn truncated_text_is_a_change() {
        let ((desired, owned), live) = (applied(), live().to_string());
        let owned = owned.to_string();
        assert!(is_unchanged(RawJson(&owned), &desired, RawJson(&live)));
        (0..owned.len())
            .for_each(|end| assert!(!is_unchanged(RawJson(&owned[..end]), &desired, RawJson(&live)), "{end}"));
        (0..live.len())
            .for_each(|end| assert!(!is_unchanged(RawJson(&owned), &desired, RawJson(&live[..end])), "{end}"));
    }

    #[test]
    fn empty_values_may_be_absent() {
        check(
            |owned, desired, _| {
                desired["metadata"]["annotations"] = json!({});
                owned["f:metadata"]["f:annotations"] = json!({});
            },
            true,
        );
        let number = |_: &mut Value, desired: &mut Value, live: &mut Value| {
            let args = |value: &mut Value, at: usize, args: Value| {
                value["spec"]["template"]["spec"]["containers"][at]["args"] = args
            };
            args(desired, 0, json!([]));
            args(live, 2, json!(1));
        };
        check(number, false);
    }

    #[test]
    fn normalized_and_empty_values_do_not_match() {
        let live =
            r#"{"spec":{"cpu":"1","args":["a"],"ports":[{"port":80,"protocol":"TCP"}],"env":[]},"status":{"more":1}}"#;
        let check = |spec: Value, expected: bool| {
            assert_eq!(is_stored_identically(RawJson(live), &json!({"spec": spec})), expected, "{spec}");
        };
        check(json!({"cpu": "1", "args": ["a"], "ports": [{"port": 80}]}), true);
        check(json!({"cpu": "1000m"}), false);
        check(json!({"args": ["a", "b"]}), false);
        check(json!({"cpu": "1", "env": []}), false);
        check(json!({"cpu": "1", "absent": {}}), false);
        check(json!({"ports": [{"port": 80, "absent": []}]}), false);
    }

    #[test]
    fn object_never_applied_is_a_change() {
        check(|owned, _, _| *owned = Value::Null, false);
    }

    #[test]
    fn long_lists_are_applied() {
        for (count, expected) in [(MAX_ELEMENTS, true), (MAX_ELEMENTS + 1, false)] {
            let list: Vec<Value> = (0..count).map(|n| json!({"name": format!("n{n}")})).collect();
            let keys = (0..count).map(|n| (format!("k:{{\"name\":\"n{n}\"}}"), json!({".": {}, "f:name": {}})));
            let owned = json!({"f:env": keys.collect::<Map<_, _>>()}).to_string();
            let desired = json!({"env": list});
            assert_eq!(is_unchanged(RawJson(&owned), &desired, RawJson(&desired.to_string())), expected, "{count}");
        }
    }

    #[test]
    fn nulls_are_removed() {
        let mut value = json!({"a": null, "b": [{"c": null, "d": 1}], "e": {"f": null}});
        without_nulls(&mut value);
        assert_eq!(value, json!({"b": [{"d": 1}], "e": {}}));
    }
}
