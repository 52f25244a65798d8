//! An operator: its program, its process on this machine, and its installation in a cluster.

pub(crate) mod charts;
mod inputs;
pub(crate) mod installation;
pub(crate) mod local;
pub(crate) mod metrics;
pub(crate) mod overlay;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod registry;
pub(crate) mod removal;
pub(crate) mod test_environment;
