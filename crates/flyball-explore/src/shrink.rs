//! Shrinking: the smallest schedule that still violates the same oracle with the same object.

use crate::evaluate::Evaluator;
use crate::oracle::Violation;
use crate::scenario::Step;
use crate::schedule::{Injection, Schedule};
use flyball_core::pointer;
use serde_json::Value;
use std::collections::BTreeSet;

/// Limit of the runs of one shrinking.
const MAX_RUNS: usize = 400;

/// Shrinks a schedule.
pub(crate) struct Shrinker<'a> {
    evaluator: &'a Evaluator,
    violation: &'a Violation,
    pub(crate) runs: usize,
}

impl<'a> Shrinker<'a> {
    pub(crate) fn new(evaluator: &'a Evaluator, violation: &'a Violation) -> Self {
        Self { evaluator, violation, runs: 0 }
    }

    /// Returns the smallest schedule that was found.
    pub(crate) fn shrink(&mut self, schedule: &Schedule) -> Schedule {
        let mut best = schedule.clone();
        if best.jitter > 0 {
            let calm = Schedule { jitter: 0, ..best.clone() };
            self.accept(&mut best, calm);
        }
        self.injections(&mut best);
        if self.evaluator.stage.subject.process().is_some() {
            // Each other selection of steps needs a reference of its own, which takes real time.
            return best;
        }
        self.steps(&mut best);
        self.fields(&mut best);
        if !best.injections.is_empty() {
            self.injections(&mut best);
        }
        best
    }

    /// Replaces the best schedule by a candidate, if the violation is the same.
    fn accept(&mut self, best: &mut Schedule, candidate: Schedule) -> bool {
        if self.runs >= MAX_RUNS || candidate == *best || self.evaluator.is_stopped() {
            return false;
        }
        self.runs += 1;
        let violations = self.evaluator.evaluate(&candidate).violations;
        let is_same = violations.iter().any(|violation| violation.is_like(self.violation));
        if is_same {
            *best = candidate;
        }
        is_same
    }

    /// Removes faults: delta debugging over the list.
    fn injections(&mut self, best: &mut Schedule) {
        let mut size = best.injections.len();
        while size > 0 && !best.injections.is_empty() {
            let mut start = 0;
            while start < best.injections.len() {
                let end = (start + size).min(best.injections.len());
                let mut rest: Vec<Injection> = best.injections.clone();
                rest.drain(start..end);
                if !self.accept(best, best.with(rest)) {
                    start = end;
                }
            }
            size /= 2;
        }
    }

    /// Removes steps of the scenario, the last ones first.
    fn steps(&mut self, best: &mut Schedule) {
        let Some(scenario) = self.evaluator.stage.scenarios.get(&best.scenario) else { return };
        // Other scenarios are compared with generated ones.
        if self.evaluator.checks.contains_key(&best.scenario) {
            return;
        }
        for number in (1..=scenario.steps.len()).rev() {
            let mut steps: BTreeSet<usize> = best.steps.clone().unwrap_or_else(|| (1..=scenario.steps.len()).collect());
            if steps.remove(&number) {
                self.accept(best, Schedule { steps: Some(steps), ..best.clone() });
            }
        }
    }

    /// Removes fields of the custom resources in generated scenarios.
    fn fields(&mut self, best: &mut Schedule) {
        let Some(scenario) = self.evaluator.stage.scenarios.get(&best.scenario) else { return };
        if !self.evaluator.checks.contains_key(&best.scenario) {
            return;
        }
        let mut pointers = BTreeSet::new();
        for step in &scenario.steps {
            if let Step::Apply(object) = step {
                fields_of(&object["spec"], "/spec", 0, &mut pointers);
            }
        }
        for pointer in pointers {
            if best.without.iter().any(|removed| pointer.starts_with(&**removed)) {
                continue;
            }
            let mut candidate = best.clone();
            candidate.without.push(pointer);
            self.accept(best, candidate);
        }
    }
}

/// Adds the JSON pointers of the fields of an object, the outer ones first.
fn fields_of(value: &Value, path: &str, depth: usize, pointers: &mut BTreeSet<String>) {
    let Value::Object(fields) = value else { return };
    for (name, field) in fields {
        let pointer = format!("{path}/{}", pointer::escape(name));
        if depth < 4 {
            fields_of(field, &pointer, depth + 1, pointers);
        }
        pointers.insert(pointer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_pointers_from_the_outside_in() {
        let mut pointers = BTreeSet::new();
        fields_of(&json!({"a": {"b/c": 1}, "d": [1]}), "/spec", 0, &mut pointers);
        assert_eq!(pointers.into_iter().collect::<Vec<_>>(), ["/spec/a", "/spec/a/b~1c", "/spec/d"]);
    }
}
