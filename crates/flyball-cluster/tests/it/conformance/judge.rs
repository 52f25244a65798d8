//! Compares the responses of a server with recorded ones.

use super::names::Renumbering;
use super::scenario::{Compare, Step};
use serde_json::{Map, Value, json};

/// The differences of one step; empty if it passes.
#[derive(Default)]
pub(crate) struct Verdict {
    /// All but the two below.
    pub(crate) semantic: Option<String>,
    /// The exact texts of messages and warnings.
    pub(crate) message: Option<String>,
    /// `metadata.managedFields`.
    pub(crate) managed: Option<String>,
}

impl Verdict {
    /// Returns the kinds of differences, with their descriptions.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("semantic", self.semantic.as_deref()),
            ("message", self.message.as_deref()),
            ("managed", self.managed.as_deref()),
        ];
        all.into_iter().filter_map(|(what, why)| Some((what, why?)))
    }
}

/// Judges all steps of a scenario.
pub(crate) fn judge(steps: &[Step], results: Vec<Value>) -> Vec<Verdict> {
    let recorded = compared(steps, steps.iter().map(|step| step.expect.clone()).collect());
    let answered = compared(steps, results);
    steps.iter().zip(recorded.iter().zip(&answered)).map(|(step, (want, got))| judge_step(step, want, got)).collect()
}

fn judge_step(step: &Step, want: &Value, got: &Value) -> Verdict {
    if let Compare::Subset(expected) = &step.compare {
        let semantic = (!holds(got, expected)).then(|| format!("does not hold {expected}: {}", short(got)));
        return Verdict { semantic, ..Verdict::default() };
    }
    let (want, got) = (View::of(step, want), View::of(step, got));
    Verdict {
        semantic: difference(&want.rest, &got.rest, ""),
        message: difference(&want.messages.into(), &got.messages.into(), ""),
        managed: difference(&want.managed.into(), &got.managed.into(), ""),
    }
}

/// Removes values that are not compared, and renumbers the placeholders of the rest.
fn compared(steps: &[Step], results: Vec<Value>) -> Vec<Value> {
    let mut numbers = Renumbering::default();
    let one = |(step, mut got): (&Step, Value)| {
        if let Compare::Subset(_) = step.compare {
            return got;
        }
        step.ignore.iter().for_each(|pointer| drop_at(&mut got, pointer));
        match step.compare {
            Compare::Code if got.is_object() => got = json!({"code": got["code"]}),
            Compare::Status if got.is_object() => {
                const SHOWN: [&str; 5] = ["kind", "status", "reason", "message", "details"];
                let shown =
                    |field: &str, value: &Value| SHOWN.contains(&field) && (field != "status" || value.is_string());
                let body = got["body"].as_object().cloned().unwrap_or_default();
                got["body"] =
                    body.into_iter().filter(|(field, value)| shown(field, value)).collect::<Map<_, _>>().into();
            }
            _ => {}
        }
        numbers.apply(&got)
    };
    steps.iter().zip(results).map(one).collect()
}

/// One response, split into the parts of the three verdicts.
struct View {
    rest: Value,
    messages: Vec<Value>,
    managed: Vec<Value>,
}

impl View {
    fn of(step: &Step, got: &Value) -> Self {
        let mut view = Self { rest: got.clone(), messages: Vec::new(), managed: Vec::new() };
        if let Compare::Code = step.compare {
            return view;
        }
        let mut rest = std::mem::take(&mut view.rest);
        view.split(&mut rest);
        if rest.is_object() {
            let causes = rest.pointer_mut("/body/details/causes").and_then(Value::as_array_mut);
            for cause in causes.into_iter().flatten().filter_map(Value::as_object_mut) {
                view.messages.extend(cause.remove("message"));
            }
            let warnings = rest.as_object_mut().and_then(|answer| answer.remove("warnings"));
            let warnings = warnings.as_ref().and_then(Value::as_array).into_iter().flatten();
            view.messages.extend(warnings.map(|warning| json!(["warning", warning])));
        }
        if let (Compare::Status, true) = (&step.compare, rest.is_object()) {
            view.managed.clear();
            let body = &rest["body"];
            rest = json!({"code": rest["code"], "status": body["status"], "reason": body["reason"], "details": body["details"]});
        }
        view.rest = rest;
        view
    }

    /// Moves messages and managedFields out of a value.
    fn split(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let has = |field| fields.contains_key(field);
                let is_status = fields.get("kind").is_some_and(|kind| kind == "Status")
                    || has("reason") && has("message") && has("field");
                if is_status {
                    self.messages.extend(fields.remove("message"));
                }
                if fields.get("managedFields").is_some_and(Value::is_array)
                    && let Some(Value::Array(mut entries)) = fields.remove("managedFields")
                {
                    let key = |entry: &Value| {
                        ["manager", "operation", "subresource", "apiVersion"]
                            .map(|field| entry[field].as_str().unwrap_or_default().to_owned())
                    };
                    entries.sort_by_key(key);
                    self.managed.push(entries.into());
                }
                fields.values_mut().for_each(|value| self.split(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.split(item)),
            _ => {}
        }
    }
}

/// Returns true if a value holds another: objects field by field, lists item by item, `{"$contains": […]}` any of a
/// list.
pub(crate) fn holds(got: &Value, expected: &Value) -> bool {
    match (expected, got) {
        (Value::Object(expected), _) if expected.len() == 1 && expected.contains_key("$contains") => {
            let items = got.as_array();
            let all = expected["$contains"].as_array();
            items.is_some_and(|items| {
                all.into_iter().flatten().all(|expected| items.iter().any(|item| holds(item, expected)))
            })
        }
        (Value::Object(expected), Value::Object(got)) => {
            expected.iter().all(|(field, expected)| got.get(field).is_some_and(|got| holds(got, expected)))
        }
        (Value::Array(expected), Value::Array(got)) => {
            expected.len() == got.len() && expected.iter().zip(got).all(|(expected, got)| holds(got, expected))
        }
        _ => expected == got,
    }
}

/// Removes the value at a JSON pointer; `*` is any step.
pub(crate) fn drop_at(value: &mut Value, pointer: &str) {
    let steps: Vec<String> =
        pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    if let Some((last, path)) = steps.split_last() {
        drop_in(value, path, last);
    }
}

fn drop_in(value: &mut Value, path: &[String], last: &str) {
    let Some((step, path)) = path.split_first() else {
        match value {
            Value::Object(fields) if last == "*" => fields.clear(),
            Value::Array(items) if last == "*" => items.clear(),
            Value::Object(fields) => drop(fields.remove(last)),
            Value::Array(items) => {
                if let Some(item) = last.parse().ok().and_then(|i: usize| items.get_mut(i)) {
                    *item = Value::Null;
                }
            }
            _ => {}
        }
        return;
    };
    match value {
        Value::Object(fields) if step == "*" => fields.values_mut().for_each(|value| drop_in(value, path, last)),
        Value::Array(items) if step == "*" => items.iter_mut().for_each(|item| drop_in(item, path, last)),
        Value::Object(fields) => fields.get_mut(step).into_iter().for_each(|value| drop_in(value, path, last)),
        Value::Array(items) => {
            let item = step.parse().ok().and_then(|i: usize| items.get_mut(i));
            item.into_iter().for_each(|item| drop_in(item, path, last));
        }
        _ => {}
    }
}

/// Describes the first difference of two values.
fn difference(want: &Value, got: &Value, path: &str) -> Option<String> {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let mut fields: Vec<&String> = want.keys().chain(got.keys()).collect();
            fields.sort();
            fields.dedup();
            fields.into_iter().find_map(|field| match (want.get(field), got.get(field)) {
                (Some(want), Some(got)) => difference(want, got, &format!("{path}/{field}")),
                (Some(want), None) => Some(format!("{path}/{field}: missing, expected {}", short(want))),
                (None, got) => Some(format!("{path}/{field}: unexpected {}", short(got.unwrap_or(&Value::Null)))),
            })
        }
        (Value::Array(want), Value::Array(got)) => {
            let differs = |(i, (want, got)): (usize, (&Value, &Value))| difference(want, got, &format!("{path}/{i}"));
            let lengths = || {
                (want.len() != got.len()).then(|| {
                    format!("{path}: expected {} items, got {}: {}", want.len(), got.len(), short(&got.clone().into()))
                })
            };
            want.iter().zip(got).enumerate().find_map(differs).or_else(lengths)
        }
        _ => (want != got).then(|| format!("{path}: expected {}, got {}", short(want), short(got))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}
