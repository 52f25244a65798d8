//! The final state of a run, without values that differ from run to run.

use crate::actions::ANNOTATION_PREFIX;
use crate::history::{counts, is_generated};
use crate::site::{kind_name, object_name};
use bytes::Bytes;
use flyball_cluster::StoredObject;
use flyball_core::pointer;
use kube::api::DynamicObject;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The final objects of a run by name, such as `apps/statefulsets/web`.
pub(crate) type State = BTreeMap<String, Value>;

/// Text of a time, as [`flyball_cluster::testing::state_of`] describes it.
const TIME: &str = "a time";

/// Returns the state of objects, each with the prefix of its name: its kind, and its namespace if it is another one
/// than that of the scenario.
pub(crate) fn state_of<'a>(objects: impl Iterator<Item = (String, &'a Bytes)>) -> State {
    let parse = |(prefix, body): (String, &Bytes)| {
        let mut object: DynamicObject = serde_json::from_slice(body).ok()?;
        let name = object.metadata.name.as_deref().unwrap_or_default();
        object.metadata.generate_name.take_if(|prefix| !is_generated(name, prefix));
        Some((prefix.trim_end_matches('/').to_owned(), object))
    };
    let state = flyball_cluster::testing::state_of(objects.filter_map(parse).collect());
    let masked = |(name, mut value): (String, Value)| {
        mask(&mut value);
        (name.replacen(' ', "/", 1), value)
    };
    state.into_iter().map(masked).collect()
}

/// Returns the state of stored objects, except for those whose writes do not count.
pub(crate) fn state_of_objects(objects: &[StoredObject]) -> State {
    let named = objects.iter().filter(|object| counts(&object.resource)).map(|object| {
        let kind = kind_name(&object.resource.group, &object.resource.resource);
        (object_name(&kind, object.key.namespace(), ""), &object.body)
    });
    state_of(named)
}

/// Removes times, which faults shift, and the changes of injected writers.
fn mask(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with(TIME) => text.truncate(TIME.len()),
        Value::Object(fields) => {
            fields.retain(|name, _| !name.starts_with(ANNOTATION_PREFIX));
            fields.values_mut().for_each(mask);
            for name in ["annotations", "finalizers"] {
                if fields.get(name).is_some_and(is_empty) {
                    fields.remove(name);
                }
            }
        }
        Value::Array(items) => {
            items.retain(|item| item.as_str().is_none_or(|text| !text.starts_with(ANNOTATION_PREFIX)));
            items.iter_mut().for_each(mask);
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => value.is_null(),
    }
}

/// A difference between two states.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Difference {
    pub(crate) object: String,
    /// The JSON pointer of the field; empty for the whole object.
    pub(crate) field: String,
    pub(crate) expected: Option<String>,
    pub(crate) found: Option<String>,
}

/// Fields of the final state that depend on the order of events.
pub(crate) type Mask = BTreeSet<(String, String)>;

/// Returns the differences between two states, without those that the mask covers.
pub(crate) fn differences(expected: &State, found: &State, mask: &Mask) -> Vec<Difference> {
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let mut all = Vec::new();
    for name in names {
        compare(name, String::new(), expected.get(name), found.get(name), &mut all);
    }
    let is_masked = |difference: &Difference| {
        mask.iter().any(|(object, field)| *object == difference.object && difference.field.starts_with(&**field))
    };
    all.retain(|difference| !is_masked(difference));
    all
}

fn compare(object: &str, field: String, expected: Option<&Value>, found: Option<&Value>, all: &mut Vec<Difference>) {
    match (expected, found) {
        (expected, found) if expected == found => {}
        (Some(Value::Object(expected)), Some(Value::Object(found))) => {
            let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
            for name in names {
                compare(object, format!("{field}/{}", pointer::escape(name)), expected.get(name), found.get(name), all);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(found))) if expected.len() == found.len() => {
            for (n, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare(object, format!("{field}/{n}"), Some(expected), Some(found), all);
            }
        }
        (expected, found) => {
            let text = |value: Option<&Value>| value.map(Value::to_string);
            all.push(Difference { object: object.to_owned(), field, expected: text(expected), found: text(found) });
        }
    }
}

/// Returns the digest of a state for coverage: kinds, conditions and pending deletions.
pub(crate) fn abstraction(state: &State) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (name, value) in state {
        for object in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
            let kind = name.rsplit_once('/').map_or(&**name, |(kind, _)| kind);
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let conditions: Vec<String> =
                conditions.map(|condition| format!("{}={}", condition["type"], condition["status"])).collect();
            let deleting = if object["metadata"]["deletionTimestamp"].is_null() { "" } else { " deleting" };
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            *kinds.entry(format!("{kind} {phase} {}{deleting}", conditions.join(","))).or_default() += 1;
        }
    }
    kinds.iter().map(|(kind, count)| format!("{count} {kind}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state(value: Value) -> State {
        State::from([("pods/a".to_owned(), value)])
    }

    #[test]
    fn differences_name_the_field() {
        let found =
            differences(&state(json!({"a": {"b/c": [1, 2]}})), &state(json!({"a": {"b/c": [1, 3]}})), &Mask::new());
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].field, found[0].expected.as_deref()), ("/a/b~1c/1", Some("2")));
        let mask = Mask::from([("pods/a".to_owned(), "/a".to_owned())]);
        assert_eq!(differences(&state(json!({"a": 1})), &state(json!({"a": 2})), &mask), []);
        let missing = differences(&state(json!(1)), &State::new(), &Mask::new());
        assert_eq!((&*missing[0].field, &missing[0].found), ("", &None));
    }

    #[test]
    fn injected_changes_and_times_are_no_part_of_the_state() {
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"explore.flyball.dev/keep": "x"}, "finalizers": ["explore.flyball.dev/foreign"]}});
        let body = Bytes::from(object.to_string());
        let state = state_of([("pods/".to_owned(), &body)].into_iter());
        assert_eq!(state["pods/a"], json!({"metadata": {"name": "a", "creationTimestamp": "a time"}}));
    }

    #[test]
    fn abstraction_counts_kinds_by_condition() {
        let pod = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(abstraction(&state(json!([pod, pod]))), "2 pods Running \"Ready\"=\"True\"\n");
    }
}
