//! Edits of single fields, with their undo.
//!
//! Both directions are JSON patches with tests, so the API server compares and changes in one step: an edit never
//! overwrites a value that differs from the expected one, neither when it is injected nor when it is undone. A value
//! that the operator or another client has set in between stays.

use flyball_core::pointer::unescape;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A change of one field of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "edit")]
pub enum Edit {
    /// Replaces, adds or removes a value.
    #[serde(rename_all = "camelCase")]
    Field {
        /// The path: segments after slashes as in a JSON pointer, or `[name=NAME]` for the item of a list.
        path: String,
        /// The value before, `None` if there was none.
        before: Option<Value>,
        /// The value that replaces it, `None` to remove it.
        after: Option<Value>,
    },
    /// Removes items from a list, and appends others.
    #[serde(rename_all = "camelCase")]
    Items {
        /// The path of the list.
        path: String,
        /// Removed items.
        #[serde(default)]
        removed: Vec<Value>,
        /// Their positions before.
        #[serde(default)]
        positions: Vec<usize>,
        /// Appended items.
        #[serde(default)]
        added: Vec<Value>,
    },
}

/// The reason why an edit does not apply to an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct EditError {
    path: String,
    problem: &'static str,
}

impl Edit {
    /// Returns the path of the field.
    pub fn path(&self) -> &str {
        match self {
            Self::Field { path, .. } | Self::Items { path, .. } => path,
        }
    }

    /// Creates an edit that sets or removes a field of an object. Missing parents are added.
    pub(crate) fn set(object: &Value, path: &str, after: Option<Value>) -> Result<Self, EditError> {
        let error = |problem| EditError { path: path.to_owned(), problem };
        let pointer = resolve(object, path).ok_or_else(|| error("no item of the list has this name"))?;
        let before = object.pointer(&pointer).cloned();
        if before == after {
            return Err(error("the field has this value already"));
        }
        let (parent, last) = path.rsplit_once('/').ok_or_else(|| error("expected a path such as /spec/replicas"))?;
        let parent_value = resolve(object, parent).and_then(|pointer| object.pointer(&pointer));
        match (parent_value, after) {
            (Some(Value::Object(_) | Value::Array(_)), after) => {
                Ok(Self::Field { path: path.to_owned(), before, after })
            }
            (None | Some(Value::Null), Some(after)) if !parent.is_empty() => {
                Self::set(object, parent, Some(json!({(unescape(last)): after})))
            }
            _ => Err(error("the parent of the field is neither an object nor a list")),
        }
    }

    /// Creates an edit that removes the items that fit from a list; `None` if no item fits.
    pub(crate) fn remove_items(object: &Value, path: &str, fits: impl Fn(&Value) -> bool) -> Option<Self> {
        let items = object.pointer(path)?.as_array()?.iter().enumerate();
        let (positions, removed): (Vec<usize>, Vec<Value>) =
            items.filter(|(_, item)| fits(item)).map(|(at, item)| (at, item.clone())).unzip();
        (!removed.is_empty()).then(|| Self::Items { path: path.to_owned(), removed, positions, added: Vec::new() })
    }

    /// Creates an edit that appends an item to a list.
    pub(crate) fn append_item(path: &str, item: Value) -> Self {
        Self::Items { path: path.to_owned(), removed: Vec::new(), positions: Vec::new(), added: vec![item] }
    }

    /// Returns the operations of a JSON patch that inject the edit.
    pub(crate) fn inject(&self, live: &Value) -> Result<Vec<Value>, EditError> {
        match self {
            Self::Field { path, before, after } => {
                replace(live, path, before.as_ref(), after.as_ref()).ok_or_else(|| self.error("has changed meanwhile"))
            }
            Self::Items { path, removed, added, .. } => {
                let list = items(live, path);
                let all = removed.iter().all(|item| list.contains(item));
                let absent = added.iter().all(|item| !list.contains(item));
                if !all || !absent {
                    return Err(self.error("the list has changed meanwhile"));
                }
                Ok(change_list(live, path, |list| {
                    list.retain(|item| !removed.contains(item));
                    list.extend(added.iter().cloned());
                }))
            }
        }
    }

    /// Returns the operations that undo the edit; none if the field no longer has the injected value.
    pub(crate) fn undo(&self, live: &Value) -> Vec<Value> {
        match self {
            Self::Field { path, before, after } => {
                replace(live, path, after.as_ref(), before.as_ref()).unwrap_or_default()
            }
            Self::Items { path, removed, positions, added } => {
                let list = items(live, path);
                let positions = positions.iter().copied().chain(std::iter::repeat(usize::MAX));
                let missing: Vec<(&Value, usize)> =
                    removed.iter().zip(positions).filter(|(item, _)| !list.contains(item)).collect();
                let is_clean = added.iter().all(|item| !list.contains(item));
                if missing.is_empty() && is_clean {
                    return Vec::new();
                }
                change_list(live, path, |list| {
                    list.retain(|item| !added.contains(item));
                    for (item, position) in missing {
                        list.insert(position.min(list.len()), item.clone());
                    }
                })
            }
        }
    }

    /// Returns true if another client has set a value that is neither the injected one nor the one before.
    pub(crate) fn is_overwritten(&self, live: &Value) -> bool {
        match self {
            Self::Field { path, before, after } => {
                let found = resolve(live, path).and_then(|pointer| live.pointer(&pointer));
                found != before.as_ref() && found != after.as_ref()
            }
            Self::Items { .. } => false,
        }
    }

    /// Replaces the injected value by the one that the API server stored, which may have defaults.
    pub(crate) fn record_stored(&mut self, stored: &Value) {
        if let Self::Field { path, after: after @ Some(_), .. } = self {
            let found = resolve(stored, path).and_then(|pointer| stored.pointer(&pointer));
            if let Some(found) = found {
                *after = Some(found.clone());
            }
        }
    }

    fn error(&self, problem: &'static str) -> EditError {
        EditError { path: self.path().to_owned(), problem }
    }
}

/// Returns the operations from one value to another; `None` if the field has another value.
fn replace(live: &Value, path: &str, from: Option<&Value>, to: Option<&Value>) -> Option<Vec<Value>> {
    let pointer = resolve(live, path)?;
    if live.pointer(&pointer) != from {
        return None;
    }
    let mut operations = guards(live, path);
    match (from, to) {
        (Some(from), Some(to)) => {
            operations.push(json!({"op": "test", "path": pointer, "value": from}));
            operations.push(json!({"op": "replace", "path": pointer, "value": to}));
        }
        (Some(from), None) => {
            operations.push(json!({"op": "test", "path": pointer, "value": from}));
            operations.push(json!({"op": "remove", "path": pointer}));
        }
        (None, Some(to)) => {
            operations.extend(add_parents(live, &pointer));
            operations.push(json!({"op": "add", "path": pointer, "value": to}));
        }
        (None, None) => {}
    }
    Some(operations)
}

/// Returns the operations that add the missing parents of a field: the API server drops empty maps.
fn add_parents(live: &Value, pointer: &str) -> Vec<Value> {
    let slashes = pointer.match_indices('/').map(|(at, _)| at).skip(1);
    let missing = slashes.map(|at| &pointer[..at]).filter(|parent| live.pointer(parent).is_none_or(Value::is_null));
    let added: Vec<Value> = missing.map(|parent| json!({"op": "add", "path": parent, "value": {}})).collect();
    if added.is_empty() { added } else { [vec![unchanged(live)], added].concat() }
}

/// Returns a test that no other client has changed the object, for fields whose absence no other test expresses.
pub(crate) fn unchanged(live: &Value) -> Value {
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]})
}

fn items<'a>(live: &'a Value, path: &str) -> &'a [Value] {
    live.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn change_list(live: &Value, path: &str, change: impl FnOnce(&mut Vec<Value>)) -> Vec<Value> {
    let mut list = items(live, path).to_vec();
    match live.pointer(path) {
        Some(old) => {
            change(&mut list);
            let old = old.clone();
            let test = json!({"op": "test", "path": path, "value": old});
            match list.is_empty() {
                true => vec![test, json!({"op": "remove", "path": path})],
                false => vec![test, json!({"op": "replace", "path": path, "value": list})],
            }
        }
        None => {
            change(&mut list);
            match list.is_empty() {
                true => Vec::new(),
                false => vec![unchanged(live), json!({"op": "add", "path": path, "value": list})],
            }
        }
    }
}

/// Returns tests of the names of the items on a path, whose indexes may have changed at the API server.
fn guards(live: &Value, path: &str) -> Vec<Value> {
    let (mut pointer, mut tests) = (String::new(), Vec::new());
    for segment in path.split('/').skip(1) {
        match (item_name(segment), live.pointer(&pointer).and_then(Value::as_array)) {
            (Some(name), Some(list)) => {
                let index = list.iter().position(|item| item["name"] == name).unwrap_or(list.len());
                pointer = format!("{pointer}/{index}");
                tests.push(json!({"op": "test", "path": format!("{pointer}/name"), "value": name}));
            }
            _ => pointer = format!("{pointer}/{segment}"),
        }
    }
    tests
}

/// Returns the JSON pointer of a path in an object; `None` if a list has no item with the name.
fn resolve(object: &Value, path: &str) -> Option<String> {
    let mut pointer = String::new();
    for segment in path.split('/').skip(1) {
        match item_name(segment) {
            Some(name) => {
                let list = object.pointer(&pointer)?.as_array()?;
                let index = list.iter().position(|item| item["name"] == name)?;
                pointer = format!("{pointer}/{index}");
            }
            None => pointer = format!("{pointer}/{segment}"),
        }
    }
    Some(pointer)
}

fn item_name(segment: &str) -> Option<&str> {
    segment.strip_prefix("[name=")?.strip_suffix(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({"spec": {"replicas": 2, "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}})
    }

    #[test]
    fn edits_are_undone_unless_another_value_was_set() {
        let object = deployment();
        let edit = Edit::set(&object, "/spec/replicas", Some(json!(0))).unwrap();
        let forward = edit.inject(&object).unwrap();
        assert_eq!(forward[0], json!({"op": "test", "path": "/spec/replicas", "value": 2}));
        assert_eq!(forward[1], json!({"op": "replace", "path": "/spec/replicas", "value": 0}));
        let injected = json!({"spec": {"replicas": 0}});
        assert_eq!(edit.undo(&injected)[1], json!({"op": "replace", "path": "/spec/replicas", "value": 2}));
        let scaled = json!({"spec": {"replicas": 5}});
        assert_eq!(edit.undo(&scaled), Vec::<Value>::new(), "another client has scaled it");
        assert!(edit.is_overwritten(&scaled) && !edit.is_overwritten(&injected) && !edit.is_overwritten(&object));
        assert!(edit.inject(&injected).is_err());
    }

    #[test]
    fn items_of_lists_are_found_by_name() {
        let edit = Edit::set(&deployment(), "/spec/containers/[name=b]/image", Some(json!("z"))).unwrap();
        let moved = json!({"spec": {"containers": [{"name": "b", "image": "z"}]}});
        assert_eq!(
            edit.undo(&moved),
            [
                json!({"op": "test", "path": "/spec/containers/0/name", "value": "b"}),
                json!({"op": "test", "path": "/spec/containers/0/image", "value": "z"}),
                json!({"op": "replace", "path": "/spec/containers/0/image", "value": "y"}),
            ]
        );
        assert_eq!(edit.undo(&json!({"spec": {"containers": []}})), Vec::<Value>::new());
        assert!(Edit::set(&deployment(), "/spec/containers/[name=c]/image", Some(json!("z"))).is_err());
    }

    #[test]
    fn missing_parents_are_added_and_removed() {
        let object = json!({"metadata": {"name": "a"}});
        let edit = Edit::set(&object, "/metadata/labels/example.com~1tier", Some(json!("b"))).unwrap();
        let labels = json!({"example.com/tier": "b"});
        assert_eq!(edit.inject(&object).unwrap(), [json!({"op": "add", "path": "/metadata/labels", "value": labels})]);
        let undo = edit.undo(&json!({"metadata": {"labels": labels}}));
        assert_eq!(undo[1], json!({"op": "remove", "path": "/metadata/labels"}));
        // The API server drops the map with its last label.
        let object = json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}});
        let removal = Edit::set(&object, "/metadata/labels/a", None).unwrap();
        assert_eq!(
            removal.undo(&json!({"metadata": {"resourceVersion": "8"}})),
            [
                json!({"op": "test", "path": "/metadata/resourceVersion", "value": "8"}),
                json!({"op": "add", "path": "/metadata/labels", "value": {}}),
                json!({"op": "add", "path": "/metadata/labels/a", "value": "b"}),
            ]
        );
    }

    #[test]
    fn items_return_to_their_positions_beside_new_ones() {
        let object = json!({"subjects": [{"name": "operator"}, {"name": "other"}]});
        let edit = Edit::remove_items(&object, "/subjects", |item| item["name"] == "operator").unwrap();
        let live = json!({"subjects": [{"name": "other"}, {"name": "new"}]});
        let expected = json!([{"name": "operator"}, {"name": "other"}, {"name": "new"}]);
        assert_eq!(edit.undo(&live)[1]["value"], expected);
        assert_eq!(edit.undo(&object), Vec::<Value>::new());
        assert_eq!(
            edit.undo(&json!({}))[1],
            json!({"op": "add", "path": "/subjects", "value": [{"name": "operator"}]})
        );
        let block = Edit::append_item("/metadata/finalizers", json!("a/b"));
        let live = json!({"metadata": {"finalizers": ["a/b"]}});
        assert_eq!(block.undo(&live)[1], json!({"op": "remove", "path": "/metadata/finalizers"}));
        assert!(block.inject(&live).is_err());
    }
}
