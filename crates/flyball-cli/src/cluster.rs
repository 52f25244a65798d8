//! Operations on clusters.

pub(crate) mod account;
pub(crate) mod apply;
pub(crate) mod connection;
pub(crate) mod created;
pub(crate) mod deletion;
pub(crate) mod embedded;
pub(crate) mod failure;
pub(crate) mod kinds;
pub(crate) mod kubeconfig;
mod real_time;
pub(crate) mod rollout;
pub(crate) mod safety;
pub(crate) mod selection;
pub(crate) mod steppable;
pub(crate) mod wait;
