//! Pods, and the templates of them that other kinds hold.

mod defaults;

pub(super) use defaults::{pod as default, template};
