//! Regular expressions in CEL: compiled once per budget, and charged by their work.
//!
//! In kube-apiserver, the cost of a match depends on the length of the pattern, not on its states. Here, compiling a
//! pattern is additionally charged by its states, and matching by the visited states; the work of common patterns is
//! free.

use super::meter;
use crate::matching::{Matcher, Pattern};
use crate::pattern;
use kube_cel::cel::ExecutionError;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of states that a budget compiles for free.
const FREE_STATES: u64 = 2000;
/// Cost of compiling a state.
const STATE_COST: u64 = 4;
/// States that are charged for each pattern in addition to its own.
const PATTERN_STATES: u64 = 20;
/// Maximum number of cached states and patterns.
const MAX_CACHED_STATES: u64 = 200_000;
const MAX_CACHED_PATTERNS: usize = 1000;
/// Free state visits of a budget, and the number of visits that cost one unit.
const FREE_VISITS: u64 = 20_000;
const VISITS_PER_COST: u64 = 20;
/// Bytes between a match and the end of a string that cost one unit, because the search for the next match may read
/// them.
const BYTES_PER_COST: usize = 1000;

thread_local! {
    /// The patterns of the evaluation on this thread.
    static CURRENT: RefCell<Patterns> = RefCell::default();
}

/// The compiled patterns of a budget.
#[derive(Debug)]
pub(super) struct Patterns {
    /// Compiled patterns with their numbers of states.
    compiled: BTreeMap<Box<str>, (Arc<Pattern>, u64)>,
    matcher: Matcher,
    cached_states: u64,
    free_states: u64,
    free_visits: u64,
}

impl Default for Patterns {
    fn default() -> Self {
        Self {
            compiled: BTreeMap::new(),
            matcher: Matcher::of_expressions(),
            cached_states: 0,
            free_states: FREE_STATES,
            free_visits: FREE_VISITS,
        }
    }
}

impl Patterns {
    /// Sets the patterns of the evaluation on this thread; returns the previous ones.
    pub(super) fn make_current(mut self) -> Self {
        self.matcher.refill();
        CURRENT.replace(self)
    }

    /// Returns a compiled pattern with its number of states, or Go's error message. Charges a match with a string, and
    /// the compilation.
    fn compile(&mut self, function: &str, text: &str, pattern: &str) -> Result<(Arc<Pattern>, u64), ExecutionError> {
        meter::pay(super::cost::of_match(text, pattern))?;
        if let Some(known) = self.compiled.get(pattern) {
            return Ok(known.clone());
        }
        let rejected = |reason: String| {
            let reason = if function == "matches" { reason } else { format!("Illegal regex: {reason}") };
            ExecutionError::function_error(function, reason)
        };
        let states = pattern::states(pattern).map_err(|error| rejected(error.to_string()))? + PATTERN_STATES;
        meter::pay(beyond(&mut self.free_states, states) * STATE_COST)?;
        let compiled = pattern::compile(pattern).map_err(|error| rejected(error.to_string()))?;
        if self.cached_states + states > MAX_CACHED_STATES || self.compiled.len() >= MAX_CACHED_PATTERNS {
            self.compiled.clear();
            self.matcher.clear();
            self.cached_states = 0;
        }
        self.cached_states += states;
        let compiled = (Arc::new(Pattern::new(pattern, compiled)), states);
        self.compiled.insert(pattern.into(), compiled.clone());
        Ok(compiled)
    }

    fn pay_visits(&mut self, visits: u64) -> Result<(), ExecutionError> {
        meter::pay(beyond(&mut self.free_visits, visits) / VISITS_PER_COST)
    }
}

/// Deducts an amount from a free allowance; returns the rest.
fn beyond(free: &mut u64, amount: u64) -> u64 {
    let rest = amount.saturating_sub(*free);
    *free = free.saturating_sub(amount);
    rest
}

/// Returns true if a string matches a pattern.
pub(super) fn is_match(text: &str, pattern: &str) -> Result<bool, ExecutionError> {
    CURRENT.with_borrow_mut(|patterns| {
        let (pattern, _) = patterns.compile("matches", text, pattern)?;
        let before = patterns.matcher.left();
        let found = patterns.matcher.is_match(&pattern, text);
        patterns.pay_visits(before - patterns.matcher.left())?;
        found.or_else(|_| meter::pay(u64::MAX).map(|()| false))
    })
}

/// Returns up to a number of matches of a pattern in a string.
pub(super) fn find(function: &str, text: &str, pattern: &str, limit: usize) -> Result<Vec<String>, ExecutionError> {
    CURRENT.with_borrow_mut(|patterns| {
        let (pattern, states) = patterns.compile(function, text, pattern)?;
        patterns.pay_visits(states.saturating_mul(text.len() as u64 + 1))?;
        let mut found = Vec::new();
        for part in pattern.regex().find_iter(text).take(limit) {
            meter::pay(((text.len() - part.end()) / BYTES_PER_COST) as u64)?;
            found.push(part.as_str().to_owned());
        }
        Ok(found)
    })
}
