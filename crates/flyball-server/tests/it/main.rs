//! Integration tests of the embedded API server, in process: no other program, no real time, no socket but for webhooks.

mod robustness;
mod webhook;
