//! Go's `text/template`: what parses, what it does, and what it says when it fails.
//!
//! `lexer` → `parser` → `node` (the tree) → `exec`, which calls `functions` and methods.

pub(crate) mod exec;
pub(crate) mod include;
mod lexer;
mod method;
pub(crate) mod node;
mod parser;
