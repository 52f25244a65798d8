//! The budget of all evaluations of one run.
//!
//! Each evaluation is limited in fuel and size, but a run may have many. So their work is added up in units of fuel;
//! the charges depend on templates and variables alone, so that a run is deterministic. A time limit covers work that
//! is not charged; simulated time does not advance during an evaluation, so it has no effect in simulations.

use super::{FUEL, Sources};
use minijinja::{Environment, Error, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The work limit of one run, in units of fuel: about a second in a release build.
pub(super) const MAX_WORK: u64 = 8_000_000;
/// The amount of work after which a run yields to others on the same thread: some milliseconds.
const WORK_PER_TURN: u64 = 100_000;
/// Time limit of all evaluations of one run.
const MAX_EVALUATION_TIME: Duration = Duration::from_secs(10);

/// The work and time taken by evaluations, and their access to values outside of templates.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    work: AtomicU64,
    /// Work at the last yield.
    yielded_at: AtomicU64,
    spent: Mutex<Duration>,
    /// Environment variables in `passEnvironment`.
    pub(super) environment: BTreeSet<String>,
    pub(crate) sources: Sources,
}

impl Budget {
    pub(crate) fn new(environment: BTreeSet<String>, sources: Sources) -> Self {
        Self { environment, sources, ..Self::default() }
    }

    /// Charges work before it is done.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub(crate) fn charge(&self, work: u64) -> Result<(), String> {
        let add = |before: u64| Some(before.saturating_add(work));
        let before = self.work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).unwrap_or_default();
        if before.saturating_add(work) > MAX_WORK { Err(Self::exceeded()) } else { Ok(()) }
    }

    /// Fails if the budget is exhausted, so that the run does not continue with failed parts.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.charge(0)?;
        if *self.spent() > MAX_EVALUATION_TIME {
            return Err(format!(
                "the templates of the run exceed the time limit of {} s",
                MAX_EVALUATION_TIME.as_secs()
            ));
        }
        Ok(())
    }

    /// Yields to other runs after some work.
    pub(crate) async fn yield_turn(&self) {
        let work = self.work.load(Ordering::Relaxed);
        if work.saturating_sub(self.yielded_at.load(Ordering::Relaxed)) >= WORK_PER_TURN {
            self.yielded_at.store(work, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }

    fn exceeded() -> String {
        format!(
            "the templates and loops of the run exceed the limit of {MAX_WORK} steps: check for lists that are too long"
        )
    }

    /// Evaluates with increasing fuel limits.
    pub(super) fn evaluate<T>(
        &self,
        engines: &[Environment<'static>],
        evaluate: impl Fn(&Environment<'static>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut steps = engines.iter().zip(FUEL).peekable();
        loop {
            let (engine, fuel) = steps.next().expect("the last limit returns");
            self.charge(fuel).map_err(super::reject)?;
            match evaluate(engine) {
                Err(error) if steps.peek().is_some() && is_out_of_fuel(&error) => {}
                result => return result,
            }
        }
    }

    /// Runs an expensive evaluation outside of the async workers.
    pub(super) fn spend<T>(&self, evaluate: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.check().map_err(super::reject)?;
        let began = Instant::now();
        let value = evaluate();
        *self.spent() += began.elapsed();
        value
    }

    fn spent(&self) -> parking_lot::MutexGuard<'_, Duration> {
        self.spent.lock()
    }
}

/// Returns true if an error was caused by a lack of fuel, at any level.
fn is_out_of_fuel(error: &Error) -> bool {
    let sources = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    sources.filter_map(|error| error.downcast_ref::<Error>()).any(|error| error.kind() == ErrorKind::OutOfFuel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::explain;

    #[test]
    fn run_past_the_time_limit_evaluates_no_templates() {
        let budget = Budget { spent: Mutex::new(MAX_EVALUATION_TIME + Duration::from_millis(1)), ..Budget::default() };
        let error = budget.spend(|| Ok(())).unwrap_err();
        assert!(explain(&error).contains("time limit of 10 s"));
        assert_eq!(Budget::default().spend(|| Ok(3)).unwrap(), 3);
    }

    #[test]
    fn run_past_the_step_limit_evaluates_no_templates() {
        let budget = Budget::default();
        budget.charge(MAX_WORK).unwrap();
        assert!(budget.check().is_ok());
        assert!(budget.charge(1).unwrap_err().contains("8000000 steps"));
        assert!(budget.spend(|| Ok(())).is_err() && budget.charge(u64::MAX).is_err() && budget.check().is_err());
    }

    #[tokio::test]
    async fn busy_run_yields_to_others() {
        let budget = Budget::default();
        let other = tokio::spawn(async {});
        budget.charge(WORK_PER_TURN - 1).unwrap();
        budget.yield_turn().await;
        assert!(!other.is_finished(), "the run has hardly worked");
        budget.charge(1).unwrap();
        budget.yield_turn().await;
        assert!(other.is_finished());
    }
}
