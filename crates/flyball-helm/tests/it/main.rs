//! Charts with what the real Helm says of them, and the library as a program uses it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and shows what differs")]

mod cases;
mod library;
