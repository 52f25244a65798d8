//! The commands: one file each.

pub(crate) mod cluster;
pub(crate) mod demo;
pub(crate) mod run;
