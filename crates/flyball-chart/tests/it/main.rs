//! Tests that compare charts with the output of Helm, and tests of the library without a cluster.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may panic, and print differences")]

mod architecture;
mod cases;
mod library;
mod lint;
