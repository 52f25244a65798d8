//! Merges the configuration of an applier into the live object.

use super::compare::zip;
use super::path::PathElement;
use super::set::FieldSet;
use super::types::{Atom, ListAtom, Type};
use crate::schema::ListKind;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Merges two values; `None` if nothing is left.
pub(super) fn merge(ty: Type<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let either = || applied.or(live).cloned();
    match ty.atom(applied.or(live)) {
        Atom::Scalar(_) => either(),
        Atom::List(list) => {
            let (live, applied) = (live.and_then(Value::as_array), applied.and_then(Value::as_array));
            let empty = |items: Option<&Vec<Value>>| items.is_none_or(Vec::is_empty);
            if *list.kind == ListKind::Atomic || empty(live) && empty(applied) {
                return either();
            }
            let items = merge_lists(&list, live.map_or(&[], Vec::as_slice), applied.map_or(&[], Vec::as_slice));
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Atom::Map(map) => {
            let (live, applied) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            let empty = |entries: Option<&Map<String, Value>>| entries.is_none_or(Map::is_empty);
            if map.atomic || empty(live) && empty(applied) {
                return either();
            }
            let merged = zip(live, applied).filter_map(|(key, live, applied)| {
                let value = merge(map.get(key).unwrap_or(Type::Deduced), live, applied)?;
                Some((key.to_owned(), value))
            });
            let merged: Map<String, Value> = merged.collect();
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

/// Merges two lists whose items have keys: in the applier's order, with the other items at their previous positions.
fn merge_lists(list: &ListAtom<'_>, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let live = named(list, live);
    let applied = named(list, applied);
    // A live item that occurs twice is not merged, since the match is ambiguous.
    let mut in_live: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (name, item) in &live {
        in_live.entry(name).and_modify(|seen| *seen = None).or_insert(Some(item));
    }
    let in_applied: BTreeMap<&PathElement, &Value> = applied.iter().map(|(name, item)| (name, *item)).collect();
    let mut shared = applied.iter().map(|(name, _)| name).filter(|name| in_live.contains_key(name)).peekable();

    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let mut placed: BTreeSet<&PathElement> = BTreeSet::new();
    let mut take = |live: Option<&Value>, applied: Option<&Value>| {
        if live.is_some() || applied.is_some() {
            out.extend(merge(list.items, live, applied));
        }
    };
    let (mut l, mut w) = (0, 0);
    while l < live.len() || w < applied.len() {
        let (ours, theirs) = (live.get(l), applied.get(w));
        if let (Some((ours, _)), Some((theirs, _))) = (ours, theirs) {
            if ours == theirs {
                placed.insert(ours);
                take(in_live[ours], Some(in_applied[ours]));
                (l, w) = (l + 1, w + 1);
                shared.next();
                continue;
            }
            if in_applied.contains_key(ours) && shared.peek().is_some_and(|next| *next != ours) {
                l += 1; // the applier moves it
                continue;
            }
        }
        if let Some((ours, item)) = ours {
            if !in_applied.contains_key(ours) {
                take(Some(item), None);
                l += 1;
                continue;
            }
            if placed.contains(ours) {
                l += 1;
            }
        }
        if let Some((theirs, item)) = theirs {
            placed.insert(theirs);
            take(in_live.get(theirs).copied().flatten(), Some(item));
            w += 1;
            if shared.peek() == Some(&theirs) {
                shared.next();
            }
        }
    }
    out
}

/// Returns the items of a list with their keys, without items that have no key.
fn named<'v>(list: &ListAtom<'_>, items: &'v [Value]) -> Vec<(PathElement, &'v Value)> {
    items.iter().filter_map(|item| Some((list.element(item).ok()?, item))).collect()
}

/// Removes the items of a set from a value; values that become empty become null.
pub(super) fn remove(ty: Type<'_>, value: &Value, set: &FieldSet) -> Value {
    match (ty.atom(Some(value)), value) {
        (Atom::Scalar(_), value) => value.clone(),
        (Atom::List(list), Value::Array(items)) if *list.kind != ListKind::Atomic => {
            let remaining: Vec<Value> = items
                .iter()
                .filter_map(|item| match list.element(item).ok().and_then(|element| set.branch(&element)) {
                    None => Some(item.clone()),
                    Some(branch) if branch.member => None,
                    Some(branch) => Some(remove(list.items, item, &branch.below)),
                })
                .collect();
            if remaining.is_empty() { Value::Null } else { Value::Array(remaining) }
        }
        (Atom::Map(map), Value::Object(entries)) if !map.atomic => {
            let remaining = entries.iter().filter_map(|(key, value)| {
                let remaining = match set.branch(&PathElement::field(key)) {
                    None => value.clone(),
                    Some(branch) if branch.member => return None,
                    Some(branch) => remove(map.get(key).unwrap_or(Type::Deduced), value, &branch.below),
                };
                Some((key.clone(), remaining))
            });
            let remaining: Map<String, Value> = remaining.collect();
            if remaining.is_empty() { Value::Null } else { Value::Object(remaining) }
        }
        (Atom::List(_) | Atom::Map(_), _) => Value::Null,
    }
}
