//! The status of an object, as in operator-sdk's Ansible operator.
//!
//! Three conditions, `Running`, `Successful` and `Failure`, report the outcome of the last run; `ansibleResult`
//! contains the counts of its tasks. A run with the same outcome as the previous one does not change the status,
//! including the completion time.

use crate::job::{Outcome, TaskError};
use crate::run::merge;
use serde_json::{Map, Value, json};

/// Returns the conditions during the first run for a generation; `None` if they are set already, or if a run for it
/// has finished before. `last` is the generation of the last run, if known.
///
/// The schema of the kind may lack the generation of conditions.
pub(crate) fn running(before: &Value, generation: i64, last: Option<i64>) -> Option<Vec<Value>> {
    let known = condition(before, "Running");
    let observed = known.and_then(|known| known["observedGeneration"].as_i64()).or(last);
    if observed.map_or(known.is_some(), |observed| observed >= generation) {
        return None;
    }
    let mut conditions =
        vec![json!({"type": "Running", "status": "True", "reason": "Running", "message": "Running reconciliation"})];
    if let Some(successful) = condition(before, "Successful") {
        conditions.push(json!({"type": "Successful", "status": "False", "reason": successful["reason"], "message": successful["message"]}));
    }
    Some(joined(before, &[], conditions))
}

/// Returns the conditions after a run.
pub(crate) fn done(before: &Value, outcome: &Outcome, now: &str) -> Vec<Value> {
    let failed = outcome.failure.as_ref();
    let previous = if failed.is_some() { "Failure" } else { "Running" };
    let result = result(condition(before, previous), outcome, now);
    let (running, successful, failure) = match failed {
        None => (
            json!({"status": "True", "reason": "Successful", "message": "Awaiting next reconciliation", "ansibleResult": result}),
            json!({"status": "True", "reason": "Successful", "message": "Last reconciliation succeeded"}),
            json!({"status": "False", "reason": "", "message": ""}),
        ),
        Some(failed) => (
            json!({"status": "False", "reason": "Running", "message": "Running reconciliation"}),
            json!({"status": "False", "reason": "", "message": ""}),
            json!({"status": "True", "reason": "Failed", "message": failed.message, "ansibleResult": result}),
        ),
    };
    let own = [("Running", running), ("Successful", successful), ("Failure", failure)];
    let own = own.into_iter().map(|(kind, mut condition)| {
        condition["type"] = kind.into();
        condition
    });
    let requested = outcome.status.get("conditions").and_then(Value::as_array).map_or(&[][..], |conditions| conditions);
    joined(before, requested, own.collect())
}

/// Returns the conditions when a run could not start.
pub(crate) fn rejected(before: &Value, problem: &str) -> Vec<Value> {
    let outcome = Outcome { failure: Some(TaskError::new(problem)), ..Outcome::default() };
    let mut conditions = done(before, &outcome, "");
    for condition in &mut conditions {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("ansibleResult");
        }
    }
    conditions
}

/// The types of all conditions.
pub(crate) const CONDITIONS: [&str; 4] = ["Running", "Successful", "Failure", VARIABLES];

/// The condition about fields that do not become variables.
const VARIABLES: &str = "VariablesAccepted";

/// Adds the condition about rejected fields. An existing condition is updated when no fields are rejected any more.
pub(crate) fn set_variables_condition(conditions: &mut Vec<Value>, rejected: Option<&str>) {
    let existing = conditions.iter().position(|condition| condition["type"] == VARIABLES);
    let existing = existing.map(|existing| conditions.remove(existing));
    let (status, reason, message) = match (rejected, existing) {
        (Some(message), _) => ("False", "NamesRefused", message),
        (None, Some(_)) => ("True", "NamesAccepted", ""),
        (None, None) => return,
    };
    conditions.push(json!({"type": VARIABLES, "status": status, "reason": reason, "message": message}));
}

/// Returns the new status besides conditions, if it differs from the current one.
pub(crate) fn fields(before: &Value, outcome: &Outcome, with_conditions: bool) -> Option<Value> {
    let mut requested = outcome.status.clone();
    let before = before.as_object().cloned().unwrap_or_default();
    if !with_conditions {
        requested.remove("conditions");
    }
    let mut after = before.clone();
    let names: Vec<String> = requested.keys().cloned().collect();
    merge(&mut after, requested);
    after.retain(|name, _| names.contains(name));
    changed(&Value::Object(before), Value::Object(after))
}

/// Returns the fields of a status that differ from the current one, if any.
pub(crate) fn changed(before: &Value, mut status: Value) -> Option<Value> {
    let fields = status.as_object_mut()?;
    fields.retain(|name, value| before.get(name) != Some(value));
    (!fields.is_empty()).then_some(status)
}

/// Returns true if a status already contains this failure.
pub(crate) fn has_failure(before: &Value, message: &str) -> bool {
    condition(before, "Failure").is_some_and(|known| known["status"] == "True" && known["message"] == *message)
}

/// Returns true if the last run succeeded for this generation, and changed something.
pub(crate) fn has_changes(status: &Value, generation: i64) -> bool {
    condition(status, "Running").is_some_and(|running| {
        running["observedGeneration"] == generation && running["ansibleResult"]["changed"].as_u64() > Some(0)
    })
}

fn condition<'s>(status: &'s Value, kind: &str) -> Option<&'s Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == *kind)
}

/// Returns the counts of a run; equal counts keep their completion time.
fn result(known: Option<&Value>, outcome: &Outcome, now: &str) -> Value {
    let mut result = json!({
        "ok": outcome.ok,
        "changed": outcome.changed,
        "skipped": outcome.skipped,
        "failures": outcome.failures,
        "completion": now,
    });
    if let Some(known) = known.map(|known| &known["ansibleResult"]).filter(|known| known.is_object()) {
        let same = ["ok", "changed", "skipped", "failures"].iter().all(|count| known[*count] == result[*count]);
        if same && known["completion"].is_string() {
            result["completion"] = known["completion"].clone();
        }
    }
    result
}

/// Merges conditions with those of other controllers, which are kept.
fn joined(before: &Value, requested: &[Value], own: Vec<Value>) -> Vec<Value> {
    let others = before["conditions"].as_array().cloned().unwrap_or_default();
    let mut all = Map::from_iter([("conditions".to_owned(), Value::Array(others))]);
    merge(&mut all, Map::from_iter([("conditions".to_owned(), requested.into())]));
    merge(&mut all, Map::from_iter([("conditions".to_owned(), own.into())]));
    match all.remove("conditions") {
        Some(Value::Array(conditions)) => conditions,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(changed: u64, failure: Option<&str>) -> Outcome {
        let failures = u64::from(failure.is_some());
        Outcome { ok: 2, changed, failures, failure: failure.map(TaskError::new), ..Outcome::default() }
    }

    fn status(conditions: Vec<Value>) -> Value {
        json!({"conditions": conditions})
    }

    #[test]
    fn equal_outcome_changes_no_status() {
        for failure in [None, Some("size must be > 1")] {
            let first = status(done(&json!({}), &outcome(0, failure), "now"));
            assert_eq!(status(done(&first, &outcome(0, failure), "later")), first);
            assert_ne!(status(done(&first, &outcome(1, failure), "later")), first);
        }
    }

    #[test]
    fn conditions_report_the_outcome_of_a_run() {
        let of = |status: &Value, kind: &str| {
            let condition = condition(status, kind).unwrap();
            (condition["status"].as_str().unwrap().to_owned(), condition["message"].as_str().unwrap().to_owned())
        };
        let other = json!({"conditions": [{"type": "Mine", "status": "True"}]});
        let good = status(done(&other, &outcome(1, None), "now"));
        assert_eq!(of(&good, "Running"), ("True".into(), "Awaiting next reconciliation".into()));
        assert_eq!(of(&good, "Successful").0, "True");
        assert_eq!(of(&good, "Failure").0, "False");
        assert_eq!(good["conditions"][0]["type"], "Mine");
        assert_eq!(condition(&good, "Running").unwrap()["ansibleResult"]["changed"], 1);
        let bad = status(done(&good, &outcome(0, Some("no")), "now"));
        assert_eq!(of(&bad, "Failure"), ("True".into(), "no".into()));
        assert_eq!((of(&bad, "Running").0, of(&bad, "Successful").0), ("False".into(), "False".into()));
    }

    #[test]
    fn running_condition_is_set_once_per_generation() {
        let first = running(&json!({}), 1, None).unwrap();
        assert_eq!(first[0]["reason"], "Running");
        let mut known = done(&json!({}), &outcome(0, None), "now");
        known[0]["observedGeneration"] = 1.into();
        assert!(running(&status(known.clone()), 1, None).is_none());
        let again = running(&status(known.clone()), 2, None).unwrap();
        assert_eq!((&again[0]["status"], &again[1]["status"]), (&json!("True"), &json!("False")));
        // Without generations of conditions, the last run is known from memory, or not at all.
        known[0].as_object_mut().unwrap().remove("observedGeneration");
        let is_announced = |last| running(&status(known.clone()), 2, last).is_some();
        assert_eq!([None, Some(1), Some(2)].map(is_announced), [false, true, false]);
        assert!(running(&json!({}), 2, Some(2)).is_none());
    }

    #[test]
    fn status_fields_of_tasks_are_merged() {
        let mut run = outcome(0, None);
        run.status = json!({"ready": {"a": 1}, "conditions": [{"type": "X"}]}).as_object().unwrap().clone();
        let before = json!({"ready": {"b": 2}});
        assert_eq!(fields(&before, &run, false), Some(json!({"ready": {"a": 1, "b": 2}})));
        assert_eq!(fields(&json!({"ready": {"a": 1, "b": 2}}), &run, false), None);
        assert!(done(&before, &run, "now").iter().any(|condition| condition["type"] == "X"));
    }
}
