//! Integration tests of the explorer.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod architecture;
mod faults;
mod leadership;
mod parts;
mod threads;
