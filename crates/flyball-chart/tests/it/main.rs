//! Charts compared with the output of Helm; and the library without a cluster.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may panic, and print differences")]

mod architecture;
mod cases;
mod library;
mod lint;
