//! The structure of this crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod architecture;
mod crates;
mod operators;
