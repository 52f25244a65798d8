//! Tells, without asking the API server, that applying something again would change nothing.
//!
//! A server-side apply changes nothing exactly if the manager owns the very fields that it applies, and the object has
//! those values. Both can be seen in the object: the fields in `metadata.managedFields`, in the format of
//! [structured-merge-diff](https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management), which also says by
//! which keys the elements of a list are told apart. So no schema is needed, and a restart forgets nothing.
//!
//! Where the API server stores a value in other words than it was given (`1000m` as `1`), the comparison says "changed". Then
//! [`Rephrased`] remembers what came of applying it.

use crate::cache::StoreId;
use crate::json::{self, Object, Raw};
use flyball_core::ObjectKey;
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Tells whether applying an object would leave it as it is: `live`, of which its manager owns the fields `owned`.
pub(super) fn is_unchanged(owned: Raw<'_>, object: &Value, live: Raw<'_>) -> bool {
    leaves(Level::Object, owned, object, Some(live))
}

/// Where in an object something stands.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Object,
    Metadata,
    Field,
}

impl Level {
    /// Tells whether a field is there to name the object. Nobody owns such fields.
    fn is_name(self, field: &str) -> bool {
        match self {
            Self::Object => matches!(field, "apiVersion" | "kind"),
            Self::Metadata => matches!(field, "name" | "namespace" | "uid"),
            Self::Field => false,
        }
    }

    fn of(self, field: &str) -> Self {
        if self == Self::Object && field == "metadata" { Self::Metadata } else { Self::Field }
    }
}

fn leaves(level: Level, owned: Raw<'_>, desired: &Value, live: Option<Raw<'_>>) -> bool {
    let Some(fields) = owned.object() else { return false };
    match desired {
        // A leaf, or a list or map that is owned as a whole.
        _ if fields.is_empty() => contains(live, desired),
        Value::Object(desired) => {
            let live = live.and_then(Raw::object).unwrap_or_default();
            let same = |(name, desired): (&String, &Value)| {
                let below = level.of(name);
                match fields.find("f:", name) {
                    Some(owned) => leaves(below, owned, desired, live.find("", name)),
                    None => level.is_name(name) || below == Level::Metadata && names_only(desired),
                }
            };
            // What was applied before and is not any more would be removed.
            let still = |name: &str| name.strip_prefix("f:").is_none_or(|name| desired.contains_key(name));
            desired.iter().all(same) && fields.iter().all(|(name, _)| still(name))
        }
        Value::Array(desired) => {
            let live = live.and_then(Raw::elements).unwrap_or_default();
            let elements: Vec<_> = fields.iter().filter(|(name, _)| *name != ".").collect();
            let elements: Vec<_> = elements.iter().map(|(name, owned)| (Element::named(name), *owned)).collect();
            let same = |desired: &Value| elements.iter().any(|(element, owned)| element.leaves(*owned, desired, &live));
            elements.len() == desired.len() && desired.iter().all(same)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn names_only(metadata: &Value) -> bool {
    metadata.as_object().is_some_and(|fields| fields.keys().all(|field| Level::Metadata.is_name(field)))
}

/// By what an element of a list is told from others.
enum Element<'a> {
    Key(Object<'a>),
    Value(Raw<'a>),
    Unknown,
}

impl<'a> Element<'a> {
    fn named(name: &'a str) -> Self {
        match name.split_at_checked(2) {
            Some(("k:", key)) => Raw(key).object().map_or(Self::Unknown, Self::Key),
            Some(("v:", value)) => Self::Value(Raw(value)),
            _ => Self::Unknown,
        }
    }

    /// Tells whether `desired` is this element, and applying it would leave it as it is in the list `live`.
    fn leaves(&self, owned: Raw<'_>, desired: &Value, live: &[Raw<'_>]) -> bool {
        match self {
            // A part of the key that is not given gets its default on the server, such as the protocol of a port.
            Self::Key(key) => {
                key.iter().all(|(name, value)| desired.get(name).is_none_or(|found| value.is(found)))
                    && live
                        .iter()
                        .find(|live| has(**live, key))
                        .is_some_and(|live| leaves(Level::Field, owned, desired, Some(*live)))
            }
            Self::Value(value) => value.is(desired) && live.iter().any(|live| live.is(desired)),
            Self::Unknown => false,
        }
    }
}

/// Tells whether an element of a list has a key.
fn has(live: Raw<'_>, key: &Object<'_>) -> bool {
    let Some(live) = live.object() else { return false };
    let same = |a: Raw<'_>, b: Raw<'_>| a.0 == b.0 || b.decode().is_some_and(|b| a.is(&b));
    key.iter().all(|(name, value)| live.find("", name).is_some_and(|found| same(found, value)))
}

/// Tells whether `live` has all that `desired` has.
fn contains(live: Option<Raw<'_>>, desired: &Value) -> bool {
    let live = live.filter(|live| live.0 != "null");
    match (desired, live) {
        // The API server drops what is empty.
        (Value::Object(desired), None) => desired.is_empty(),
        (Value::Array(desired), None) => desired.is_empty(),
        (Value::Null, None) => true,
        (_, None) => false,
        (Value::Object(desired), Some(live)) => live
            .object()
            .is_some_and(|live| desired.iter().all(|(name, desired)| contains(live.find("", name), desired))),
        (Value::Array(desired), Some(live)) => live.elements().is_some_and(|live| {
            desired.len() == live.len() && desired.iter().zip(live).all(|(desired, live)| contains(Some(live), desired))
        }),
        (_, Some(live)) => live.is(desired),
    }
}

/// Removes what a server-side apply does not take in: `null`, which stands for a field that is not there.
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

/// What became of values that the API server stores in other words than they were given.
#[derive(Debug, Default)]
pub(crate) struct Rephrased(BTreeMap<Place, (u64, u64)>);

/// The cache of an object, its key, and a subresource of it or `""`.
type Place = (StoreId, ObjectKey, &'static str);

/// Beyond so many objects all is forgotten, which costs each of them one request that changes nothing.
const REMEMBERED: usize = 100_000;

impl Rephrased {
    /// Remembers that applying `desired` made `live` of it.
    pub(super) fn learn(
        &mut self,
        store: StoreId,
        key: &ObjectKey,
        subresource: &'static str,
        desired: &Value,
        live: Raw<'_>,
    ) -> serde_json::Result<()> {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert((store, key.clone(), subresource), (digest(desired), digest(&stored(desired, live)?)));
        Ok(())
    }

    /// Tells whether `live` is still what applying the same `desired` made of it.
    pub(super) fn knows(
        &self,
        store: StoreId,
        key: &ObjectKey,
        subresource: &'static str,
        desired: &Value,
        live: Raw<'_>,
    ) -> bool {
        let known = self.0.get(&(store, key.clone(), subresource));
        let is_stored = |digested: u64| stored(desired, live).is_ok_and(|stored| digested == digest(&stored));
        known.is_some_and(|known| known.0 == digest(desired) && is_stored(known.1))
    }
}

/// Returns what stands in `live` in the places that `desired` names.
fn stored(desired: &Value, live: Raw<'_>) -> serde_json::Result<Value> {
    json::decode_like(live.0, desired)
}

/// Makes a number of a value. It is kept in memory only, so it may differ from release to release.
fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A Deployment as it would be applied, and the fields that its manager owns then.
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

    /// The object as the API server has it: with defaults, and with what others added.
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
        assert_eq!(is_unchanged(Raw(&owned), &desired, Raw(&live)), expected, "{desired} {live}");
    }

    #[test]
    fn defaults_and_additions_of_others_are_no_change() {
        check(|_, _, _| {}, true);
    }

    #[test]
    fn another_value_is_a_change() {
        check(|_, _, live| live["spec"]["replicas"] = json!(3), false);
        check(|_, _, live| live["metadata"]["labels"]["app"] = json!("x"), false);
        check(|_, _, live| live["spec"]["selector"]["matchLabels"]["app"] = json!("x"), false);
        check(|_, _, live| live["spec"]["template"]["spec"]["containers"][2]["args"] = json!(["-v", "-q"]), false);
        check(|_, _, live| live["spec"]["template"]["spec"]["containers"][2]["ports"] = json!([]), false);
        check(|_, _, live| live["metadata"]["finalizers"] = json!(["a"]), false);
    }

    #[test]
    fn a_field_applied_for_the_first_time_is_a_change() {
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
    fn a_field_no_longer_applied_is_a_change() {
        check(|_, desired, _| drop(desired["spec"].as_object_mut().unwrap().remove("replicas")), false);
        check(|_, desired, _| desired["metadata"]["finalizers"] = json!(["a"]), false);
        check(
            |_, desired, _| drop(desired["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().pop()),
            false,
        );
    }

    #[test]
    fn names_are_nobodys() {
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
    fn text_is_read_with_its_escapes() {
        let owned = r#"{"f:data":{"f:a\u003cb":{},"f:c":{"k:{\"n\":\"x\u003c\"}":{".":{},"f:n":{}}}}}"#;
        let live = r#"{ "data" : { "c" : [ {"n":"x<"} ] , "a<b" : "\u003e" } }"#;
        let desired = json!({"data": {"a<b": ">", "c": [{"n": "x<"}]}});
        assert!(is_unchanged(Raw(owned), &desired, Raw(live)));
        assert!(!is_unchanged(Raw(owned), &desired, Raw("{")));
        assert!(!is_unchanged(Raw("[]"), &desired, Raw(live)));
    }

    #[test]
    fn what_is_empty_may_be_absent() {
        check(
            |owned, desired, _| {
                desired["metadata"]["annotations"] = json!({});
                owned["f:metadata"]["f:annotations"] = json!({});
            },
            true,
        );
    }

    #[test]
    fn what_was_never_applied_is_a_change() {
        check(|owned, _, _| *owned = Value::Null, false);
    }

    #[test]
    fn rephrased_values_are_recognised_until_they_drift() {
        let (key, mut rephrased) = (ObjectKey::new(None, "a"), Rephrased::default());
        let desired = json!({"spec": {"cpu": "1000m"}});
        let live = |cpu: &str, status: u32| json!({"spec": {"cpu": cpu, "more": 1}, "status": status}).to_string();
        let [first, later, drifted] = [live("1", 1), live("1", 2), live("2", 1)];
        assert!(!rephrased.knows(0, &key, "", &desired, Raw(&first)));
        rephrased.learn(0, &key, "", &desired, Raw(&first)).unwrap();
        assert!(rephrased.knows(0, &key, "", &desired, Raw(&later)));
        assert!(!rephrased.knows(0, &key, "", &desired, Raw(&drifted)));
        assert!(!rephrased.knows(0, &key, "", &json!({"spec": {"cpu": "2000m"}}), Raw(&first)));
        assert!(!rephrased.knows(0, &key, "status", &desired, Raw(&first)));
    }

    #[test]
    fn nulls_stand_for_absence() {
        let mut value = json!({"a": null, "b": [{"c": null, "d": 1}], "e": {"f": null}});
        without_nulls(&mut value);
        assert_eq!(value, json!({"b": [{"d": 1}], "e": {}}));
    }
}
