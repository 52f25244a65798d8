//! Ansible operators on control planes that run in the tests themselves.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ansible;
mod failures;
mod memcached;
mod project;
mod rights;
mod shop;
mod visitors;
mod watches;
