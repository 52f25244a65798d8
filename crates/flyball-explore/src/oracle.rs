//! Oracles: rules that each run of a correct operator satisfies.
//!
//! An oracle takes the outcome of a run and its reference, and returns violations. It knows no kinds but those of
//! Kubernetes, and nothing about the operator.

mod convergence;
mod history;
mod invariant;
mod quiescence;
mod safety;
mod undisturbed;

pub(crate) use convergence::{isolation, path_differences};
pub(crate) use invariant::Invariant;
pub(crate) use undisturbed::check as check_undisturbed;

use crate::reference::Reference;
use crate::run::Outcome;
use crate::schedule::Schedule;
use std::fmt;

/// A rule that a run violates.
#[doc(alias("checker", "property"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Oracle {
    /// The final objects are those of an undisturbed run.
    Convergence,
    /// Objects stop changing.
    Quiescence,
    /// The operator creates and deletes no object more often than in an undisturbed run.
    History,
    /// Nothing is left of deleted resources.
    Leak,
    /// No object is deleted by a process that has only observed an earlier one of the same name.
    StaleDelete,
    /// The final objects depend on the final specification, and not on earlier ones.
    PathIndependence,
    /// A healthy resource converges beside a faulty one.
    Isolation,
    /// Neither the operator nor the control plane panics.
    Panic,
    /// The operator does not end with an error.
    Exit,
    /// The number of requests is bounded.
    Requests,
    /// A replica does not write while another one holds the lease.
    Exclusion,
    /// Deletions end.
    Finalizers,
    /// Conditions and observed generations are plausible.
    Conditions,
    /// The operator leaves the changes of other controllers.
    Fight,
    /// A resync and a restart of the operator change nothing.
    Idempotence,
    /// The operator has the permissions that it uses.
    Permissions,
    /// An invariant of the explorer's user.
    Invariant,
    /// Two runs of the same schedule are equal.
    Determinism,
}

impl Oracle {
    /// All oracles.
    pub const ALL: [Self; 18] = [
        Self::Panic,
        Self::Exit,
        Self::Quiescence,
        Self::Finalizers,
        Self::History,
        Self::StaleDelete,
        Self::Exclusion,
        Self::Convergence,
        Self::Leak,
        Self::PathIndependence,
        Self::Isolation,
        Self::Requests,
        Self::Conditions,
        Self::Fight,
        Self::Idempotence,
        Self::Permissions,
        Self::Invariant,
        Self::Determinism,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Convergence => "convergence",
            Self::Quiescence => "quiescence",
            Self::History => "history",
            Self::Leak => "leak",
            Self::StaleDelete => "stale-delete",
            Self::PathIndependence => "path-independence",
            Self::Isolation => "isolation",
            Self::Panic => "panic",
            Self::Exit => "exit",
            Self::Requests => "requests",
            Self::Exclusion => "exclusion",
            Self::Finalizers => "finalizers",
            Self::Conditions => "conditions",
            Self::Fight => "fight",
            Self::Idempotence => "idempotence",
            Self::Permissions => "permissions",
            Self::Invariant => "invariant",
            Self::Determinism => "determinism",
        }
    }

    /// Returns the rule in words.
    pub fn rule(self) -> &'static str {
        match self {
            Self::Convergence => "after the faults, the objects become those of an undisturbed run",
            Self::Quiescence => "after the last change of the input, objects stop changing",
            Self::History => "no object is created or deleted more often than in an undisturbed run",
            Self::Leak => "nothing is left of a deleted resource",
            Self::StaleDelete => "a process deletes only objects that it has observed",
            Self::PathIndependence => "the objects depend on the specification, not on earlier ones",
            Self::Isolation => "a healthy resource converges beside a faulty one",
            Self::Panic => "an operator does not panic",
            Self::Exit => "an operator does not end with an error",
            Self::Requests => "the number of requests is bounded",
            Self::Exclusion => "a replica does not write while another one holds the lease",
            Self::Finalizers => "each deletion ends",
            Self::Conditions => "a condition's transition time changes with its status, and observed generations exist",
            Self::Fight => "an operator leaves fields that it does not own",
            Self::Idempotence => "a resync and a restart of the operator change nothing",
            Self::Permissions => "the manifests grant each permission that the operator uses",
            Self::Invariant => "an invariant of the test holds at each revision",
            Self::Determinism => "two runs of the same schedule are equal",
        }
    }
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A violation of an oracle in one run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) oracle: Oracle,
    /// The object, as in sites.
    pub(crate) object: String,
    /// The field, if a single one is concerned.
    pub(crate) field: String,
    /// Description in words.
    pub(crate) text: String,
}

impl Violation {
    pub(crate) fn new(oracle: Oracle, object: impl Into<String>, text: impl Into<String>) -> Self {
        Self { oracle, object: object.into(), field: String::new(), text: text.into() }
    }

    /// Returns true if it is the same violation in another run.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.oracle, &self.object) == (other.oracle, &other.object)
    }
}

/// Returns true for the name of an object whose API group is not one of Kubernetes.
fn is_custom(name: &str) -> bool {
    let group = name.split('/').next().unwrap_or_default();
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// Returns the violations of a run with faults, the most telling first.
pub(crate) fn check(
    schedule: &Schedule,
    outcome: &Outcome,
    reference: &Reference,
    invariants: &[Invariant],
) -> Vec<Violation> {
    let mut violations = safety::incidents(outcome, Some(reference));
    violations.extend(invariant::check(outcome, invariants));
    violations.extend(quiescence::check(outcome, Some(reference)));
    let is_quiet = violations.iter().all(|violation| violation.oracle != Oracle::Quiescence);
    violations.extend(safety::finalizers(outcome));
    if is_quiet {
        violations.extend(history::check(schedule, outcome, reference));
        let mut differences = convergence::check(schedule, outcome, reference);
        // The status of a custom resource is a symptom of the harm to another object.
        differences.sort_by_key(|violation| is_custom(&violation.object));
        violations.extend(differences);
        violations.extend(safety::dangling(outcome));
        violations.extend(quiescence::requests(schedule, outcome, reference));
    }
    violations
}
