//! Charts with what the real Helm says of them; and operators made of charts, on control planes that run in the tests
//! themselves: see `flyball_cluster::testing`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and shows what differs")]

mod architecture;
mod forged;
mod hooks;
mod lookups;
mod memcached;
mod owners;
mod places;
mod project;
mod releases;
mod restarts;
