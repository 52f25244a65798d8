//! The spec of pods and pod templates.

pub(super) mod container;
mod defaults;
mod env;
mod mount;
pub(super) mod placement;
mod probe;
mod security;
pub(super) mod spec;
mod surroundings;
pub(super) mod volume;
mod warnings;

pub(super) use defaults::{spec as default_spec, template};
pub(super) use placement::tolerations;
pub(super) use spec::{template as check_template, template_metadata as check_template_metadata};
pub(super) use warnings::of as warn_of;
