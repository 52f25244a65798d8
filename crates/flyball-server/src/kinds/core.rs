//! Kinds of the core group.

mod binding;
mod component_status;
mod config_map;
mod data;
mod endpoints;
pub(super) mod event;
mod limit_range;
mod namespace;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod secret;
mod service;
mod service_account;
mod volume_cells;

pub(crate) use binding::KIND as BINDING;
pub(crate) use event::KIND as EVENT;
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

use super::kind::Kind;

const GROUP: &str = "";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[
    &binding::KIND,
    &component_status::KIND,
    &config_map::KIND,
    &endpoints::KIND,
    &event::KIND,
    &limit_range::KIND,
    &namespace::KIND,
    &node::KIND,
    &persistent_volume_claim::KIND,
    &persistent_volume::KIND,
    &pod::KIND,
    &pod_template::KIND,
    &replication_controller::KIND,
    &resource_quota::KIND,
    &secret::KIND,
    &service_account::KIND,
    &service::KIND,
];
