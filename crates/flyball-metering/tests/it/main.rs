//! Tests of metering: against independent calculations, with hostile queries, and on a control plane.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod architecture;
mod endpoint;
mod isolation;
mod operator;
mod prometheus;
mod results;
mod rules;
mod sandbox;
mod trace;
