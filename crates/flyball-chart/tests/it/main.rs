//! Charts with what the real Helm says of them; and the library without a cluster.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and shows what differs")]

mod architecture;
mod cases;
mod library;
mod lint;
