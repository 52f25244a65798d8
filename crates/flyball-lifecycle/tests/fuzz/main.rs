//! Malformed catalogs, bundles and images: none makes the library panic, hang or exhaust memory.
//!
//! The loop and its mutations are those of `flyball-server`; `engine.rs` there describes a run.
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

targets! { bundles catalogs images old_packages }
