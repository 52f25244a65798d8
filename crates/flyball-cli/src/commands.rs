//! The commands: one file each.

pub(crate) mod apply;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod crd;
pub(crate) mod create;
pub(crate) mod demo;
pub(crate) mod describe;
pub(crate) mod doctor;
pub(crate) mod get;
pub(crate) mod init;
pub(crate) mod levels;
pub(crate) mod old;
pub(crate) mod run;
pub(crate) mod trace;
