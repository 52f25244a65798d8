//! Go's `text/template`: parser, execution, and error messages.
//!
//! `lexer` → `parser` → `node` (the tree) → `exec`, which calls `functions` and methods.

pub(crate) mod exec;
pub(crate) mod include;
mod lexer;
mod method;
pub(crate) mod node;
mod parser;
