//! Sources of values outside of templates: time, random numbers, and objects of the cluster.
//!
//! Templates are evaluated without I/O. So a lookup of objects that are not known yet fails and leaves its query, and
//! the evaluation is repeated with the result.

use crate::value::{Map, Value as Json};
use flyball_core::Rng;
use flyball_core::time::Timestamp;
use parking_lot::Mutex;
use ring::rand::{Random, SystemRandom, generate};
use std::collections::BTreeMap;

/// The sources of one run.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Replaces the randomness of the operating system in a simulation.
    rng: Option<Rng>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    now: Option<Timestamp>,
    /// Results of queries, by their parameters.
    found: BTreeMap<String, Json>,
    pending: Option<Map>,
}

impl Sources {
    pub(crate) fn new(rng: Option<Rng>) -> Self {
        Self { rng, ..Self::default() }
    }

    /// Begins an attempt of a task: sets the time, and drops results of earlier queries.
    pub(crate) fn begin(&self, now: Timestamp) {
        *self.state.lock() = State { now: Some(now), ..State::default() };
    }

    /// Returns the time; `None` outside of a run.
    pub(super) fn now(&self) -> Option<Timestamp> {
        self.state.lock().now
    }

    /// Returns a random number below `bound`, which must not be 0.
    pub(super) fn below(&self, bound: u64) -> Result<u64, String> {
        if let Some(rng) = &self.rng {
            return Ok(rng.below(bound));
        }
        let drawn: Random<[u8; 8]> = generate(&SystemRandom::new()).map_err(|_| "no randomness available")?;
        // The bias of the high half of a 64 × 64 bit product is negligible.
        Ok(((u128::from(u64::from_ne_bytes(drawn.expose())) * u128::from(bound)) >> 64) as u64)
    }

    /// Returns the result of a query, or requests it.
    pub(super) fn query(&self, parameters: Map) -> Option<Json> {
        let mut state = self.state.lock();
        let found = state.found.get(&key(&parameters)).cloned();
        if found.is_none() {
            state.pending = Some(parameters);
        }
        found
    }

    /// Returns the query that the last evaluation requested.
    pub(crate) fn pending(&self) -> Option<Map> {
        self.state.lock().pending.take()
    }

    /// Sets the result of a query.
    pub(crate) fn set_result(&self, parameters: &Map, result: Json) {
        self.state.lock().found.insert(key(parameters), result);
    }
}

fn key(parameters: &Map) -> String {
    Json::Object(parameters.clone()).to_string()
}
