//! References: undisturbed runs, with which runs with faults are compared.

use crate::history::{Meta, Tally, tally};
use crate::run::{Outcome, RunOptions, run};
use crate::schedule::Schedule;
use crate::stage::Stage;
use crate::state::{Mask, differences};

/// Latencies of the further undisturbed runs, in milliseconds. What differs in them depends on the order of events.
const JITTERS: [u32; 2] = [5, 40];

/// The undisturbed run of a scenario, and the values that depend on latencies.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) outcome: Outcome,
    /// Fields of the final state that differ between latencies.
    pub(crate) mask: Mask,
    /// Maximum number of creations and deletions by object.
    pub(crate) tally: Tally,
    /// True if no custom resource remains.
    pub(crate) ends_empty: bool,
    /// True if the scenario returns to an earlier specification.
    pub(crate) reverts: bool,
    /// Fields of specifications that depend on latencies.
    pub(crate) warnings: Vec<String>,
}

impl Reference {
    /// Plays the scenario of a schedule without its faults.
    pub(crate) fn new(stage: &Stage, schedule: &Schedule) -> Self {
        let undisturbed = Schedule { injections: Vec::new(), jitter: 0, ..schedule.clone() };
        let outcome = run(stage, &undisturbed, RunOptions { restarts: true, ..RunOptions::default() });
        let (mut mask, mut totals) = (Mask::new(), tally(&outcome.history));
        let mut warnings = Vec::new();
        for late in late_outcomes(stage, &undisturbed).into_iter().filter(|_| outcome.is_quiet) {
            for difference in differences(&outcome.state, &late.state, &Mask::new()) {
                let is_intent = !difference.field.starts_with("/status") && !difference.field.starts_with("/metadata");
                if is_intent {
                    warnings.push(format!("{} {} depends on latencies", difference.object, difference.field));
                }
                mask.insert((difference.object, difference.field));
            }
            for (name, (creates, deletes)) in tally(&late.history) {
                let count = totals.entry(name).or_default();
                *count = (count.0.max(creates), count.1.max(deletes));
            }
        }
        let scenario = stage.scenarios.get(&schedule.scenario);
        let is_custom = |name: &String| stage.is_custom(name);
        let ends_empty = !outcome.state.keys().any(is_custom);
        let reverts = scenario.is_some_and(crate::scenario::Scenario::reverts);
        warnings.sort();
        warnings.dedup();
        Self { outcome, mask, tally: totals, ends_empty, reverts, warnings }
    }

    /// Returns the maximum number of requests of a run with faults.
    pub(crate) fn max_requests(&self) -> u64 {
        self.outcome.requests.saturating_mul(10) + 1000
    }

    /// Returns true if the final state contains an object that is being deleted.
    pub(crate) fn is_stuck(&self) -> bool {
        self.outcome.objects.iter().any(|object| Meta::of(&object.body).is_deleting())
    }
}

/// Runs a schedule with other latencies, at the same time.
fn late_outcomes(stage: &Stage, undisturbed: &Schedule) -> Vec<Outcome> {
    let schedule = |(n, jitter)| Schedule { seed: undisturbed.seed + n, jitter, ..undisturbed.clone() };
    let schedules: Vec<Schedule> = (1..).zip(JITTERS).map(schedule).collect();
    std::thread::scope(|scope| {
        let start = |schedule| scope.spawn(move || run(stage, schedule, RunOptions::default()));
        let runs: Vec<_> = schedules.iter().map(start).collect();
        let end = |run: std::thread::ScopedJoinHandle<'_, Outcome>| run.join();
        runs.into_iter().map(end).map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
