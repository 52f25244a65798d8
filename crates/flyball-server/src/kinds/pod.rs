//! Pods, and the templates of them that other kinds hold.

mod container;
mod defaults;
mod env;
mod mount;
mod placement;
mod probe;
mod security;
mod spec;
mod update;
pub(super) mod volume;
mod warnings;

pub(super) use defaults::{pod as default, template};
pub(super) use placement::tolerations;
pub(super) use spec::{template as check_template, template_metadata as check_template_metadata};
pub(super) use update::{prepare, validate, warn};
pub(super) use warnings::of as warn_of;
