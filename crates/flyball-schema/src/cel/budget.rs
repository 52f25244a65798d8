//! Cost budgets for several evaluations of expressions.

use super::patterns::Patterns;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum cost of all expressions of one write: more than two policies that each reach their own limit.
const MAX_TOTAL_COST: u64 = 25_000_000;

/// The cost budget of all expressions of one write.
#[derive(Debug)]
pub struct TotalBudget(AtomicU64);

impl Default for TotalBudget {
    fn default() -> Self {
        Self(AtomicU64::new(MAX_TOTAL_COST))
    }
}

impl TotalBudget {
    /// Returns true if it is exceeded.
    pub fn is_exceeded(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Charges a cost; returns false if the budget is exceeded.
    fn spend(&self, cost: u64) -> bool {
        let remaining = |remaining: u64| Some(remaining.saturating_sub(cost));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, remaining).is_ok_and(|remaining| remaining > cost)
    }
}

/// The cost budget of several evaluations; after it is exceeded, no further expression is evaluated.
#[derive(Debug)]
pub struct Budget {
    remaining: Cell<Option<u64>>,
    /// The regular expressions compiled by the evaluations.
    pub(super) patterns: RefCell<Patterns>,
    total: Option<Arc<TotalBudget>>,
}

impl Budget {
    /// Creates the budget for all rules of a custom resource, or of a policy.
    pub fn of_rules() -> Self {
        Self::of(10_000_000)
    }

    /// Creates the budget for the match conditions of a webhook or a policy.
    pub fn of_conditions() -> Self {
        Self::of(2_500_000)
    }

    fn of(cost: u64) -> Self {
        Self { remaining: Cell::new(Some(cost)), patterns: RefCell::default(), total: None }
    }

    /// Limits this budget by the total budget of a write.
    #[must_use]
    pub fn within(self, total: &Arc<TotalBudget>) -> Self {
        if total.is_exceeded() {
            self.stop();
        }
        Self { total: Some(total.clone()), ..self }
    }

    /// Returns true if the budget is used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.remaining.get() == Some(0)
    }

    /// Returns true if no further expression may be evaluated.
    pub(crate) fn is_stopped(&self) -> bool {
        self.remaining.get().is_none()
    }

    /// Prevents further evaluations.
    pub(crate) fn stop(&self) {
        self.remaining.set(None);
    }

    /// Charges a cost; returns false if the budget is exceeded.
    pub(super) fn spend(&self, cost: u64) -> bool {
        let is_left = self.total.as_ref().is_none_or(|total| total.spend(cost));
        self.remaining.set(self.remaining.get().filter(|_| is_left).and_then(|remaining| remaining.checked_sub(cost)));
        !self.is_stopped()
    }
}
