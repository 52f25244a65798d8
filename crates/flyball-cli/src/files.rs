//! Files and folders on this machine.

pub(crate) mod generated;
pub(crate) mod private;
pub(crate) mod watcher;
