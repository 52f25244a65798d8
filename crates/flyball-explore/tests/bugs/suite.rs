//! The benchmark: each bug is found in time and shrunk, its schedule fails again, and its fixed twin has no finding.
//!
//! | Variable | Meaning | Default |
//! |---|---|---|
//! | `FLYBALL_BUGS_BUDGET` | number of schedules in which a bug has to be found | 2000 |
//! | `FLYBALL_BUGS_SEEDS` | number of seeds with which it has to be found | 1 |
//! | `FLYBALL_BUGS_REPLAYS` | number of replays of its schedule | 2 |
//! | `FLYBALL_BUGS_SCHEDULES` | number of schedules of its fixed twin | 60 |
//!
//! `cargo test -p flyball-explore --test bugs -- is_found --nocapture` prints the table of the bugs.

use flyball_explore::{Budget, Explorer, Finding, Oracle};
use std::env;

/// A buggy operator and its fixed twin.
pub(crate) struct Bug {
    /// Returns the explorer of the buggy operator.
    pub(crate) buggy: fn() -> Explorer,
    /// Returns the explorer of the fixed operator.
    pub(crate) fixed: fn() -> Explorer,
    /// The rule that the buggy operator violates.
    pub(crate) oracle: Oracle,
    /// The object that it harms, as in reports.
    pub(crate) object: &'static str,
    /// The smallest schedule that shows it.
    pub(crate) schedule: &'static str,
}

impl Bug {
    fn is_shown_by(&self, finding: &&Finding) -> bool {
        finding.oracle == self.oracle && finding.object == self.object
    }

    /// Returns the number of faults in the smallest schedule.
    fn faults(&self) -> usize {
        self.schedule.parse::<flyball_explore::Schedule>().expect("the schedule is valid").injections.len()
    }
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn schedules(variable: &str, default: u64) -> Budget {
    Budget::schedules(usize::try_from(number(variable, default)).unwrap_or(usize::MAX))
}

/// Explores a buggy operator with several seeds. Returns a row of the table for each.
fn find(name: &str, bug: &Bug) -> Vec<String> {
    let budget = schedules("FLYBALL_BUGS_BUDGET", 2000);
    let seeds = 1..=number("FLYBALL_BUGS_SEEDS", 1);
    let find_once = |seed| {
        let report = (bug.buggy)().budget(budget).seed(seed).threads(1).run();
        let finding = report.findings().iter().find(|finding| bug.is_shown_by(finding));
        let Some(finding) = finding else {
            panic!("{name} is not found with seed {seed}: expected {} of {}\n{report}", bug.oracle, bug.object)
        };
        let (faults, expected) = (finding.schedule.injections.len(), bug.faults());
        assert!(faults <= expected, "{faults} faults instead of {expected}\n{report}");
        let seconds = finding.found_after.as_secs_f64();
        let Finding { oracle, object, schedules, schedule, .. } = finding;
        format!("| {name} | {oracle} | {object} | {schedules} | {seconds:.1} s | {faults} | `{schedule}` |")
    };
    seeds.map(find_once).collect()
}

/// Replays the schedule of a bug.
fn replay(name: &str, bug: &Bug) {
    let mut first: Option<Vec<String>> = None;
    for _ in 0..number("FLYBALL_BUGS_REPLAYS", 2) {
        let report = (bug.buggy)().replay(bug.schedule);
        let Some(finding) = report.findings().iter().find(|finding| bug.is_shown_by(finding)) else {
            panic!("the schedule of {name} does not show it\n{report}")
        };
        let known = first.get_or_insert_with(|| finding.timeline.clone());
        assert_eq!(*known, finding.timeline, "two replays of {name} differ");
    }
}

/// Explores a fixed operator.
fn explore_fixed(bug: &Bug) {
    (bug.fixed)().budget(schedules("FLYBALL_BUGS_SCHEDULES", 60)).run().assert_clean();
}

macro_rules! bugs {
    ($($name:ident: $bug:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn is_found() {
                find(stringify!($name), &$bug).iter().for_each(|row| println!("{row}"));
            }

            #[test]
            fn fails_again() {
                replay(stringify!($name), &$bug);
            }

            #[test]
            fn twin_has_no_finding() {
                explore_fixed(&$bug);
            }
        }
    )*};
}

bugs! {
    stale_tombstone: crate::stale_tombstone::BUG;
    shrinking_volume: crate::shrinking_volume::BUG;
    interrupted_resize: crate::interrupted_resize::BUG;
    forgotten_restart: crate::forgotten_restart::BUG;
    life_after_finalizer: crate::life_after_finalizer::BUG;
    surplus_pods: crate::surplus_pods::BUG;
    restless_status: crate::restless_status::BUG;
    accidental_retry: crate::accidental_retry::BUG;
    stuck_finalizer: crate::stuck_finalizer::BUG;
    two_leaders: crate::two_leaders::BUG;
    empty_field: crate::empty_field::BUG;
    lasting_label: crate::lasting_label::MERGED;
    overwritten_annotation: crate::lasting_label::REPLACED;
}
