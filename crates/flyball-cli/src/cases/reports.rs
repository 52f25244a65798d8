//! The reports of an operator about the objects of a failed case: failures in their status, and warnings in events.

use crate::cluster::failure::failures;
use serde_json::Value;
use std::collections::BTreeSet;

/// Limit of reports of one case.
const MAX_REPORTS: usize = 10;
/// Length limit of a report, in characters.
const MAX_REPORT: usize = 1000;

/// Returns the reports about objects, each once. A failure that an event contains as well is not repeated: the event
/// also names the task.
pub(super) fn of(objects: &[Value], events: &[Value]) -> Vec<String> {
    let mut reports = BTreeSet::new();
    for object in objects {
        let [kind, name] = [&object["kind"], &object["metadata"]["name"]].map(text);
        let is_warning = |event: &&Value| {
            let regarding = &event["regarding"];
            event["type"] == "Warning" && text(&regarding["kind"]) == kind && text(&regarding["name"]) == name
        };
        let notes: Vec<String> = events
            .iter()
            .filter(is_warning)
            .map(|event| format!("{}: {}", text(&event["reason"]), text(&event["note"])))
            .collect();
        let is_new = |failure: &String| {
            let message = failure.split_once(": ").map_or("", |(_, message)| message);
            message.is_empty() || !notes.iter().any(|note| note.contains(message))
        };
        let failed: Vec<String> = failures(object).into_iter().filter(is_new).collect();
        let line = |report: String| format!("{kind} {name}: {report}").chars().take(MAX_REPORT).collect::<String>();
        reports.extend(notes.into_iter().chain(failed).map(line));
    }
    reports.into_iter().take(MAX_REPORTS).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn failure_is_reported_once_with_its_task() {
        let site = |name: &str, message: &str| {
            let condition = json!({"type": "Failure", "status": "True", "message": message});
            json!({"kind": "Site", "metadata": {"name": name}, "status": {"conditions": [condition]}})
        };
        let event = |kind: &str, name: &str, note: &str| {
            let regarding = json!({"kind": "Site", "name": name});
            json!({"type": kind, "reason": "TaskFailed", "note": note, "regarding": regarding})
        };
        let events = [
            event("Warning", "a", "task check (main.yml, module assert): too large"),
            event("Normal", "b", "irrelevant"),
            event("Warning", "other", "irrelevant"),
        ];
        assert_eq!(
            of(&[site("a", "too large"), site("b", "too small"), json!({"kind": "ConfigMap"})], &events),
            ["Site a: TaskFailed: task check (main.yml, module assert): too large", "Site b: Failure: too small"]
        );
        assert_eq!(of(&vec![site("a", &"x".repeat(9999)); 3], &[])[0].chars().count(), MAX_REPORT);
    }
}
