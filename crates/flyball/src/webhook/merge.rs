//! Merges the change of a typed object into the original JSON.
//!
//! A type does not contain all fields: those of newer versions, or those that its author omitted. So the change that
//! a defaulter makes to the typed object is computed as a difference, and only that difference is applied to the
//! JSON.

use flyball_core::pointer;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::iter;

/// Applies the change from `before` to `after` to `raw`, from which `before` was decoded.
///
/// A null equals a missing field: types without `skip_serializing_if` encode `None` that way.
pub(super) fn merge_typed_change(raw: &mut Value, before: &Value, after: &Value) {
    if before == after {
        return;
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| after.get(*key).is_none_or(Value::is_null)) {
                if before.get(key) != after.get(key) {
                    raw.remove(key);
                }
            }
            for (key, after) in after.iter().filter(|(_, after)| !after.is_null()) {
                let before = before.get(key).unwrap_or(&Value::Null);
                match raw.get_mut(key) {
                    Some(raw) => merge_typed_change(raw, before, after),
                    None if before != after => drop(raw.insert(key.clone(), after.clone())),
                    None => {}
                }
            }
        }
        (Value::Array(raw), Value::Array(before), Value::Array(after)) if raw.len() == before.len() => {
            let mut partners = partners(before, after);
            let item = |(at, after): (usize, &Value)| match partners[at].take() {
                Some(from) => {
                    let mut item = raw[from].take();
                    merge_typed_change(&mut item, &before[from], after);
                    item
                }
                None => after.clone(),
            };
            *raw = after.iter().enumerate().map(item).collect();
        }
        (raw, _, after) => *raw = after.clone(),
    }
}

/// Finds the previous version of each item: an equal one, one with the same name, or, if items have no names and
/// their number is unchanged, the one at the same index.
fn partners(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let mut pairs = Pairs { before, after, free: vec![true; before.len()], found: vec![None; after.len()] };
    pairs.pair_by(Some);
    pairs.pair_by(name);
    if before.len() == after.len() {
        for (at, item) in before.iter().enumerate() {
            if pairs.found[at].is_none() && pairs.free[at] && name(item).is_none() {
                pairs.found[at] = Some(at);
            }
        }
    }
    pairs.found
}

fn name(item: &Value) -> Option<&Value> {
    item.get("name").or_else(|| item.get("key"))
}

/// The items of two lists, and the pairs that were found.
struct Pairs<'v> {
    before: &'v [Value],
    after: &'v [Value],
    /// True for each item before that has no partner.
    free: Vec<bool>,
    /// The partner of each item after.
    found: Vec<Option<usize>>,
}

impl<'v> Pairs<'v> {
    /// Pairs items with the same key: those at the same index, so that equal items keep their order, else the first.
    fn pair_by(&mut self, key: fn(&'v Value) -> Option<&'v Value>) {
        // Lists may be long. Nothing depends on the order of the map.
        let mut indexes: HashMap<&Value, VecDeque<usize>, BuildHasherDefault<DefaultHasher>> = HashMap::default();
        for (from, item) in self.before.iter().enumerate().filter(|(from, _)| self.free[*from]) {
            if let Some(key) = key(item) {
                indexes.entry(key).or_default().push_back(from);
            }
        }
        for (at, item) in self.after.iter().enumerate() {
            let Some(sought) = key(item).filter(|_| self.found[at].is_none()) else { continue };
            let is_at_same_index = self.free.get(at) == Some(&true) && key(&self.before[at]) == Some(sought);
            let partner = match is_at_same_index {
                true => Some(at),
                false => indexes
                    .get_mut(sought)
                    .and_then(|indexes| iter::from_fn(|| indexes.pop_front()).find(|from| self.free[*from])),
            };
            self.found[at] = partner;
            partner.iter().for_each(|from| self.free[*from] = false);
        }
    }
}

/// Builds a JSON patch (RFC 6902) that converts one object to another. Lists are replaced as a whole.
pub(super) fn patch(from: &Value, to: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare("", from, to, &mut operations);
    operations
}

fn compare(path: &str, from: &Value, to: &Value, operations: &mut Vec<Value>) {
    match (from, to) {
        (from, to) if from == to => {}
        (Value::Object(from), Value::Object(to)) => compare_members(path, from, to, operations),
        _ => operations.push(json!({"op": "replace", "path": path, "value": to})),
    }
}

fn compare_members(path: &str, from: &Map<String, Value>, to: &Map<String, Value>, operations: &mut Vec<Value>) {
    let below = |key: &str| format!("{path}/{}", pointer::escape(key));
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        operations.push(json!({"op": "remove", "path": below(key)}));
    }
    for (key, to) in to {
        match from.get(key) {
            Some(from) => compare(&below(key), from, to, operations),
            None => operations.push(json!({"op": "add", "path": below(key), "value": to})),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(raw: Value, before: Value, after: Value, expected: Value) {
        let mut merged = raw.clone();
        merge_typed_change(&mut merged, &before, &after);
        assert_eq!(merged, expected, "{raw} with {before} made {after}");
    }

    #[test]
    fn unknown_fields_are_kept() {
        check(
            json!({"spec": {"size": 1, "new": true}}),
            json!({"spec": {"size": 1, "mode": null}}),
            json!({"spec": {"size": 2, "mode": "fast"}}),
            json!({"spec": {"size": 2, "mode": "fast", "new": true}}),
        );
    }

    #[test]
    fn defaults_added_by_the_type_are_no_change() {
        check(json!({}), json!({"spec": {"size": 0}}), json!({"spec": {"size": 0}}), json!({}));
        check(
            json!({}),
            json!({"spec": {"a": 0, "b": 0}}),
            json!({"spec": {"a": 0, "b": 1}}),
            json!({"spec": {"a": 0, "b": 1}}),
        );
    }

    #[test]
    fn removed_fields_are_removed() {
        check(json!({"a": 1, "b": 2, "c": null}), json!({"a": 1, "b": 2}), json!({"a": null}), json!({"c": null}));
    }

    #[test]
    fn items_keep_unknown_fields_when_others_are_added_or_removed() {
        check(
            json!([{"name": "a", "x": 1}, {"name": "b", "x": 2}]),
            json!([{"name": "a"}, {"name": "b"}]),
            json!([{"name": "new"}, {"name": "b", "size": 3}]),
            json!([{"name": "new"}, {"name": "b", "size": 3, "x": 2}]),
        );
        check(
            json!([{"size": 1, "x": 1}, {"size": 1, "x": 2}]),
            json!([{"size": 1}, {"size": 1}]),
            json!([{"size": 2}, {"size": 1}]),
            json!([{"size": 2, "x": 1}, {"size": 1, "x": 2}]),
        );
        check(json!([1, 2, 3]), json!([1, 2, 3]), json!([3, 1]), json!([3, 1]));
    }

    #[test]
    fn long_lists_are_merged_in_one_pass() {
        // Comparing each item with each other one would take minutes.
        let list = |size: i32| -> Value { (0..60_000).map(|n| json!({"name": n.to_string(), "size": size})).collect() };
        let reversed = |size: i32| -> Value { list(size).as_array().unwrap().iter().rev().cloned().collect() };
        check(list(1), list(1), reversed(2), reversed(2));
    }

    #[test]
    fn patch_escapes_keys() {
        let found = patch(&json!({"m": {"a/b": 1, "c~d": 1}}), &json!({"m": {"a/b": 2}, "n": [1]}));
        let expected = [
            json!({"op": "remove", "path": "/m/c~0d"}),
            json!({"op": "replace", "path": "/m/a~1b", "value": 2}),
            json!({"op": "add", "path": "/n", "value": [1]}),
        ];
        assert_eq!(found, expected);
    }

    /// JSON without nulls, as encoded by types with `skip_serializing_if`.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..3).prop_map(Value::from),
            "[ab]".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("name|[abc]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn typed_change_is_applied_completely(before in value(), after in value()) {
            let mut merged = before.clone();
            merge_typed_change(&mut merged, &before, &after);
            prop_assert_eq!(merged, after);
        }
    }
}
