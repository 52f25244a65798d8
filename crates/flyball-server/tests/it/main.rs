//! Integration tests of the embedded API server, in process: no other program, no socket but for webhooks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bounds;
mod connections;
mod corpus;
mod crash;
mod facts;
mod fairness;
mod identity;
mod reviews;
mod robustness;
mod webhook;
