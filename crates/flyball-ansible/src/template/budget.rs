//! What all templates of one run may take together.
//!
//! One template is bounded by its fuel and its size. A run may evaluate very many, so the time that they take is added up, without
//! that in which tasks wait. In a simulation no time passes meanwhile, so the budget changes nothing there.

use minijinja::Error;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long all evaluations of one run may take.
const MAX_EVALUATION_TIME: Duration = Duration::from_secs(10);

/// The time that evaluations have taken, and what they may see of the environment.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    spent: Mutex<Duration>,
    /// Variables that the author passes on.
    pub(super) environment: BTreeSet<String>,
}

impl Budget {
    pub(crate) fn new(environment: BTreeSet<String>) -> Self {
        Self { environment, ..Self::default() }
    }

    /// Evaluates something, as long as there is time left.
    pub(super) fn spend<T>(&self, evaluate: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let mut spent = *self.spent();
        if spent > MAX_EVALUATION_TIME {
            let problem = format!("the templates of one run took more than {} s", MAX_EVALUATION_TIME.as_secs());
            return Err(super::refuse(problem));
        }
        let began = Instant::now();
        let value = evaluate();
        spent += began.elapsed();
        *self.spent() = spent;
        value
    }

    fn spent(&self) -> std::sync::MutexGuard<'_, Duration> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::explain;

    #[test]
    fn a_run_that_took_too_long_evaluates_nothing_more() {
        let budget = Budget { spent: Mutex::new(MAX_EVALUATION_TIME + Duration::from_millis(1)), ..Budget::default() };
        let error = budget.spend(|| Ok(())).unwrap_err();
        assert!(explain(&error).contains("took more than 10 s"));
        assert_eq!(Budget::default().spend(|| Ok(3)).unwrap(), 3);
    }
}
