//! Compares two values of one type.

use super::path::PathElement;
use super::set::{Branch, FieldSet};
use super::types::{Atom, ListAtom, Type};
use crate::schema::ListKind;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The differences of two objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    /// Fields that are new or have a different value.
    pub(super) written: FieldSet,
}

impl Comparison {
    /// Compares two objects.
    pub(super) fn of(ty: Type<'_>, old: &Value, new: &Value) -> Self {
        let mut delta = Delta::default();
        delta.compare(ty, Some(old), Some(new));
        Self { removed: delta.removed.collect().below, written: delta.written.collect().below }
    }

    /// Excludes paths, with all paths below them.
    pub(super) fn without(self, ignored: &FieldSet) -> Self {
        if ignored.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(ignored),
            written: self.written.recursive_difference(ignored),
        }
    }
}

/// The differences at and below one element.
#[derive(Default)]
struct Delta {
    removed: Found,
    written: Found,
}

/// The paths at and below one element that were found, in any order.
#[derive(Default)]
struct Found {
    member: bool,
    below: Vec<(PathElement, Branch)>,
}

impl Found {
    fn collect(self) -> Branch {
        Branch { member: self.member, below: self.below.into_iter().collect() }
    }
}

impl Delta {
    fn compare(&mut self, ty: Type<'_>, old: Option<&Value>, new: Option<&Value>) {
        let leaf = match (old, new) {
            (_, None) => self.visit(ty.atom(old), old, new),
            (None, Some(_)) => self.visit(ty.atom(new), old, new),
            (Some(_), Some(_)) => {
                let (before, after) = (ty.atom(old), ty.atom(new));
                if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
                    self.visit(before, old, new);
                }
                self.visit(after, old, new)
            }
        };
        if !leaf {
            self.written.member |= old.is_none();
            self.removed.member |= new.is_none();
        }
    }

    /// Compares two values of one type; returns true if they are atomic.
    fn visit(&mut self, atom: Atom<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        match atom {
            Atom::Scalar(_) => {}
            Atom::List(list) => {
                let (old, new) = (items(old), items(new));
                if *list.kind != ListKind::Atomic && !(old.is_empty() && new.is_empty()) {
                    self.lists(&list, old, new);
                    return false;
                }
            }
            Atom::Map(map) => {
                let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
                let empty = |map: Option<&Map<String, Value>>| map.is_none_or(Map::is_empty);
                let nothing = empty(old) && empty(new);
                if !map.atomic && !nothing {
                    for (key, before, after) in zip(old, new).filter(|(_, before, after)| before != after) {
                        self.descend(PathElement::field(key), map.get(key).unwrap_or(Type::Deduced), before, after);
                    }
                    return false;
                }
            }
        }
        match (old, new) {
            (None, _) => self.written.member = true,
            (_, None) => self.removed.member = true,
            (Some(old), Some(new)) => self.written.member |= old != new,
        }
        true
    }

    fn descend(&mut self, element: PathElement, ty: Type<'_>, old: Option<&Value>, new: Option<&Value>) {
        let mut inner = Delta::default();
        inner.compare(ty, old, new);
        let (removed, written) = (inner.removed.collect(), inner.written.collect());
        if !removed.is_empty() {
            self.removed.below.push((element.clone(), removed));
        }
        if !written.is_empty() {
            self.written.below.push((element, written));
        }
    }

    fn lists(&mut self, list: &ListAtom<'_>, old: &[Value], new: &[Value]) {
        // Stored lists may contain duplicates, because they may be older than the schema that forbids them.
        let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            list.element(item).into_iter().for_each(|element| items.entry(element).or_default().0.push(item));
        }
        for item in new {
            list.element(item).into_iter().for_each(|element| items.entry(element).or_default().1.push(item));
        }
        for (element, (before, after)) in items {
            match (&before[..], &after[..]) {
                ([] | [_], [] | [_]) => {
                    if before != after {
                        self.descend(element, list.items, before.first().copied(), after.first().copied());
                    }
                }
                ([_, _, ..], [_, _, ..]) => {
                    if before != after {
                        self.written.below.push((element, Branch::MEMBER));
                    }
                }
                ([_, _, ..], after) => {
                    if let Some(after) = after.first() {
                        self.descend(element.clone(), list.items, None, Some(after));
                    }
                    self.removed.below.push((element, Branch::MEMBER));
                }
                (before, _) => {
                    if let Some(before) = before.first() {
                        self.descend(element.clone(), list.items, Some(before), None);
                    }
                    self.written.below.push((element, Branch::MEMBER));
                }
            }
        }
    }
}

/// Returns the items of a list; none if the value is not a list.
fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Pairs the entries of two maps by key.
pub(super) fn zip<'v>(
    old: Option<&'v Map<String, Value>>,
    new: Option<&'v Map<String, Value>>,
) -> impl Iterator<Item = (&'v str, Option<&'v Value>, Option<&'v Value>)> {
    let theirs = old
        .into_iter()
        .flatten()
        .map(move |(key, before)| (key.as_str(), Some(before), new.and_then(|new| new.get(key))));
    let added = new.into_iter().flatten().filter(move |(key, _)| old.is_none_or(|old| !old.contains_key(*key)));
    theirs.chain(added.map(|(key, after)| (key.as_str(), None, Some(after))))
}
