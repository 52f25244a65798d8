//! Rules for runs without faults.

use super::quiescence;
use super::safety;
use super::{Invariant, Oracle, Violation, invariant};
use crate::history::{Actor, Change, Meta};
use crate::run::{Outcome, stored_name};
use serde_json::Value;
use std::collections::BTreeSet;

/// Returns the violations of an undisturbed run. `customs` selects the names of custom resources.
pub(crate) fn check(outcome: &Outcome, invariants: &[Invariant], customs: &dyn Fn(&str) -> bool) -> Vec<Violation> {
    let mut violations = safety::incidents(outcome, None);
    violations.extend(invariant::check(outcome, invariants));
    violations.extend(quiescence::check(outcome, None));
    violations.extend(safety::finalizers(outcome));
    violations.extend(safety::dangling(outcome));
    violations.extend(leaks(outcome, customs));
    violations.extend(conditions(outcome));
    if let Some(object) = outcome.restart_writes.first().filter(|_| outcome.is_quiet) {
        let text = format!(
            "it was written by a resync or after a restart, although nothing had changed ({} writes)",
            outcome.restart_writes.len()
        );
        violations.push(Violation::new(Oracle::Idempotence, object, text));
    }
    violations
}

/// Reports objects that carry the UID of a deleted custom resource, and external objects without any custom resource.
fn leaks(outcome: &Outcome, customs: &dyn Fn(&str) -> bool) -> Vec<Violation> {
    let customs_removed: BTreeSet<String> = outcome
        .history
        .iter()
        .filter(|change| change.is_removal && customs(&change.stable_name()))
        .map(|change| change.meta().uid.clone())
        .collect();
    let is_marked = |object: &&flyball_cluster::StoredObject| {
        let labels = Meta::of(&object.body).labels;
        labels.values().any(|value| value.as_str().is_some_and(|value| customs_removed.contains(value)))
    };
    let mut leaks: Vec<Violation> = outcome
        .objects
        .iter()
        .filter(is_marked)
        .map(|object| {
            let text = "it remains although the custom resource in its labels is deleted";
            Violation::new(Oracle::Leak, stored_name(object), text)
        })
        .collect();
    let has_customs = outcome.state.keys().any(|name| customs(name));
    if !has_customs && !customs_removed.is_empty() {
        let external = outcome.state.keys().filter(|name| name.starts_with("external/"));
        leaks
            .extend(external.map(|name| {
                Violation::new(Oracle::Leak, name, "it remains although all custom resources are deleted")
            }));
    }
    leaks
}

/// Reports conditions whose transition time changes alone, and impossible generations.
fn conditions(outcome: &Outcome) -> Vec<Violation> {
    let own = outcome.history.iter().filter(|change| matches!(change.actor, Actor::Operator(_)));
    let mut violations: Vec<Violation> = own.filter_map(moved_transition).collect();
    violations.dedup_by(|one, other| one.is_like(other));
    for object in &outcome.objects {
        let value: Value = serde_json::from_slice(&object.body).unwrap_or_default();
        let (observed, generation) = (&value["status"]["observedGeneration"], &value["metadata"]["generation"]);
        if observed.as_i64() > generation.as_i64() && generation.is_i64() {
            let text = format!("status.observedGeneration is {observed}, but its generation is {generation}");
            violations.push(Violation::new(Oracle::Conditions, stored_name(object), text));
        }
    }
    violations
}

fn moved_transition(change: &Change) -> Option<Violation> {
    let parse = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap_or_default();
    let (before, after) = (parse(change.before.as_deref()?), parse(&change.after));
    let conditions = |object: &Value| object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for condition in conditions(&after) {
        let before = conditions(&before).into_iter().find(|known| known["type"] == condition["type"])?;
        let same = ["status", "reason", "message"].into_iter().all(|field| before[field] == condition[field]);
        if same && before["lastTransitionTime"] != condition["lastTransitionTime"] {
            let text =
                format!("the transition time of its condition {} changes without a transition", condition["type"]);
            return Some(Violation::new(Oracle::Conditions, change.stable_name(), text));
        }
    }
    None
}
