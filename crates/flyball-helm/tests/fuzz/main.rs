//! Bad releases and `watches.yaml`: none makes the library panic, hang or grow.
//!
//! The loop and its mutations are those of `flyball-server`; `engine.rs` there describes how a run goes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

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

targets! { releases watches_yaml }
