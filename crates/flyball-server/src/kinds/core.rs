//! Kinds of the core group.

kinds! {
    mod binding;
    mod component_status;
    mod config_map;
    mod endpoints;
    pub(super) mod event;
    mod limit_range;
    mod namespace;
    mod node;
    mod persistent_volume_claim;
    mod persistent_volume;
    mod pod;
    mod pod_template;
    mod replication_controller;
    mod resource_quota;
    mod secret;
    mod service_account;
    mod service;
}

mod data;
mod volume_cells;

pub(crate) use binding::KIND as BINDING;
pub(crate) use limit_range::KIND as LIMIT_RANGE;
pub(crate) use namespace::KIND as NAMESPACE;
pub(crate) use node::KIND as NODE;
pub(crate) use persistent_volume::KIND as PERSISTENT_VOLUME;
pub(crate) use persistent_volume_claim::KIND as PERSISTENT_VOLUME_CLAIM;
pub(crate) use pod::{KIND as POD, usage as pod_usage};
pub(crate) use resource_quota::KIND as RESOURCE_QUOTA;
pub(crate) use secret::KIND as SECRET;
pub(crate) use service::{KIND as SERVICE, Service};
pub(crate) use service_account::KIND as SERVICE_ACCOUNT;

const GROUP: &str = "";
