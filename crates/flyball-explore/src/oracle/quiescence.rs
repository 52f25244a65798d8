//! Objects stop changing, and the number of requests is bounded.

use super::{Oracle, Violation};
use crate::history::Change;
use crate::reference::Reference;
use crate::run::Outcome;
use crate::schedule::Schedule;
use serde_json::Value;
use std::collections::BTreeMap;

/// Number of changes at the end of a run that are searched for the object that still changes.
const LAST_CHANGES: usize = 200;

/// Reports the object that still changes at the end of a run.
pub(super) fn check(outcome: &Outcome, reference: Option<&Reference>) -> Vec<Violation> {
    let reference_is_quiet = reference.is_none_or(|reference| reference.outcome.is_quiet);
    if outcome.is_quiet || !reference_is_quiet {
        return Vec::new();
    }
    let last = &outcome.history[outcome.history.len().saturating_sub(LAST_CHANGES)..];
    let mut counts: BTreeMap<String, (usize, &Change)> = BTreeMap::new();
    for change in last {
        let entry = counts.entry(change.stable_name()).or_insert((0, change));
        *entry = (entry.0 + 1, change);
    }
    let busiest = counts.into_iter().max_by_key(|(_, (count, _))| *count);
    let why = if outcome.is_exhausted {
        format!("the operator sent {} requests", outcome.requests)
    } else {
        "objects still change long after the last change of the input".to_owned()
    };
    let Some((object, (_, change))) = busiest.filter(|_| !outcome.is_exhausted || last.len() == LAST_CHANGES) else {
        let last: Vec<&str> = outcome.last_writes.iter().take(3).map(String::as_str).collect();
        return vec![Violation::new(Oracle::Quiescence, "the operator", format!("{why}; last: {}", last.join(", ")))];
    };
    let fields = changed_fields(change);
    let text = format!("{why}; it changes again and again, in {}", fields.join(", "));
    vec![Violation {
        field: fields.first().cloned().unwrap_or_default(),
        ..Violation::new(Oracle::Quiescence, object, text)
    }]
}

/// Returns the JSON pointers of the fields that a write changed, without metadata that changes with each write.
pub(super) fn changed_fields(change: &Change) -> Vec<String> {
    let parse = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap_or_default();
    let (before, after) = (change.before.as_deref().map(parse).unwrap_or_default(), parse(&change.after));
    let mut fields = Vec::new();
    compare(String::new(), &before, &after, &mut fields);
    fields.retain(|field| {
        !["/metadata/resourceVersion", "/metadata/generation", "/metadata/managedFields"]
            .iter()
            .any(|prefix| field.starts_with(prefix))
    });
    fields
}

fn compare(path: String, before: &Value, after: &Value, fields: &mut Vec<String>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in after {
                compare(format!("{path}/{name}"), before.get(name).unwrap_or(&Value::Null), value, fields);
            }
            fields.extend(before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("{path}/{name}")));
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (n, (before, after)) in before.iter().zip(after).enumerate() {
                compare(format!("{path}/{n}"), before, after, fields);
            }
        }
        _ => fields.push(path),
    }
}

/// Reports a run with many more writes than its reference.
pub(super) fn requests(schedule: &Schedule, outcome: &Outcome, reference: &Reference) -> Vec<Violation> {
    let faults = u64::try_from(schedule.injections.len()).unwrap_or(u64::MAX);
    let bound = reference.outcome.writes.saturating_mul(4) + 100 * (1 + faults);
    if outcome.writes <= bound {
        return Vec::new();
    }
    let text = format!(
        "it sent {} writes; an undisturbed run sends {}, so that at most {bound} are expected",
        outcome.writes, reference.outcome.writes
    );
    vec![Violation::new(Oracle::Requests, "the operator", text)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changed_fields_are_pointers() {
        let mut fields = Vec::new();
        let (before, after) = (json!({"a": {"b": 1, "c": [1]}, "d": 1}), json!({"a": {"b": 2, "c": [2]}, "e": 1}));
        compare(String::new(), &before, &after, &mut fields);
        assert_eq!(fields, ["/a/b", "/a/c/0", "/e", "/d"]);
    }
}
