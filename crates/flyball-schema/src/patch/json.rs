//! JSON patch (RFC 6902), with the deviations of kube-apiserver.
//!
//! A replace of a missing field adds it, a negative index counts from the end, a test for null succeeds if the field is
//! absent, an operation without a value uses null, an empty path refers to the whole document, and text before the
//! first slash of a path is ignored.
//!
//! While a patch is applied, the depth of the document, the copied bytes and the work are limited. If the document is
//! no deeper than `MAX_DEPTH`, neither is the result.

use crate::extent::{Extent, MAX_DEPTH};
use Error::{Misfit, TooLarge};
use flyball_core::memory;
use flyball_core::pointer;
use serde_json::{Map, Value};
use std::collections::VecDeque;

/// Maximum number of operations in one patch.
pub const MAX_OPERATIONS: usize = 10_000;

/// Maximum number of steps in one path.
pub const MAX_TOKENS: usize = 128;

/// Maximum number of bytes that one patch copies, as in kube-apiserver.
const MAX_COPIED_BYTES: usize = 3 << 20;

/// Maximum number of bytes of memory that the copies of one patch take: small maps take far more than their text.
const MAX_COPIED_MEMORY: usize = 32 << 20;

/// Maximum number of values that the operations of one patch insert or traverse.
const MAX_WORK: usize = 8 << 20;

/// Number of list items whose shift costs as much as traversing a value.
const SHIFTS: usize = 8;

/// An error of applying a patch, with the message of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch exceeds a limit.
    #[error("{0}")]
    TooLarge(String),
    /// The patch is malformed, or does not match the document.
    #[error("{0}")]
    Misfit(String),
    /// A test failed: the value at this path differs.
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
}

impl From<Error> for super::Error {
    fn from(failure: Error) -> Self {
        Self(failure.to_string())
    }
}

/// Applies the operations of a patch in order; after an error, the document is partially patched and must be discarded.
pub fn apply(document: &mut Value, operations: &[Value]) -> Result<(), Error> {
    if operations.len() > MAX_OPERATIONS {
        let message = format!("a JSON patch has at most {MAX_OPERATIONS} operations, not {}", operations.len());
        return Err(TooLarge(message));
    }
    let mut budget = Budget { bytes: MAX_COPIED_BYTES, memory: MAX_COPIED_MEMORY, work: MAX_WORK };
    let mut rest = operations;
    while !rest.is_empty() {
        let (run, next) = rest.split_at(run_length(rest));
        match run.len() {
            1 => step(document, &run[0], &mut budget)?,
            _ => run_on_one_parent(document, run, &mut budget)?,
        }
        rest = next;
    }
    Ok(())
}

/// Returns the path to the object or list that an operation changes or tests a value of.
fn parent_path(operation: &Value) -> Option<&str> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    matches!(text("op")?, "add" | "remove" | "replace" | "test").then_some(())?;
    text("path")?.rsplit_once('/').map(|(parent, _)| parent)
}

/// Returns the number of operations at the beginning that have the same parent, at least one.
fn run_length(operations: &[Value]) -> usize {
    let first = operations.first().and_then(parent_path);
    operations.iter().take_while(|operation| first.is_some() && parent_path(operation) == first).count().max(1)
}

/// Applies operations on values of the same object or list. Items of a list are added and removed in a double-ended
/// queue: a patch that empties a long list from its beginning would shift the rest for each item otherwise.
fn run_on_one_parent(document: &mut Value, run: &[Value], budget: &mut Budget) -> Result<(), Error> {
    let first = run.first().and_then(|operation| Pointer::parse(operation.get("path")?.as_str()?).ok());
    let list = first.as_ref().and_then(|path| match path.parent(document, "").ok()?.0 {
        Value::Array(items) => Some(items),
        _ => None,
    });
    let Some(list) = list else {
        return run.iter().try_for_each(|operation| step(document, operation, budget));
    };
    let mut items = VecDeque::from(std::mem::take(list));
    run.iter().try_for_each(|operation| step_in_list(&mut items, operation, budget))?;
    *list = items.into();
    Ok(())
}

/// Applies an operation on an item of a list.
fn step_in_list(items: &mut VecDeque<Value>, operation: &Value, budget: &mut Budget) -> Result<(), Error> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
    let path = Pointer::parse(text("path"))?;
    let last = path.tokens.last().map_or("", String::as_str);
    let value = operation.get("value").unwrap_or(&Value::Null);
    // The shorter part of the list is shifted.
    let shift = |at: usize| at.min(items.len() - at) / SHIFTS;
    match text("op") {
        "add" => {
            budget.charge_insert(&path, Extent::of(value))?;
            let at = path.new_item(last, items.len())?;
            budget.work(shift(at))?;
            items.insert(at, value.clone());
        }
        "remove" => {
            let at = path.item("remove", last, items.len())?;
            budget.work(shift(at))?;
            items.remove(at);
        }
        "replace" => {
            budget.charge_insert(&path, Extent::of(value))?;
            let at = path.item("replace", last, items.len())?;
            items[at] = value.clone();
        }
        _ => check(&path, index(last, items.len()).and_then(|at| items.get(at)), value)?,
    }
    Ok(())
}

/// Checks the value found by a test.
fn check(path: &Pointer<'_>, found: Option<&Value>, value: &Value) -> Result<(), Error> {
    match found {
        Some(found) if found == value => Ok(()),
        None if value.is_null() => Ok(()),
        _ => Err(Error::TestFailed(path.text.to_owned())),
    }
}

fn step(document: &mut Value, operation: &Value, budget: &mut Budget) -> Result<(), Error> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let path = Pointer::parse(text("path").ok_or_else(|| Misfit("an operation has no path".into()))?)?;
    let from = || Pointer::parse(text("from").ok_or_else(|| Misfit("an operation has no from".into()))?);
    let value = operation.get("value").unwrap_or(&Value::Null);
    match text("op") {
        Some("add") => {
            budget.charge_insert(&path, Extent::of(value))?;
            path.add(document, value.clone(), budget)
        }
        Some("remove") => path.remove(document, "remove", path.text, budget).map(drop),
        Some("replace") => {
            budget.charge_insert(&path, Extent::of(value))?;
            path.replace(document, value.clone())
        }
        Some("move") => {
            let moved = from()?.remove(document, "move", path.text, budget)?;
            budget.charge_insert(&path, Extent::of(&moved))?;
            path.add(document, moved, budget)
        }
        Some("copy") => {
            let copied = from()?.get(document).ok_or_else(|| {
                let from = text("from").unwrap_or_default();
                Misfit(format!("copy operation does not apply: doc is missing from path: {from}: missing value"))
            })?;
            let extent = Extent::of(copied);
            budget.copy(extent.bytes, memory::of(copied))?;
            budget.charge_insert(&path, extent)?;
            let copied = copied.clone();
            path.add(document, copied, budget)
        }
        Some("test") => check(&path, if path.is_whole() { Some(&*document) } else { path.get(document) }, value),
        other => Err(Misfit(format!("Unexpected kind: {}", other.unwrap_or("unknown")))),
    }
}

/// The remaining budget of a patch.
struct Budget {
    /// Bytes that may be copied.
    bytes: usize,
    /// Bytes of memory that copies may take.
    memory: usize,
    /// Values that may be traversed.
    work: usize,
}

impl Budget {
    /// Charges for a value inserted at a path, and rejects values that would be nested too deep.
    fn charge_insert(&mut self, path: &Pointer<'_>, extent: Extent) -> Result<(), Error> {
        let depth = path.tokens.len() + extent.depth;
        if depth > MAX_DEPTH {
            return Err(TooLarge(format!("the patch nests the document {depth} levels deep, more than {MAX_DEPTH}")));
        }
        self.work(extent.values)
    }

    fn copy(&mut self, bytes: usize, memory: usize) -> Result<(), Error> {
        let remaining = self.bytes.checked_sub(bytes);
        self.bytes = remaining.ok_or_else(|| {
            let accumulated = MAX_COPIED_BYTES - self.bytes + bytes;
            TooLarge(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {accumulated}, exceeding the limit {MAX_COPIED_BYTES}"
            ))
        })?;
        let remaining = self.memory.checked_sub(memory);
        self.memory = remaining
            .ok_or_else(|| TooLarge(format!("the copies take more than {} MiB of memory", MAX_COPIED_MEMORY >> 20)))?;
        Ok(())
    }

    fn work(&mut self, values: usize) -> Result<(), Error> {
        let remaining = self.work.checked_sub(values);
        self.work = remaining.ok_or_else(|| {
            TooLarge("the operations of the patch exceed the work limit: send several patches".into())
        })?;
        Ok(())
    }
}

/// A JSON pointer (RFC 6901).
struct Pointer<'p> {
    text: &'p str,
    /// The part after the first slash; `None` if there is no slash.
    tokens: Vec<String>,
}

impl<'p> Pointer<'p> {
    fn parse(text: &'p str) -> Result<Self, Error> {
        let tokens = || text.split('/').skip(1);
        let count = tokens().count();
        if count > MAX_TOKENS {
            return Err(TooLarge(format!("a path has {count} steps, more than {MAX_TOKENS}")));
        }
        Ok(Self { text, tokens: tokens().map(|token| pointer::unescape(token).into_owned()).collect() })
    }

    /// Returns true if the pointer refers to the whole document.
    fn is_whole(&self) -> bool {
        self.text.is_empty()
    }

    /// Creates the error for a missing parent of a path.
    fn missing(&self, operation: &str) -> Error {
        let path = match operation {
            "add" | "remove" => format!("path: \"{}\"", self.text),
            "move" => format!("from path: {}", self.text),
            _ => format!("path: {}", self.text),
        };
        Misfit(format!("{operation} operation does not apply: doc is missing {path}: missing value"))
    }

    /// Creates the error for an index out of range.
    fn outside(&self, operation: &str, token: &str) -> Error {
        let reason = match token.parse::<i64>() {
            Ok(at) => format!("Unable to access invalid index: {at}: invalid index referenced"),
            Err(_) => format!("strconv.Atoi: parsing {token:?}: invalid syntax"),
        };
        Misfit(format!("error in {operation} for path: '{}': {reason}", self.text))
    }

    /// Returns the position of an item in a list of this length, for an operation.
    fn item(&self, operation: &str, token: &str, length: usize) -> Result<usize, Error> {
        index(token, length).filter(|at| *at < length).ok_or_else(|| self.outside(operation, token))
    }

    /// Returns the position at which an item is added to a list of this length.
    fn new_item(&self, token: &str, length: usize) -> Result<usize, Error> {
        // -1 is the position after the last item: negative indexes count from the end after the addition.
        let at = if token == "-" { Some(length) } else { index(token, length + 1) };
        at.filter(|at| *at <= length).ok_or_else(|| self.outside("add", token))
    }

    /// Finds a value within the document.
    fn get<'d>(&self, document: &'d Value) -> Option<&'d Value> {
        (!self.tokens.is_empty()).then_some(())?;
        self.tokens.iter().try_fold(document, |value, token| match value {
            Value::Object(fields) => fields.get(token),
            Value::Array(items) => items.get(index(token, items.len())?),
            _ => None,
        })
    }

    /// Finds the parent of the last token.
    fn parent<'d>(&self, document: &'d mut Value, operation: &str) -> Result<(&'d mut Value, &str), Error> {
        let (last, before) = self.tokens.split_last().ok_or_else(|| self.missing(operation))?;
        let parent = before.iter().try_fold(document, |value, token| match value {
            Value::Object(fields) => fields.get_mut(token),
            Value::Array(items) => index(token, items.len()).and_then(|at| items.get_mut(at)),
            _ => None,
        });
        Ok((parent.ok_or_else(|| self.missing(operation))?, last))
    }

    /// Replaces the whole document by an object or a list; other values are ignored.
    fn replace_whole(document: &mut Value, value: Value) {
        if value.is_object() || value.is_array() {
            *document = value;
        }
    }

    fn add(&self, document: &mut Value, value: Value, budget: &mut Budget) -> Result<(), Error> {
        if self.is_whole() {
            Self::replace_whole(document, value);
            return Ok(());
        }
        let (parent, last) = self.parent(document, "add")?;
        match parent {
            Value::Object(fields) => put(fields, last, value),
            Value::Array(items) => {
                let at = self.new_item(last, items.len())?;
                budget.work((items.len() - at) / SHIFTS)?;
                items.insert(at, value);
            }
            _ => return Err(self.missing("add")),
        }
        Ok(())
    }

    fn replace(&self, document: &mut Value, value: Value) -> Result<(), Error> {
        if self.is_whole() {
            Self::replace_whole(document, value);
            return Ok(());
        }
        let (parent, last) = self.parent(document, "replace")?;
        match parent {
            Value::Object(fields) => put(fields, last, value),
            Value::Array(items) => {
                let at = self.item("replace", last, items.len())?;
                items[at] = value;
            }
            _ => return Err(self.missing("replace")),
        }
        Ok(())
    }

    /// Removes the value at a path, for an operation.
    fn remove(&self, document: &mut Value, operation: &str, about: &str, budget: &mut Budget) -> Result<Value, Error> {
        let (parent, last) = self.parent(document, operation)?;
        match parent {
            Value::Object(fields) => fields.remove(last).ok_or_else(|| {
                Misfit(format!(
                    "error in {operation} for path: '{about}': Unable to remove nonexistent key: {last}: missing value"
                ))
            }),
            Value::Array(items) => {
                let at = self.item(operation, last, items.len())?;
                budget.work((items.len() - at) / SHIFTS)?;
                Ok(items.remove(at))
            }
            _ => Err(self.missing(operation)),
        }
    }
}

fn put(fields: &mut Map<String, Value>, name: &str, value: Value) {
    fields.insert(name.to_owned(), value);
}

/// Parses an index into a list of this length; negative indexes count from the end.
fn index(token: &str, length: usize) -> Option<usize> {
    match token.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok()?),
        None => token.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(document: Value, operations: Value) -> Result<Value, Error> {
        let mut document = document;
        apply(&mut document, operations.as_array().unwrap()).map(|()| document)
    }

    #[test]
    fn copies_of_small_maps_are_limited_by_their_memory() {
        let maps: Vec<Value> = (0..30_000).map(|_| json!({"a": 1})).collect();
        let copies = |count: usize| (0..count).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/{n}")}));
        let copied = |count: usize| patched(json!({"a": maps}), copies(count).collect());
        assert!(copied(1).is_ok());
        assert!(copied(2).unwrap_err().to_string().contains("more than 32 MiB of memory"));
    }

    #[test]
    fn operations_follow_the_rfc() {
        let cases = [
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
            (json!({"l": [1, 3]}), json!([{"op": "add", "path": "/l/1", "value": 2}]), json!({"l": [1, 2, 3]})),
            (json!({"l": [1]}), json!([{"op": "add", "path": "/l/-", "value": 2}]), json!({"l": [1, 2]})),
            (json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/a"}]), json!({"b": 2})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": 2}]), json!({"a": 2})),
            (json!({"a": {"x": 1}}), json!([{"op": "move", "from": "/a/x", "path": "/y"}]), json!({"a": {}, "y": 1})),
            (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"a": 1, "b": 1})),
            (
                json!({"a/b": 1, "c~d": 2}),
                json!([{"op": "test", "path": "/a~1b", "value": 1}, {"op": "test", "path": "/c~0d", "value": 2}]),
                json!({"a/b": 1, "c~d": 2}),
            ),
        ];
        for (document, operations, expected) in cases {
            assert_eq!(patched(document, operations.clone()), Ok(expected), "{operations}");
        }
    }

    #[test]
    fn deviations_of_kube_apiserver_are_followed() {
        assert_eq!(patched(json!({}), json!([{"op": "replace", "path": "/a", "value": 1}])), Ok(json!({"a": 1})));
        assert_eq!(patched(json!({"l": [1, 2]}), json!([{"op": "remove", "path": "/l/-1"}])), Ok(json!({"l": [1]})));
        assert_eq!(
            patched(json!({"l": [1, 2]}), json!([{"op": "add", "path": "/l/-1", "value": 3}])),
            Ok(json!({"l": [1, 2, 3]}))
        );
        assert!(patched(json!({}), json!([{"op": "test", "path": "/a", "value": null}])).is_ok());
        assert_eq!(patched(json!({}), json!([{"op": "add", "path": "/a"}])), Ok(json!({"a": null})));
        assert_eq!(patched(json!({"data": {}}), json!([{"op": "add", "path": "data/k", "value": 1}])), {
            Ok(json!({"data": {}, "k": 1}))
        });
        for operation in ["add", "replace"] {
            let whole = json!([{"op": operation, "path": "", "value": {"b": 2}}]);
            assert_eq!(patched(json!({"a": 1}), whole), Ok(json!({"b": 2})));
        }
        assert!(patched(json!({"a": 1}), json!([{"op": "test", "path": "", "value": {"a": 1}}])).is_ok());
    }

    fn depth(value: &Value) -> usize {
        Extent::of(value).depth
    }

    #[test]
    fn paths_beyond_the_token_limit_are_rejected() {
        for tokens in [1, 2, 127, 128, 129, 1_000, 20_000, 100_000] {
            let long = "/a".repeat(tokens);
            for operation in ["test", "add", "copy", "move", "remove", "replace"] {
                for (from, path) in [(&*long, "/b"), ("/b", &*long), (&*long, &*long)] {
                    let reads_from = matches!(operation, "copy" | "move");
                    let patch = json!([{"op": operation, "path": path, "from": from, "value": null}]);
                    let is_long = tokens > MAX_TOKENS && (path == long || reads_from && from == long);
                    assert!(!is_long || patched(json!({"b": {}}), patch).is_err(), "{operation} {tokens}");
                }
            }
        }
    }

    #[test]
    fn doubling_copies_stop_at_kube_apiservers_limit() {
        for steps in 10..=40 {
            let copy = |n| json!({"op": "copy", "from": "/a", "path": format!("/a/c{n}")});
            match patched(json!({"a": {"text": "x".repeat(64)}}), (0..steps).map(copy).collect()) {
                Ok(document) => assert!(steps < 17 && Extent::of(&document).bytes <= 2 * MAX_COPIED_BYTES, "{steps}"),
                Err(error) => {
                    assert!(steps > 14 && error.to_string().contains("accumulated size increase"), "{steps} {error}")
                }
            }
        }
    }

    #[test]
    fn moves_cannot_exceed_the_depth_limit() {
        // Each iteration moves the whole document below a new chain.
        let chain = |deep: usize| (0..deep).fold(json!({}), |inner, _| json!({"x": inner}));
        let round = [
            json!({"op": "add", "path": "/b", "value": chain(50)}),
            json!({"op": "move", "from": "/a", "path": format!("/b{}/y", "/x".repeat(50))}),
            json!({"op": "move", "from": "/b", "path": "/a"}),
        ];
        for rounds in [1, 2, 3, 3_000] {
            let operations = round.iter().cycle().take(3 * rounds).cloned().collect();
            match patched(json!({"a": {}}), operations) {
                Ok(document) => assert!(depth(&document) <= MAX_DEPTH),
                Err(error) => assert!(rounds > 2 && error.to_string().contains("levels deep"), "{error}"),
            }
        }
    }

    #[test]
    fn consecutive_operations_on_a_list_equal_separate_ones() {
        let paths = ["/l/0", "/l/1", "/l/-1", "/l/-", "/l/2", "/l/9", "/l/x", "/l/-9", "/l/1/a"];
        let operations = ["add", "remove", "replace", "test"].into_iter().flat_map(|op| {
            paths
                .iter()
                .flat_map(move |path| [json!({"op": op, "path": path, "value": 7}), json!({"op": op, "path": path})])
        });
        let operations = Vec::from_iter(operations);
        for first in &operations {
            for second in &operations {
                let patch = [first.clone(), second.clone(), json!({"op": "add", "path": "/l/0", "value": 8})];
                let (mut once, mut one_by_one) = (json!({"l": [7, {"a": 7}, 9]}), json!({"l": [7, {"a": 7}, 9]}));
                let expected = patch.chunks(1).try_for_each(|operation| apply(&mut one_by_one, operation));
                assert_eq!(apply(&mut once, &patch), expected, "{patch:?}");
                assert!(expected.is_err() || once == one_by_one, "{patch:?}: {once} {one_by_one}");
            }
        }
    }

    #[test]
    fn long_list_can_be_emptied_from_its_beginning() {
        // Shifting the rest of the list for each item would exceed the work limit.
        let list: Vec<Value> = (0..100_000).map(Value::from).collect();
        let operations = vec![json!({"op": "remove", "path": "/l/0"}); MAX_OPERATIONS];
        let mut document = json!({"l": list});
        apply(&mut document, &operations).unwrap();
        assert_eq!(document["l"].as_array().unwrap().len(), 100_000 - MAX_OPERATIONS);
        assert_eq!(document["l"][0], MAX_OPERATIONS);
    }

    #[test]
    fn repeated_moves_in_a_long_list_are_rejected() {
        let list: Vec<Value> = (0..1_000_000).map(Value::from).collect();
        let shift = json!({"op": "move", "from": "/l/0", "path": "/l/-"});
        let operations = vec![shift; MAX_OPERATIONS];
        let error = apply(&mut json!({"l": list}), &operations).unwrap_err();
        assert!(error.to_string().contains("exceed the work limit"), "{error}");
    }

    #[test]
    fn invalid_operations_are_rejected() {
        for operation in [
            json!({"op": "remove", "path": "/none"}),
            json!({"op": "add", "path": "/none/x", "value": 1}),
            json!({"op": "append", "path": "/a", "value": 1}),
            json!({"op": "add", "path": "a", "value": 1}),
            json!({"op": "remove", "path": ""}),
            json!({"op": "copy", "from": "", "path": "/b"}),
            json!({"op": "test", "path": "/a", "value": 2}),
            json!({"op": "move", "from": "/none", "path": "/b"}),
            json!({"op": "add", "path": "/l/9", "value": 1}),
            json!({"op": "replace", "path": "/l/5", "value": 1}),
            json!({"op": "remove", "path": "/l/-9"}),
            json!({"op": "add", "value": 1}),
            json!("x"),
        ] {
            assert!(patched(json!({"a": 1, "l": [1]}), json!([operation])).is_err(), "{operation}");
        }
    }
}
