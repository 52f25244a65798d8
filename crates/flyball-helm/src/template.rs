//! Go's `text/template`: what parses, what it does, and what it says when it fails.
//!
//! `lexer` → `parser` → `node` (the tree) → `exec`, over the values of `value`. `format` is Go's `fmt`.

pub(crate) mod exec;
pub(crate) mod format;
mod lexer;
pub(crate) mod memory;
mod method;
pub(crate) mod node;
pub(crate) mod number;
pub(crate) mod object;
mod parser;
pub(crate) mod text;
pub(crate) mod value;
pub(crate) mod world;
