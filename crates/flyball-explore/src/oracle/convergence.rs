//! The final objects are those of an undisturbed run.

use super::{Oracle, Violation};
use crate::fault::Fault;
use crate::history::{Actor, Change};
use crate::reference::Reference;
use crate::run::Outcome;
use crate::schedule::Schedule;
use crate::state::{Difference, Mask, State, differences};
use serde_json::Value;
use std::collections::BTreeSet;

/// Number of differences that a violation lists.
const MAX_LISTED: usize = 5;

/// Compares the final state of a run with that of its reference.
pub(super) fn check(schedule: &Schedule, outcome: &Outcome, reference: &Reference) -> Vec<Violation> {
    let faults = || outcome.occurrences.iter().map(|occurrence| &occurrence.fault);
    // No operator can notice that a list is incomplete: it must only not delete what is missing.
    if faults().any(|fault| *fault == Fault::Truncate) {
        return Vec::new();
    }
    let removes_primary = faults().any(|fault| fault.changes_outcome());
    let is_comparable = !removes_primary || (reference.ends_empty && !faults().any(|fault| fault.name() == "preexist"));
    if !is_comparable || outcome.rejections != reference.outcome.rejections {
        return Vec::new();
    }
    let mut different = differences(&reference.outcome.state, &outcome.state, &reference.mask);
    if faults().any(|fault| fault.changes_input()) {
        // Others' objects depend on the history of the input: claims of a stateful set remain, for example.
        let own = own_objects(outcome).union(&own_objects(&reference.outcome)).cloned().collect::<BTreeSet<_>>();
        different.retain(|difference| own.contains(&difference.object));
    }
    if faults().any(|fault| fault.merges_steps()) {
        // The control plane reports how it got to a state that the operator has skipped, such as the size of a volume.
        let own = own_objects(outcome);
        different.retain(|difference| own.contains(&difference.object) || !difference.field.starts_with("/status"));
    }
    let mut violations = described(Oracle::Convergence, &different, "in an undisturbed run");
    if violations.is_empty() && faults().all(|fault| !fault.changes_input() && !fault.merges_steps()) {
        violations = births(schedule, outcome, reference);
    }
    violations
}

/// Returns the names of the objects that the operator created.
pub(super) fn own_objects(outcome: &Outcome) -> BTreeSet<String> {
    let created = |change: &&Change| change.is_creation() && matches!(change.actor, Actor::Operator(_));
    outcome.history.iter().filter(created).map(Change::stable_name).collect()
}

/// Describes differences, as one violation for each object.
fn described(oracle: Oracle, different: &[Difference], where_else: &str) -> Vec<Violation> {
    let objects: BTreeSet<&String> = different.iter().map(|difference| &difference.object).collect();
    let violation = |object: &String| {
        let own: Vec<&Difference> = different.iter().filter(|difference| difference.object == *object).collect();
        let mut text: Vec<String> = own.iter().take(MAX_LISTED).map(|one| describe(one, where_else)).collect();
        if own.len() > MAX_LISTED {
            text.push(format!("and {} more fields differ", own.len() - MAX_LISTED));
        }
        let field = own.first().map(|difference| difference.field.clone()).unwrap_or_default();
        Violation { oracle, object: object.clone(), field, text: text.join("; ") }
    };
    objects.into_iter().map(violation).collect()
}

fn describe(difference: &Difference, where_else: &str) -> String {
    let Difference { field, expected, found, .. } = difference;
    let short = |text: &String| if text.len() > 200 { format!("{}…", truncated(text, 200)) } else { text.clone() };
    match (field.is_empty(), expected, found) {
        (true, Some(_), None) => format!("it does not exist at the end; it does {where_else}"),
        (true, None, Some(_)) => format!("it exists at the end; it does not {where_else}"),
        (_, Some(expected), None) => format!("{field} is missing; it is {} {where_else}", short(expected)),
        (_, None, Some(found)) => format!("{field} is {}; it does not exist {where_else}", short(found)),
        (_, expected, found) => {
            let text = |value: &Option<String>| value.as_ref().map(short).unwrap_or_default();
            format!("{field} is {}; it is {} {where_else}", text(found), text(expected))
        }
    }
}

fn truncated(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Reports objects that an undisturbed run replaces in a later step.
fn births(schedule: &Schedule, outcome: &Outcome, reference: &Reference) -> Vec<Violation> {
    if reference.reverts || schedule.steps.is_some() && reference.outcome.births.is_empty() {
        return Vec::new();
    }
    let older = reference.outcome.births.iter().filter_map(|(name, expected)| {
        let step = outcome.births.get(name).filter(|step| *step < expected && !name.contains('*'))?;
        let text = format!(
            "it was created in step {step} of the scenario and never replaced; an undisturbed run replaces it in step \
             {expected}"
        );
        Some(Violation::new(Oracle::Convergence, name, text))
    });
    older.collect()
}

/// Returns the differences between the objects that the operator created on two paths to the same specification.
/// Differences that the status of a custom resource reports are accepted.
pub(crate) fn path_differences(
    oracle: Oracle,
    outcome: &Outcome,
    direct: &Outcome,
    customs: &dyn Fn(&str) -> bool,
) -> Vec<Violation> {
    let reports = |state: &State| -> Vec<Value> {
        let custom = state.iter().filter(|(name, _)| customs(name));
        custom.map(|(_, value)| value["status"]["conditions"].clone()).collect()
    };
    if reports(&outcome.state) != reports(&direct.state) {
        return Vec::new();
    }
    let (here, there) = (own_objects(outcome), own_objects(direct));
    // An operator may ignore a specification that it cannot use, and keep the objects of the last one.
    if there.is_empty() {
        return Vec::new();
    }
    let own: BTreeSet<String> = here.union(&there).cloned().collect();
    let select = |state: &State| -> State {
        let own = state.iter().filter(|(name, _)| own.contains(*name) || name.starts_with("external/"));
        own.map(|(name, value)| (name.clone(), intent(value))).collect()
    };
    let different = differences(&select(&direct.state), &select(&outcome.state), &Mask::new());
    described(oracle, &different, "if the same specification is applied directly")
}

/// Reports objects of a healthy resource that differ beside another one.
pub(crate) fn isolation(outcome: &Outcome, healthy: &Outcome, is_neighbor: &dyn Fn(&str) -> bool) -> Vec<Violation> {
    let select = |state: &State| -> State {
        let own = state.iter().filter(|(name, _)| is_neighbor(name));
        own.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let mut different = differences(&select(&healthy.state), &outcome.state, &Mask::new());
    different.retain(|difference| is_neighbor(&difference.object));
    described(Oracle::Isolation, &different, "without the other resource")
}

/// Returns an object without its status and the annotations of Kubernetes, which depend on its history.
fn intent(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(items) = value.as_array_mut() {
        return items.iter().map(intent).collect();
    }
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    if let Some(annotations) = value["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|name, _| !name.contains("kubernetes.io/"));
        if annotations.is_empty() {
            value["metadata"].as_object_mut().into_iter().for_each(|fields| drop(fields.remove("annotations")));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_described_in_words() {
        let difference = |field: &str, expected: Option<&str>, found: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let (object, field) = ("pods/a".to_owned(), field.to_owned());
            describe(&Difference { object, field, expected: text(expected), found: text(found) }, "elsewhere")
        };
        assert_eq!(difference("", Some("1"), None), "it does not exist at the end; it does elsewhere");
        assert_eq!(difference("", None, Some("1")), "it exists at the end; it does not elsewhere");
        assert_eq!(difference("/a", Some("1"), Some("2")), "/a is 2; it is 1 elsewhere");
        assert_eq!(difference("/a", None, Some("2")), "/a is 2; it does not exist elsewhere");
        assert!(difference("/a", Some(&"é".repeat(300)), None).len() < 300);
    }

    #[test]
    fn intent_excludes_status_and_annotations_of_kubernetes() {
        let annotations = json!({"deployment.kubernetes.io/revision": "2"});
        let object = json!({"metadata": {"name": "a", "annotations": annotations}, "spec": 1, "status": 2});
        assert_eq!(intent(&object), json!({"metadata": {"name": "a"}, "spec": 1}));
    }
}
