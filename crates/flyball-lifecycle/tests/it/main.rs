//! Tests of resolution against the recorded choices of OLM's resolver.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may panic, and print differences")]

mod architecture;
mod problems;
mod walks;
