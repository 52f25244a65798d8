//! Tests of the crate: its layers, and runs on an embedded control plane in virtual time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod architecture;
mod runs;
mod stage;
