//! Structure tests, called by `tests/it/architecture.rs` of each crate of this workspace.
//!
//! [`Sources`] parses the source text of one crate, without building it, and checks the arrows between its modules. An
//! arrow is a dependency of a module on another one: a path in an import, a type, an expression, an attribute or the
//! body of a macro. Re-exports are followed: `crate::Store` is an arrow to `cache` if `lib.rs` has `pub use
//! cache::Store`. Code under `cfg(test)` and `cfg(doctest)` is ignored.
//!
//! # Limits
//!
//! Paths to items of an ancestor or a descendant are not arrows, because parents and children are one unit. So these
//! cycles are not found:
//!
//! - between a module and its ancestors: a child that uses an item of its parent, which uses the child;
//! - between siblings, through an item of their parent: `a` uses a function of the parent, which calls `b`, which uses
//!   `a`. The root of a crate has no such items, because [`Sources::check`] rejects them;
//! - through method calls, implementations of traits and expanded macros, because their text does not name a module.

mod arrow;
mod document;
mod page;
mod root;
mod scan;
mod sources;
mod tree;
mod width;
mod words;

pub use sources::{Sources, check_pages};
