//! Tests of the operator with the simulated cloud: of its behavior, and explorations of faults.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod behavior;
mod operations;
mod pool;
mod simulated;
