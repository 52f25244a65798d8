//! Tests of metering: against independent calculations, with hostile queries, and on a control plane.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod architecture;
mod endpoint;
mod operator;
mod prometheus;
mod rules;
mod sandbox;
mod trace;
