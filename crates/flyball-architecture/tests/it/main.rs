//! The structure of this crate.

mod architecture;
mod operators;
