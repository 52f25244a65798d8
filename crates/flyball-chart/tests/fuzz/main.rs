//! Fuzz tests: malformed charts, values and archives must not cause panics, hangs or unbounded memory.
//!
//! The fuzzing loop and its mutations are those of `flyball-server`, see `engine.rs` there.
#![expect(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

#[path = "../../../flyball-server/tests/fuzz/engine.rs"]
mod engine;
#[path = "../../../flyball-server/tests/fuzz/mutate.rs"]
mod mutate;
mod targets;

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            engine::run(stringify!($name), &targets::$name());
        })*
    };
}

targets! { archives chart_files templates values }
