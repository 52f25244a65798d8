//! Ansible operators on embedded control planes.
#![expect(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

mod ansible;
mod architecture;
mod coverage;
mod deletions;
mod expressions;
mod failures;
mod features;
mod isolation;
mod memcached;
#[expect(dead_code, reason = "these tests use only a part of it")]
#[path = "../tenant/payloads.rs"]
mod payloads;
mod presets;
mod project;
mod rights;
mod role_metrics;
mod schemas;
mod shop;
#[expect(dead_code, reason = "these tests use only a part of it")]
#[path = "../../../flyball-cluster/tests/tenant/suite.rs"]
mod suite;
mod tenant;
mod uri;
mod visitors;
mod watches;
