//! The commands: one file each.

pub(crate) mod apply;
pub(crate) mod bench;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod crd;
pub(crate) mod create;
pub(crate) mod demo;
pub(crate) mod deploy;
pub(crate) mod describe;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod get;
pub(crate) mod image;
pub(crate) mod init;
pub(crate) mod install;
pub(crate) mod levels;
pub(crate) mod lint;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod manifests;
pub(crate) mod old;
pub(crate) mod render;
pub(crate) mod run;
pub(crate) mod test;
pub(crate) mod trace;
pub(crate) mod undeploy;
