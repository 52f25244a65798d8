//! Charts with what the real Helm says of them; and operators made of charts, on control planes that run in the tests themselves: see
//! `flyball_cluster::testing`.

#[allow(clippy::unwrap_used, reason = "what cannot be read fails the test")]
mod cases;
mod hooks;
#[allow(clippy::unwrap_used, clippy::repeat_once, reason = "what cannot be read fails the test")]
mod library;
mod lookups;
mod memcached;
mod owners;
mod project;
mod releases;
