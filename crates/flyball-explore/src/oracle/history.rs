//! The operator creates and deletes no object more often than in an undisturbed run.

use super::{Oracle, Violation};
use crate::history::tally;
use crate::reference::Reference;
use crate::run::Outcome;
use crate::schedule::Schedule;

/// Compares the history of a run with that of its reference.
pub(super) fn check(_: &Schedule, outcome: &Outcome, reference: &Reference) -> Vec<Violation> {
    if outcome.occurrences.iter().any(|occurrence| occurrence.fault.changes_input()) {
        return Vec::new();
    }
    let more = |(name, (creates, deletes)): (&String, &(u32, u32))| {
        let (expected_creates, expected_deletes) = reference.tally.get(name).copied().unwrap_or_default();
        let times = |count: u32| if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let never = |count: u32| if count == 0 { "never".to_owned() } else { times(count) };
        let text = if *deletes > expected_deletes {
            format!("it was deleted {}; an undisturbed run deletes it {}", times(*deletes), never(expected_deletes))
        } else if *creates > expected_creates {
            format!("it was created {}; an undisturbed run creates it {}", times(*creates), never(expected_creates))
        } else {
            return None;
        };
        Some(Violation::new(Oracle::History, name, text))
    };
    tally(&outcome.history).iter().filter_map(more).collect()
}
