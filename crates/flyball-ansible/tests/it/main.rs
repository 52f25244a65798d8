//! Ansible operators on control planes that run in the tests themselves.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ansible;
mod architecture;
mod failures;
mod memcached;
#[expect(dead_code, reason = "these tests take a sample of it")]
#[path = "../tenant/payloads.rs"]
mod payloads;
mod project;
mod rights;
mod shop;
mod visitors;
mod watches;
