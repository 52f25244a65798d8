//! Invariants of the explorer's user, checked at each revision.

use super::{Oracle, Violation};
use crate::run::Outcome;
use crate::world::World;
use std::fmt;
use std::sync::Arc;

/// The function of an [`Invariant`].
type Check = dyn Fn(&World) -> Result<(), String> + Send + Sync;

/// A rule for the objects of each revision.
#[derive(Clone)]
pub(crate) struct Invariant {
    name: String,
    check: Arc<Check>,
}

impl fmt::Debug for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Invariant").field(&self.name).finish()
    }
}

impl Invariant {
    pub(crate) fn new(name: String, check: Arc<Check>) -> Self {
        Self { name, check }
    }
}

/// Checks the invariants at each revision of a run.
pub(super) fn check(outcome: &Outcome, invariants: &[Invariant]) -> Vec<Violation> {
    let mut violations: Vec<Violation> = Vec::new();
    if invariants.is_empty() {
        return violations;
    }
    let mut world = World::default();
    for change in &outcome.history {
        world.apply(change);
        for invariant in invariants {
            let is_known = violations.iter().any(|violation| violation.object == invariant.name);
            if let (false, Err(why)) = (is_known, (invariant.check)(&world)) {
                let text = format!("at revision {}, after a write of {}: {why}", change.revision, change.stable_name());
                violations.push(Violation::new(Oracle::Invariant, &invariant.name, text));
            }
        }
    }
    violations
}
