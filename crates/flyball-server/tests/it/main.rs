//! Integration tests of the embedded API server, in process: no other program, no socket but for webhooks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bounds;
mod corpus;
mod crash;
mod facts;
mod growth;
mod linear;
mod patches;
mod reviews;
mod robustness;
mod webhook;
