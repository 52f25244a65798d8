//! Fuzzing: no input makes the server panic, hang, grow, fail, or return data that it does not store.
//!
//! Each target is an entry point of input; [`engine`] describes a run.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod engine;
mod mutate;
mod restart;
mod strict;
mod targets;
mod variants;

macro_rules! targets {
    ($($module:ident: $($name:ident)*;)*) => {
        $($(#[test]
        fn $name() {
            engine::run(stringify!($name), &$module::$name());
        })*)*
    };
}

targets! {
    targets: requests bodies patches managed_fields selectors cel schemas continue_tokens watches webhooks;
    variants: json_patches strategic_patches headers reviews;
    restart: data_directory;
}
