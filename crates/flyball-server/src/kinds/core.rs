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

pub(crate) use service::Service;

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
