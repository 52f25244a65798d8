//! Integration tests of the embedded API server, in process: no other program, no real time, no socket but for webhooks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod corpus;
mod robustness;
mod webhook;
