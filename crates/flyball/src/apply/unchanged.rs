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
use flyball_core::ObjectKey;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Tells whether applying `desired` would leave `live` as it is, where `owned` are the fields that its manager owns.
pub(super) fn is_unchanged(owned: &Value, desired: &Value, live: &Value) -> bool {
    let Value::Object(fields) = owned else { return false };
    match desired {
        // A leaf, or a list or map that is owned as a whole.
        _ if fields.is_empty() => contains(live, desired),
        Value::Object(desired) => {
            let same = |(name, desired): (&String, &Value)| {
                let (owned, live) = (fields.get(&format!("f:{name}")), live.get(name));
                owned.is_some_and(|owned| is_unchanged(owned, desired, live.unwrap_or(&Value::Null)))
            };
            // What was applied before and is not any more would be removed.
            let still = |name: &String| name.strip_prefix("f:").is_none_or(|name| desired.contains_key(name));
            desired.iter().all(same) && fields.keys().all(still)
        }
        Value::Array(desired) => {
            let same = |desired: &Value| {
                fields.iter().any(|(element, owned)| match element.split_at(2.min(element.len())) {
                    ("k:", key) => {
                        element_by_key(key, desired, live).is_some_and(|live| is_unchanged(owned, desired, live))
                    }
                    ("v:", value) => {
                        serde_json::from_str::<Value>(value).is_ok_and(|value| equal(&value, desired))
                            && live.as_array().is_some_and(|live| live.iter().any(|live| equal(live, desired)))
                    }
                    _ => false,
                })
            };
            let elements = fields.keys().filter(|element| *element != ".").count();
            elements == desired.len() && desired.iter().all(same)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Finds in `live` the element with this key, if it is the key of `desired`.
fn element_by_key<'a>(key: &str, desired: &Value, live: &'a Value) -> Option<&'a Value> {
    let key: Map<String, Value> = serde_json::from_str(key).ok()?;
    let matches = |element: &Value, absent: bool| {
        key.iter().all(|(name, value)| element.get(name).map_or(absent, |found| equal(found, value)))
    };
    // A part of the key that is not given gets its default on the server, such as the protocol of a port.
    matches(desired, true).then(|| live.as_array()?.iter().find(|element| matches(element, false))).flatten()
}

/// Tells whether `live` has all that `desired` has.
fn contains(live: &Value, desired: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            desired.iter().all(|(name, desired)| contains(live.get(name).unwrap_or(&Value::Null), desired))
        }
        (Value::Array(desired), Value::Array(live)) => {
            desired.len() == live.len() && desired.iter().zip(live).all(|(desired, live)| contains(live, desired))
        }
        // The API server drops what is empty.
        (Value::Object(desired), Value::Null) => desired.is_empty(),
        (Value::Array(desired), Value::Null) => desired.is_empty(),
        _ => equal(desired, live),
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
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
        live: &Value,
    ) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert((store, key.clone(), subresource), (digest(desired), digest(&stored(desired, live))));
    }

    /// Tells whether `live` is still what applying the same `desired` made of it.
    pub(super) fn knows(
        &self,
        store: StoreId,
        key: &ObjectKey,
        subresource: &'static str,
        desired: &Value,
        live: &Value,
    ) -> bool {
        let known = self.0.get(&(store, key.clone(), subresource));
        known.is_some_and(|known| *known == (digest(desired), digest(&stored(desired, live))))
    }
}

/// Returns what stands in `live` in the places that `desired` names.
fn stored(desired: &Value, live: &Value) -> Value {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let stored = |(name, desired): (&String, &Value)| Some((name.clone(), stored(desired, live.get(name)?)));
            Value::Object(desired.iter().filter_map(stored).collect())
        }
        _ => live.clone(),
    }
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
        assert_eq!(is_unchanged(&owned, &desired, &live), expected, "{desired} {live}");
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
        let live = |cpu: &str, status: u32| json!({"spec": {"cpu": cpu, "more": 1}, "status": status});
        assert!(!rephrased.knows(0, &key, "", &desired, &live("1", 1)));
        rephrased.learn(0, &key, "", &desired, &live("1", 1));
        assert!(rephrased.knows(0, &key, "", &desired, &live("1", 2)));
        assert!(!rephrased.knows(0, &key, "", &desired, &live("2", 1)));
        assert!(!rephrased.knows(0, &key, "", &json!({"spec": {"cpu": "2000m"}}), &live("1", 1)));
        assert!(!rephrased.knows(0, &key, "status", &desired, &live("1", 1)));
    }

    #[test]
    fn nulls_stand_for_absence() {
        let mut value = json!({"a": null, "b": [{"c": null, "d": 1}], "e": {"f": null}});
        without_nulls(&mut value);
        assert_eq!(value, json!({"b": [{"d": 1}], "e": {}}));
    }
}
