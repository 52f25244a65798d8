//! Strategic merge patch: a merge patch that also merges lists by key.
//!
//! See
//! <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md>.
//! Only built-in kinds support it, because their schema contains the patch strategy of each field.

use crate::decode::go_type;
use crate::schema::{Node, Patch, Shape};
use flyball_core::field::go_print;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";

/// An error of applying a strategic merge patch, with the message of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// A directive of the patch is malformed.
    #[error("{0}")]
    Directive(&'static str),
    /// The patch does not match the object.
    #[error("{0}")]
    Misfit(String),
}

use StrategicError as Error;

impl From<Error> for super::Error {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// Applies a patch to an object.
pub fn strategic(
    node: Node<'_>,
    target: &mut Map<String, Value>,
    patch: Map<String, Value>,
) -> Result<(), StrategicError> {
    let original = std::mem::take(target);
    *target = merge_maps(Some(node), original, patch)?;
    Ok(())
}

/// Returns the patch strategy of a field, and the schema of its value.
fn lookup<'a>(node: Option<Node<'a>>, name: &str) -> Result<(Option<Node<'a>>, Patch), Error> {
    let Some(node) = node else { return Ok((None, Patch::default())) };
    match &node.get().shape {
        Shape::Struct(fields) => match fields.fields.get(name) {
            Some(field) => Ok((Some(node.at(field.schema)), field.patch.clone())),
            None => Err(Error::Misfit(format!(
                "unable to find api field in struct {} for the json field {name:?}",
                fields.name
            ))),
        },
        _ => Ok((node.field(name), Patch::default())),
    }
}

fn merge_maps(
    node: Option<Node<'_>>,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, Error> {
    match patch.remove(DIRECTIVE) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => return Ok(patch),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(directive) => {
            patch.insert(DIRECTIVE.into(), directive.clone());
            return Err(unknown_directive(&directive, &patch));
        }
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered(node, &mut original, &mut patch)?;
    for (key, value) in patch {
        if let Some(name) = key.strip_prefix(DELETE_PREFIX) {
            if let (Some(Value::Array(items)), Value::Array(removed)) = (original.get_mut(name), &value) {
                let removed: HashSet<&Value> = removed.iter().collect();
                items.retain(|item| !removed.contains(item));
            }
            continue;
        }
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let (inner, _) = lookup(node, &key)?;
                Some(Value::Object(merge_maps(inner, old, new)?))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let (inner, how) = lookup(node, &key)?;
                Some(Value::Array(if how.merge { merge_lists(inner, &how, old, new)? } else { new }))
            }
            (_, fresh) => without_directives(without_nulls(fresh)),
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

/// Keeps only the keys that the patch lists in `$retainKeys`.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let invalid = || Error::Directive("invalid patch format of retainKeys");
    let keys: HashSet<&str> = keys.as_array().ok_or_else(invalid)?.iter().filter_map(Value::as_str).collect();
    let directive = |key: &str| key.starts_with(DELETE_PREFIX) || key.starts_with(ORDER_PREFIX);
    if patch.iter().any(|(key, value)| !value.is_null() && !directive(key) && !keys.contains(key.as_str())) {
        return Err(invalid());
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// Merges the lists for which the patch specifies an order, and sorts them by it.
fn merge_ordered(
    node: Option<Node<'_>>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), Error> {
    let ordered: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER_PREFIX)).cloned().collect();
    for directive in ordered {
        let name = &directive[ORDER_PREFIX.len()..];
        let Some(Value::Array(order)) = patch.get(&directive).cloned() else {
            return Err(no_list(patch.get(&directive).unwrap_or(&Value::Null)));
        };
        patch.remove(&directive);
        let (inner, how) = lookup(node, name)?;
        let list = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(no_list(&other)),
        };
        let live = list(original.get(name).cloned())?;
        let patched = list(patch.get(name).cloned())?;
        check_order(patched.as_deref().unwrap_or_default(), &order, &how)?;
        let previous = live.clone().unwrap_or_default();
        let merged = match (live, patched) {
            (None, None) => continue,
            (Some(live), None) => live,
            (None, Some(patched)) => match without_directives(Value::Array(patched)) {
                Some(Value::Array(items)) => items,
                _ => continue,
            },
            (Some(live), Some(patched)) if how.merge => merge_lists(inner, &how, live, patched)?,
            (Some(_), Some(patched)) => patched,
        };
        let (named, others) = partition(merged, &order, &how)?;
        original.insert(name.to_owned(), Value::Array(arrange(named, others, &order, &previous, &how)));
        patch.remove(name);
    }
    Ok(())
}

/// Rejects a value that should be a list.
fn no_list(value: &Value) -> Error {
    // Go has no name for the type of null.
    let type_name = if value.is_null() { "%!s(<nil>)" } else { go_type(value) };
    Error::Misfit(format!("expected a []interface {{}}, but received a {type_name}"))
}

/// Rejects a list whose items are not in the order that the patch specifies.
fn check_order(patch_items: &[Value], order: &[Value], how: &Patch) -> Result<(), Error> {
    let mut items = patch_items.iter().filter(|item| item.get(DIRECTIVE).is_none()).peekable();
    if order.is_empty() {
        return Ok(());
    }
    for expected in order {
        let Some(item) = items.peek() else { break };
        if identity(item, how)? == identity(expected, how)? {
            items.next();
        }
    }
    if items.peek().is_none() {
        return Ok(());
    }
    let print = |items: &[Value]| go_print(&Value::Array(items.to_vec()));
    Err(Error::Misfit(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        print(patch_items),
        print(order)
    )))
}

/// Returns the identity of an item of a merged list.
fn identity<'v>(item: &'v Value, how: &Patch) -> Result<&'v Value, Error> {
    match &how.key {
        None => Ok(item),
        Some(key) => item.get(&**key).ok_or_else(|| {
            Error::Misfit(format!("map: {} does not contain declared merge key: {key}", go_print(item)))
        }),
    }
}

/// The positions of list items by their merge keys; for duplicates, the first position.
struct Positions<'v>(HashMap<&'v Value, usize>);

impl<'v> Positions<'v> {
    fn of(items: &'v [Value], how: &Patch) -> Self {
        let mut positions = HashMap::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            if let Ok(found) = identity(item, how) {
                positions.entry(found).or_insert(at);
            }
        }
        Self(positions)
    }

    fn find(&self, item: &Value, how: &Patch) -> Option<usize> {
        self.0.get(identity(item, how).ok()?).copied()
    }
}

fn merge_lists(
    node: Option<Node<'_>>,
    how: &Patch,
    mut live: Vec<Value>,
    patch_items: Vec<Value>,
) -> Result<Vec<Value>, Error> {
    if live.is_empty() && patch_items.is_empty() {
        return Ok(live);
    }
    let sort = |item: &Value| std::mem::discriminant(item);
    if live
        .iter()
        .chain(&patch_items)
        .any(|item| sort(item) != sort(live.first().or(patch_items.first()).unwrap_or(item)))
    {
        let both = Value::Array(vec![Value::Array(live), Value::Array(patch_items)]);
        return Err(Error::Misfit(format!("list element types are not identical: {}", go_print(&both))));
    }
    let original = live.clone();
    let objects = live.iter().chain(&patch_items).any(Value::is_object);
    let mut added: Vec<Value> = Vec::new();
    if objects {
        let mut replace = false;
        let mut deleted: HashSet<Value> = HashSet::new();
        for item in patch_items {
            match item.get(DIRECTIVE).cloned() {
                None => added.push(item),
                Some(Value::String(directive)) if directive == "delete" => {
                    deleted.insert(identity(&item, how)?.clone());
                }
                Some(Value::String(directive)) if directive == "replace" => replace = true,
                Some(Value::String(directive)) if directive == "merge" => {
                    return Err(Error::Misfit("merging lists cannot yet be specified in the patch".into()));
                }
                Some(directive) => return Err(unknown_directive(&directive, item.as_object().unwrap_or(&Map::new()))),
            }
        }
        if replace {
            return Ok(added);
        }
        live.retain(|item| identity(item, how).map_or(true, |found| !deleted.contains(found)));
        let items = node.and_then(Node::items);
        added.iter().try_for_each(|item| identity(item, how).map(drop))?;
        // Added items are recorded so that duplicates in the patch match them.
        let mut known: HashMap<Value, usize> = HashMap::with_capacity(live.len() + added.len());
        for (at, item) in live.iter().enumerate() {
            if let Ok(found) = identity(item, how) {
                known.entry(found.clone()).or_insert(at);
            }
        }
        for item in &added {
            let found = identity(item, how)?;
            match (known.get(found), item) {
                (Some(at), Value::Object(new)) => {
                    let Value::Object(old) = live[*at].take() else {
                        return Err(Error::Misfit("an item of a merged list is not a map".into()));
                    };
                    live[*at] = Value::Object(merge_maps(items, old, new.clone())?);
                }
                _ => {
                    known.entry(found.clone()).or_insert(live.len());
                    live.push(item.clone());
                }
            }
        }
    } else {
        let mut known: HashSet<&Value> = original.iter().collect();
        live.extend(patch_items.iter().filter(|item| known.insert(item)).cloned());
        added = patch_items;
    }
    let (named, others) = partition(live, &added, how)?;
    Ok(arrange(named, others, &added, &original, how))
}

/// Splits items into those that a list names and the others.
fn partition(items: Vec<Value>, by: &[Value], how: &Patch) -> Result<(Vec<Value>, Vec<Value>), Error> {
    items.iter().try_for_each(|item| identity(item, how).map(drop))?;
    let by = Positions::of(by, how);
    Ok(items.into_iter().partition(|item| by.find(item, how).is_some()))
}

/// Sorts the named items by the given order, and inserts the others at their previous relative positions.
fn arrange(
    mut named: Vec<Value>,
    mut others: Vec<Value>,
    order: &[Value],
    before: &[Value],
    how: &Patch,
) -> Vec<Value> {
    let (order, before) = (Positions::of(order, how), Positions::of(before, how));
    named.sort_by_cached_key(|item| order.find(item, how));
    others.sort_by_cached_key(|item| before.find(item, how));
    let mut out = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let first = match (others.peek(), named.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(named)) => {
                let positions = before.find(other, how).zip(before.find(named, how));
                positions.is_some_and(|(other, named)| other < named)
            }
        };
        out.extend(if first { others.next() } else { named.next() });
    }
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> Error {
    Error::Misfit(format!(
        "unknown patch type: {} in map: {}",
        go_print(directive),
        go_print(&Value::Object(patch.clone()))
    ))
}

/// Removes values with a directive from a new value; `None` if the value itself has a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?))).collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        value => Some(value),
    }
}

/// Removes null fields from a new value, because there is nothing to delete.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name, without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::Library;
    use serde_json::json;

    const TYPES: &str = "package core/v1\n\nstruct Pod\n  containers []Container merge(name)\n  finalizers []string merge\n  args []string\n  \
                         labels {}string\n  strategy Strategy retain\nstruct Container\n  name string\n  image string\n  ports []Port merge(port)\n\
                         struct Port\n  port int32\n  name string\nstruct Strategy\n  type string\n  rolling {}string\n";

    fn patched(target: Value, patch: Value) -> Result<Value, String> {
        let library = Library::read(&[TYPES]);
        let (Value::Object(mut target), Value::Object(patch)) = (target, patch) else { panic!("objects") };
        strategic(library.get("core/v1", "Pod").unwrap().node(), &mut target, patch).map_err(|e| e.to_string())?;
        Ok(Value::Object(target))
    }

    #[test]
    fn lists_merge_by_their_key_new_items_first() {
        let target = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
        let patch = json!({"containers": [{"name": "c", "image": "3"}, {"name": "b", "image": "2"}]});
        let containers = json!([{"name": "c", "image": "3"}, {"name": "a", "image": "1"}, {"name": "b", "image": "2"}]);
        assert_eq!(patched(target.clone(), patch), Ok(json!({"containers": containers})));
        let patch = json!({"containers": [{"name": "c", "image": "3"}]});
        assert_eq!(patched(target, patch).unwrap()["containers"][0]["name"], "c");
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let target = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}], "finalizers": ["x", "y"], "labels": {"k": "v"}});
        let patch = |patch| patched(target.clone(), patch);
        assert_eq!(
            patch(json!({"containers": [{"name": "a", "$patch": "delete"}]})).unwrap()["containers"],
            json!([{"name": "b"}])
        );
        assert_eq!(
            patch(json!({"containers": [{"$patch": "replace"}, {"name": "z"}]})).unwrap()["containers"],
            json!([{"name": "z"}])
        );
        assert_eq!(patch(json!({"$deleteFromPrimitiveList/finalizers": ["x"]})).unwrap()["finalizers"], json!(["y"]));
        assert_eq!(patch(json!({"labels": {"$patch": "replace", "n": "w"}})).unwrap()["labels"], json!({"n": "w"}));
        let order = json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "image": "2"}]});
        assert_eq!(patch(order).unwrap()["containers"], json!([{"name": "b"}, {"name": "a", "image": "2"}]));
    }

    #[test]
    fn retain_keys_removes_other_keys() {
        let target = json!({"strategy": {"type": "RollingUpdate", "rolling": {"surge": "1"}}});
        let patch = json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}});
        assert_eq!(patched(target, patch), Ok(json!({"strategy": {"type": "Recreate"}})));
    }

    #[test]
    fn lists_without_merge_key_are_replaced_and_null_removes() {
        let target = json!({"args": ["a"], "finalizers": ["x"], "labels": {"k": "v"}});
        let patch = json!({"args": ["b"], "finalizers": ["y"], "labels": {"k": null, "n": "1", "m": null}});
        assert_eq!(patched(target, patch), Ok(json!({"args": ["b"], "finalizers": ["y", "x"], "labels": {"n": "1"}})));
    }

    #[test]
    fn invalid_patches_are_rejected() {
        let target = || json!({"containers": [{"name": "a"}], "labels": {}});
        assert_eq!(
            patched(target(), json!({"containers": [{"image": "i:6"}]})),
            Err("map: map[image:i:6] does not contain declared merge key: name".into())
        );
        assert_eq!(
            patched(target(), json!({"labels": {"$patch": "explode"}})),
            Err("unknown patch type: explode in map: map[$patch:explode]".into())
        );
        let order = json!({"$setElementOrder/containers": [{"name": "two"}], "containers": [{"name": "three"}]});
        assert!(patched(target(), order).unwrap_err().starts_with("The order in patch list:\n[map[name:three]]\n"));
    }
}
