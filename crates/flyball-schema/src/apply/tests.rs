//! Tests of server-side apply: lists of operations with the expected object and owners.

use super::*;
use crate::openapi;
use crate::schema::{Node, Root};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

struct OneVersion(Root);

impl Versions for OneVersion {
    fn schema(&self, api_version: &str) -> Option<Node<'_>> {
        (api_version == "g/v1").then(|| self.0.node())
    }

    fn convert<'v>(&self, object: &'v Value, _: &str) -> Result<Option<Cow<'v, Value>>, String> {
        Ok(Some(Cow::Borrowed(object)))
    }
}

/// An object on a server that supports only apply and update.
struct Fixture {
    kind: OneVersion,
    live: Value,
    managed: ManagedFields,
    clock: u32,
}

fn widget_schema() -> Root {
    openapi::read(Some(&json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"},
                    "name": {"type": "string"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "args": {"type": "array", "items": {"type": "string"}},
                    "any": {"x-kubernetes-preserve-unknown-fields": true},
                    "ports": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "proto"],
                        "items": {"type": "object", "properties": {
                            "port": {"type": "integer"}, "proto": {"type": "string", "default": "TCP"}, "name": {"type": "string"}}},
                    },
                },
            },
        },
    })))
}

impl Fixture {
    fn new() -> Self {
        Self { kind: OneVersion(widget_schema()), live: json!({}), managed: ManagedFields::default(), clock: 0 }
    }

    fn now(&mut self) -> String {
        self.clock += 1;
        format!("2026-01-01T00:00:{:02}Z", self.clock)
    }

    fn apply(&mut self, manager: &str, spec: Value, force: bool) -> Result<bool, Error> {
        let now = self.now();
        let objects =
            Objects { versions: &self.kind, api_version: "g/v1", ignored: &FieldSet::new(), empty: &json!({}) };
        let configuration = json!({"apiVersion": "g/v1", "kind": "W", "spec": spec});
        let applied = objects.apply(
            &self.live,
            &configuration,
            self.managed.clone(),
            Manager::applier(manager, ""),
            force,
            Some(&now),
        )?;
        self.managed = applied.managed;
        let changed = applied.object.is_some();
        self.live = applied.object.unwrap_or_else(|| self.live.clone());
        self.live["metadata"] = json!({"uid": "1"});
        Ok(changed)
    }

    fn update(&mut self, manager: &str, spec: Value) {
        let now = self.now();
        let new = json!({"apiVersion": "g/v1", "kind": "W", "metadata": {"uid": "1"}, "spec": spec});
        let objects =
            Objects { versions: &self.kind, api_version: "g/v1", ignored: &FieldSet::new(), empty: &json!({}) };
        let manager = Manager::updater(manager, "g/v1", "");
        self.managed = objects.update(&self.live, &new, self.managed.clone(), manager, Some(&now)).unwrap();
        self.live = new;
    }

    fn owns(&self, manager: &str) -> Value {
        let entries = self.managed.clone().encode().unwrap_or_default();
        let mut entries = entries.as_array().into_iter().flatten();
        entries
            .find(|entry| entry["manager"] == manager)
            .map_or(Value::Null, |entry| entry["fieldsV1"]["f:spec"].clone())
    }
}

fn conflicts(result: Result<bool, Error>) -> String {
    match result {
        Err(Error::Conflicts(conflicts)) => conflicts
            .iter()
            .map(|conflict| format!("{}: {}", conflict.manager.describe(), conflict.field()))
            .collect::<Vec<_>>()
            .join(", "),
        other => panic!("no conflict: {other:?}"),
    }
}

/// As in structured-merge-diff: `Updater.update` (merge/update.go) takes only fields of the comparison of the live and
/// the new object from other managers, and `compareWalker.compare` (typed/compare.go) counts a list as removed only if
/// the live object has it and the new one has neither items nor `null`. An owned list that is in neither object stays
/// owned, and so does its manager.
#[test]
fn null_list_stays_owned_until_an_update_removes_it_with_its_items() {
    let owned = json!({"f:tags": {}});
    let mut w = Fixture::new();
    w.apply("two", json!({"tags": null}), false).unwrap();
    // A server does not store the null.
    w.live["spec"] = json!({});
    w.apply("three", json!({"labels": {"a": "b"}}), false).unwrap();
    w.apply("one", json!({"name": "x"}), false).unwrap();
    w.update("editor", json!({"labels": {"a": "b"}, "name": "y"}));
    assert_eq!(w.owns("two"), owned, "no write changed the list");

    // The last applier of an item leaves a null, which the other one owns.
    w.apply("one", json!({"tags": ["a"]}), true).unwrap();
    assert_eq!(w.owns("two"), Value::Null, "the list was added");
    w.apply("two", json!({"tags": null}), false).unwrap();
    w.apply("one", json!({}), false).unwrap();
    assert_eq!((&w.live["spec"]["tags"], w.owns("two")), (&Value::Null, owned.clone()));

    w.apply("one", json!({"tags": ["a"]}), true).unwrap();
    w.apply("two", json!({"tags": null}), false).unwrap();
    assert_eq!((&w.live["spec"]["tags"], w.owns("two")), (&json!(["a"]), owned));
    w.update("editor", json!({"labels": {"a": "b"}}));
    assert_eq!(w.owns("two"), Value::Null, "the update removed the list");
}

#[test]
fn omitted_field_is_removed_and_released() {
    let mut w = Fixture::new();
    w.apply("a", json!({"replicas": 1, "name": "x"}), false).unwrap();
    assert_eq!(w.owns("a"), json!({"f:replicas": {}, "f:name": {}}));
    w.apply("a", json!({"replicas": 1}), false).unwrap();
    assert_eq!(w.live["spec"], json!({"replicas": 1}));
}

#[test]
fn other_manager_conflicts_unless_values_agree_or_it_forces() {
    let mut w = Fixture::new();
    w.apply("a", json!({"replicas": 1}), false).unwrap();
    assert_eq!(conflicts(w.apply("b", json!({"replicas": 2}), false)), "\"a\": .spec.replicas");
    w.apply("b", json!({"replicas": 1}), false).unwrap();
    assert_eq!(w.owns("b"), json!({"f:replicas": {}}));
    w.apply("b", json!({"replicas": 2}), true).unwrap();
    assert_eq!((w.live["spec"].clone(), w.owns("a")), (json!({"replicas": 2}), Value::Null));
}

#[test]
fn shared_field_is_removed_after_both_owners_release_it() {
    let mut w = Fixture::new();
    w.apply("a", json!({"replicas": 1, "name": "x"}), false).unwrap();
    w.apply("b", json!({"name": "x"}), false).unwrap();
    w.apply("a", json!({"replicas": 1}), false).unwrap();
    assert_eq!(w.live["spec"], json!({"replicas": 1, "name": "x"}));
    w.apply("b", json!({}), false).unwrap();
    assert_eq!(w.live["spec"], json!({"replicas": 1}));
}

#[test]
fn conflicts_name_updaters_with_their_version() {
    let mut w = Fixture::new();
    w.update("u", json!({"replicas": 1, "labels": {"x": "1"}}));
    assert_eq!(w.owns("u"), json!({"f:replicas": {}, "f:labels": {".": {}, "f:x": {}}, ".": {}}));
    let message = conflicts(w.apply("a", json!({"replicas": 2, "labels": {"x": "2"}}), false));
    assert_eq!(message, "\"u\" using g/v1: .spec.replicas, \"u\" using g/v1: .spec.labels.x");
}

#[test]
fn items_merge_by_keys_with_defaults() {
    let mut w = Fixture::new();
    w.apply("a", json!({"ports": [{"port": 80, "name": "http"}]}), false).unwrap();
    w.apply("b", json!({"ports": [{"port": 443, "proto": "TCP", "name": "https"}]}), false).unwrap();
    assert_eq!(w.live["spec"]["ports"].as_array().unwrap().len(), 2);
    let key = r#"k:{"port":80,"proto":"TCP"}"#;
    assert_eq!(w.owns("a"), json!({"f:ports": {key: {".": {}, "f:name": {}, "f:port": {}}}}));
    w.apply("a", json!({}), false).unwrap();
    assert_eq!(w.live["spec"]["ports"], json!([{"port": 443, "proto": "TCP", "name": "https"}]));
}

#[test]
fn lists_follow_the_applied_order_and_keep_items_of_others() {
    let merged = |live: Value, applied: Value| {
        let mut w = Fixture::new();
        w.update("u", json!({"tags": live}));
        w.apply("a", json!({"tags": applied}), false).unwrap();
        w.live["spec"]["tags"].clone()
    };
    assert_eq!(merged(json!(["a", "b"]), json!(["c", "b"])), json!(["a", "c", "b"]));
    assert_eq!(merged(json!(["m", "n", "o"]), json!(["o", "p", "m"])), json!(["n", "o", "p", "m"]));
    assert_eq!(merged(json!([]), json!(["b", "a"])), json!(["b", "a"]));
}

#[test]
fn atomic_lists_have_one_owner() {
    let mut w = Fixture::new();
    w.apply("a", json!({"args": ["x"]}), false).unwrap();
    assert_eq!(w.owns("a"), json!({"f:args": {}}));
    assert!(w.apply("b", json!({"args": ["y"]}), false).is_err());
    w.update("u", json!({"args": ["z"]}));
    assert_eq!((w.owns("a"), w.owns("u")), (Value::Null, json!({"f:args": {}})));
}

#[test]
fn patches_that_violate_the_schema_are_rejected() {
    let mut w = Fixture::new();
    let mut misfit = |spec: Value| match w.apply("a", spec, false) {
        Err(Error::Patch(misfit)) => misfit.to_string(),
        other => panic!("accepted: {other:?}"),
    };
    assert_eq!(misfit(json!({"zz": 1})), ".spec.zz: field not declared in schema");
    assert_eq!(misfit(json!({"replicas": "x"})), ".spec.replicas: expected numeric (int or float), got string");
    assert_eq!(misfit(json!({"tags": ["a", "a"]})), ".spec.tags: duplicate entries for key [=\"a\"]");
    assert_eq!(misfit(json!({"ports": {}})), ".spec.ports: expected list, got &{map[]}");
}

#[test]
fn unmanaged_fields_belong_to_before_first_apply() {
    let mut w = Fixture::new();
    w.live = json!({"metadata": {"uid": "1"}, "spec": {"replicas": 1, "name": "x"}});
    let message = conflicts(w.apply("a", json!({"replicas": 2}), false));
    assert_eq!(message, "\"before-first-apply\" using g/v1: .spec.replicas");
    w.apply("a", json!({"replicas": 1}), false).unwrap();
    assert_eq!(w.owns("before-first-apply"), json!({".": {}, "f:name": {}, "f:replicas": {}}));
}

#[test]
fn oldest_updaters_are_merged_into_one_entry() {
    let mut w = Fixture::new();
    for n in 0..14 {
        let labels: serde_json::Map<String, Value> = (0..=n).map(|i| (format!("l{i:02}"), json!("x"))).collect();
        w.update(&format!("u{n:02}"), json!({"labels": labels}));
    }
    let entries = w.managed.clone().encode().unwrap();
    assert_eq!(entries.as_array().unwrap().len(), 10);
    assert_eq!(w.owns("ancient-changes")["f:labels"].as_object().unwrap().len(), 6, "five labels and the map itself");
    assert_eq!(w.owns("u13"), json!({"f:labels": {"f:l13": {}}}));
}

#[test]
fn repeated_apply_changes_nothing() {
    let mut w = Fixture::new();
    assert!(w.apply("a", json!({"replicas": 1, "any": {"x": [1]}}), false).unwrap());
    let managed = w.managed.clone();
    assert!(!w.apply("a", json!({"replicas": 1, "any": {"x": [1]}}), false).unwrap());
    assert_eq!(w.managed, managed);
}

/// Creates non-empty specs without empty lists and maps: as in structured-merge-diff, empty values own no fields and
/// are equivalent to absent ones.
fn arbitrary_spec() -> impl Strategy<Value = Value> {
    let labels = proptest::collection::btree_map("[ab]", "[xy]", 1..3);
    let tags = proptest::collection::btree_set("[abc]", 1..4);
    let ports = proptest::collection::btree_map(1u8..4, "[pq]", 1..3);
    (0..3, proptest::option::of(labels), proptest::option::of(tags), proptest::option::of(ports)).prop_map(
        |(replicas, labels, tags, ports)| {
            let mut spec = serde_json::Map::new();
            spec.insert("replicas".into(), json!(replicas));
            labels.map(|labels| spec.insert("labels".into(), json!(labels)));
            tags.map(|tags| spec.insert("tags".into(), json!(tags)));
            let port = |(port, name): (u8, String)| json!({"port": port, "proto": "TCP", "name": name});
            ports.map(|ports| spec.insert("ports".into(), ports.into_iter().map(port).collect()));
            Value::Object(spec)
        },
    )
}

/// Returns true if the live value contains the expected one; empty values match absent ones.
fn holds(live: &Value, expected: &Value) -> bool {
    match (live, expected) {
        (Value::Null, expected) => *expected == json!({}) || *expected == json!([]),
        (Value::Object(live), Value::Object(expected)) => {
            expected.iter().all(|(k, w)| live.get(k).is_some_and(|l| holds(l, w)))
        }
        (Value::Array(live), Value::Array(expected)) => expected.iter().all(|w| live.iter().any(|l| holds(l, w))),
        _ => live == expected,
    }
}

/// Removes null and empty values, which a server drops or keeps depending on the kind.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), bare(value)));
            Value::Object(fields.filter(|(_, value)| !value.is_null() && *value != json!({})).collect())
        }
        value => value.clone(),
    }
}

/// Returns the managers and their fields, without times.
fn owners(managed: &ManagedFields) -> Vec<(Manager, FieldSet)> {
    managed.0.values().map(|entry| (entry.manager.clone(), entry.fields.clone())).collect()
}

proptest! {
    #[test]
    fn apply_obeys_its_laws(steps in proptest::collection::vec((0u8..3, any::<bool>(), arbitrary_spec()), 1..6)) {
        let mut w = Fixture::new();
        for (who, by_update, spec) in steps {
            let name = ["a", "b", "c"][usize::from(who)];
            if by_update {
                w.update(name, spec.clone());
                prop_assert_eq!(&w.live["spec"], &spec);
            } else {
                w.apply(name, spec.clone(), true).unwrap();
                prop_assert!(holds(&w.live, &json!({"spec": spec})), "{} lacks {}", w.live, spec);
                // A forced apply can be repeated without force, and changes nothing.
                let (live, owners) = (w.live.clone(), owners(&w.managed));
                w.apply(name, spec, false).unwrap();
                prop_assert_eq!(bare(&w.live), bare(&live));
                // An object without managers gets a manager for its previous fields.
                prop_assert!(owners.is_empty() || super::tests::owners(&w.managed) == owners);
            }
            let encoded = w.managed.clone().encode();
            prop_assert_eq!(ManagedFields::decode(encoded.as_ref()).unwrap().encode(), encoded);
        }
    }
}

/// Returns the time of a write that changes `count` fields of an object with as many managers of other fields, and of
/// an apply that removes a field.
#[expect(clippy::disallowed_methods, reason = "it measures itself")]
fn time_with_managers(count: usize) -> std::time::Duration {
    let kind = OneVersion(widget_schema());
    let labels = |value: &str| {
        let changed = (0..count).map(|n| (format!("k{n:06}"), Value::from(value)));
        let others = (0..count).map(|n| (format!("z{n:06}"), Value::from("a")));
        json!({"metadata": {"name": "w", "uid": "u"}, "spec": {"labels": changed.chain(others).collect::<Map<_, _>>()}})
    };
    let entry = |n: usize| {
        let operation = if n.is_multiple_of(2) { "Apply" } else { "Update" };
        json!({"manager": format!("m{n}"), "operation": operation, "apiVersion": "g/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:labels": {format!("f:z{n:06}"): {}}}}})
    };
    let managed = ManagedFields::decode(Some(&(0..count).map(entry).collect())).unwrap();
    let nothing = FieldSet::new();
    let objects = Objects { versions: &kind, api_version: "g/v1", ignored: &nothing, empty: &json!({}) };
    let (live, new) = (labels("a"), labels("b"));
    let start = std::time::Instant::now();
    let managed = objects.update(&live, &new, managed, Manager::updater("w", "g/v1", ""), None).unwrap();
    let applied = json!({"metadata": {"name": "w"}, "spec": {"labels": {"k000000": "b"}}});
    objects.apply(&new, &applied, managed, Manager::applier("m0", ""), true, None).unwrap();
    start.elapsed()
}

#[test]
fn time_of_a_write_is_linear_in_managers_and_fields() {
    // The least of several measurements, on a busy machine. A walk over all changed fields for each manager would be
    // sixteen times as long.
    let least = |count| (0..5).map(|_| time_with_managers(count)).min().unwrap();
    let (few, many) = (least(1500), least(6000));
    assert!(many < 8 * few, "{few:?} with 1,500 managers, {many:?} with 6,000");
}
