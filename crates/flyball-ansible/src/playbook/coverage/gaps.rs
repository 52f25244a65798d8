//! The gaps of tasks, plays and texts: all of them, not only the first one that the loader reports.
//!
//! The loader stops at the first problem. So names in texts are collected first; then each part of a task is loaded on
//! its own, with neutral texts in the place of those with gaps.

use super::super::args::{is_action, is_module, pairs, unsupported_arguments};
use super::super::keywords::KEYWORDS;
use super::super::task::BLOCK_PARTS;
use super::super::texts::INTERPRETER;
use super::GapKind;
use crate::error::{Error, Result};
use crate::template::{MissingName, check_syntax, missing_in_expression, missing_in_text};
use crate::value::{Map, Value, json};

/// Keywords of tasks that are expressions without braces.
const CONDITIONS: [&str; 4] = ["when", "until", "failed_when", "changed_when"];
/// The argument of `assert` that is an expression without braces.
const THAT: &str = "that";

/// A gap: its kind, and its name or problem.
pub(super) type NamedGap = (GapKind, String);

/// Returns the gaps of a task that the loader rejects with an error, without those of inner tasks.
pub(super) fn of_task(task: &Map, rejected: Error, mut read: impl FnMut(Map) -> Result<()>) -> Vec<NamedGap> {
    let mut task = task.clone();
    join_args(&mut task);
    let has_module = task.keys().any(|key| is_module(key));
    let mut gaps = Vec::new();
    for (key, value) in &task {
        gaps.extend(of_value(value, CONDITIONS.contains(&key.as_str())));
        let mut value = neutral(value, CONDITIONS.contains(&key.as_str()));
        let is_known = is_action(key) || key == "block";
        if is_known {
            gaps.extend(of_arguments(key, &mut value));
        }
        let alone = Map::from_iter([(key.clone(), value)]);
        let with_action = || [("debug".to_owned(), json!({}))].into_iter();
        let probe = if is_known { alone } else { alone.into_iter().chain(with_action()).collect() };
        let Err(error) = read(probe) else { continue };
        gaps.push(match () {
            () if is_known => of_error(error),
            () if key.contains('.') || is_module(key) => (GapKind::Module, key.clone()),
            () if has_module || key.starts_with("with_") || KEYWORDS.contains(&key.as_str()) => {
                (GapKind::Keyword, key.clone())
            }
            () => (GapKind::Module, key.clone()),
        });
    }
    if task.keys().filter(|key| is_module(key)).count() > 1 {
        // Each module alone would mislead.
        gaps.retain(|(kind, _)| !matches!(kind, GapKind::Module | GapKind::Keyword));
        gaps.push(of_error(rejected));
    } else if gaps.is_empty() {
        gaps.push(of_error(rejected));
    }
    gaps.sort();
    gaps
}

/// Returns the gap that an error of the loader describes.
fn of_error(error: Error) -> NamedGap {
    match error.feature() {
        Some(("module", name)) => (GapKind::Module, name.to_owned()),
        Some(("keyword", name)) => (GapKind::Keyword, name.to_owned()),
        _ => (GapKind::Other, error.problem()),
    }
}

/// Returns the gaps of a play that the loader rejects with an error, without those of its tasks.
pub(super) fn of_play(play: &Map, rejected: Error, mut read: impl FnMut(Map) -> Result<()>) -> Vec<NamedGap> {
    let hosts = || ("hosts".to_owned(), json!("localhost"));
    let mut gaps = Vec::new();
    for (key, value) in play {
        gaps.extend(of_value(value, false));
        let value = neutral(value, false);
        let items = match &value {
            Value::Array(items) if key == "roles" => items.iter().map(|item| json!([item])).collect(),
            _ => vec![value],
        };
        for value in items {
            let probe = [hosts()].into_iter().chain([(key.clone(), value)]).collect();
            gaps.extend(read(probe).err().map(|error| (GapKind::Other, error.problem())));
        }
    }
    if gaps.is_empty() {
        gaps.push((GapKind::Other, rejected.problem()));
    }
    gaps.sort();
    gaps
}

/// Moves the keyword `args` into the arguments of the module.
fn join_args(task: &mut Map) {
    let Some(action) = task.keys().find(|key| is_action(key)).cloned() else { return };
    let Some(Value::Object(args)) = task.get("args").cloned() else { return };
    match task.get_mut(&action) {
        Some(Value::Object(arguments)) => arguments.extend(args),
        Some(arguments @ Value::Null) => *arguments = Value::Object(args),
        _ => return,
    }
    task.remove("args");
}

/// Removes unsupported arguments of a module, and returns them as gaps.
fn of_arguments(key: &str, value: &mut Value) -> Vec<NamedGap> {
    let parsed = value.as_str().and_then(|text| pairs(text).ok());
    let arguments = match (value.as_object_mut(), parsed) {
        (Some(arguments), _) => arguments,
        (None, Some(parsed)) if !parsed.is_empty() => {
            *value = Value::Object(parsed);
            value.as_object_mut().expect("it was set")
        }
        _ => return Vec::new(),
    };
    let unsupported = unsupported_arguments(key, arguments);
    unsupported.iter().for_each(|argument| drop(arguments.remove(&argument.name)));
    unsupported.into_iter().map(|argument| (GapKind::Other, argument.error.problem)).collect()
}

/// Returns the gaps in the texts of a value.
pub(super) fn of_value(value: &Value, is_condition: bool) -> Vec<NamedGap> {
    match value {
        Value::String(text) => of_text(text, is_condition),
        Value::Array(items) => items.iter().flat_map(|item| of_value(item, is_condition)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(key, _)| key.as_str() != INTERPRETER);
            fields.flat_map(|(key, field)| of_value(field, is_condition || key == THAT)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the gaps of a text. Names in an invalid one would mislead.
fn of_text(text: &str, is_condition: bool) -> Vec<NamedGap> {
    match check_syntax(text, is_condition) {
        Err(problem) => vec![(GapKind::Other, problem)],
        Ok(()) if is_condition => missing_in_expression(text).into_iter().map(named).collect(),
        Ok(()) => missing_in_text(text).into_iter().map(|(_, name)| named(name)).collect(),
    }
}

/// Replaces texts with gaps by those without.
fn neutral(value: &Value, is_condition: bool) -> Value {
    match value {
        Value::String(text) if of_text(text, is_condition).is_empty() => value.clone(),
        Value::String(_) if is_condition => json!("true"),
        // A template: checks of literal arguments do not apply.
        Value::String(_) => json!("{{ omit }}"),
        Value::Array(items) => items.iter().map(|item| neutral(item, is_condition)).collect(),
        Value::Object(fields) => {
            let inner = |(key, field): (&String, &Value)| {
                let is_task_list = BLOCK_PARTS.contains(&key.as_str());
                let field = if is_task_list { field.clone() } else { neutral(field, is_condition || key == THAT) };
                (key.clone(), field)
            };
            Value::Object(fields.iter().map(inner).collect())
        }
        other => other.clone(),
    }
}

pub(super) fn named(name: MissingName) -> NamedGap {
    match name {
        MissingName::Filter(name) => (GapKind::Filter, name),
        MissingName::Test(name) => (GapKind::Test, name),
        MissingName::Lookup(name) => (GapKind::Lookup, name),
        MissingName::Function(name) => (GapKind::Function, name),
        MissingName::Variable(name) => (GapKind::Variable, name),
    }
}
