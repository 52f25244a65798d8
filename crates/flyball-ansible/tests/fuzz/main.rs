//! Malformed `watches.yaml`, playbooks, roles and specs: none makes the library panic, hang or exhaust memory.
//!
//! The loop and its mutations are those of `flyball-server`; `engine.rs` there describes a run.
#![expect(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

#[path = "../../../flyball-server/tests/fuzz/engine.rs"]
mod engine;
#[path = "../../../flyball-server/tests/fuzz/mutate.rs"]
mod mutate;
mod targets;
mod variables;

#[test]
fn watches_yaml() {
    engine::run("watches_yaml", &targets::watches_yaml());
}

#[test]
fn playbooks() {
    engine::run("playbooks", &targets::playbooks());
}

#[test]
fn role_files() {
    engine::run("role_files", &targets::role_files());
}

#[test]
fn variables() {
    engine::run("variables", &variables::Variables);
}
