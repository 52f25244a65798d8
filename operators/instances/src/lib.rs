//! The operator of a cloud: virtual machines, operations on them, and the parts of their network.
//!
//! | Kind | Specifies |
//! |---|---|
//! | [`Instance`](api::instance_v1alpha1::Instance) | a virtual machine |
//! | [`Operation`](api::operation_v1alpha1::Operation) | a reboot or a rebuild of a machine, once |
//! | [`Network`](api::network_v1alpha1::Network), [`Firewall`](api::firewall_v1alpha1::Firewall) | its network |
//! | [`IpPool`](api::ippool_v1alpha1::IpPool), [`IpClaim`](api::ipclaim_v1alpha1::IpClaim) | its public IP address |
//!
//! | Module | Content |
//! |---|---|
//! | [`api`] | the custom resources |
//! | [`controllers`] | a controller for each kind; they cooperate through objects only |
//! | [`allocations`] | the addresses of a pool and their holders: no I/O |
//! | [`cloud`] | the required part of a cloud's API, and a simulator; it does not know Kubernetes |
//!
//! `flyball create` inserts lines above the comments that begin with `+flyball`. It changes nothing else.

pub mod api {
    //! Custom resources: one module for each version of a kind.

    pub mod firewall_v1alpha1;
    pub mod instance_v1alpha1;
    pub mod ipclaim_v1alpha1;
    pub mod ippool_v1alpha1;
    pub mod network_v1alpha1;
    pub mod operation_v1alpha1;
    // +flyball:api
}

pub mod controllers {
    //! Controllers: one module for each kind.

    pub mod firewall;
    pub mod instance;
    pub mod ipclaim;
    pub mod ippool;
    pub mod network;
    pub mod operation;
    // +flyball:controllers
}

pub mod webhooks {
    //! Admission and conversion webhooks: one module for each kind.

    // +flyball:webhooks
}

pub mod allocations;
pub mod cloud;
mod status;

use cloud::{BoxError, Cloud};
use flyball::Operator;
use kube::CustomResourceExt;
use std::sync::Arc;

/// Name of the operator: its field manager, and the reporter of its events.
pub const NAME: &str = "instances-operator";

/// Returns the operator with all of its CRDs, controllers and webhooks.
///
/// `connect` returns the cloud when the operator starts: each controller calls it, and gets the same cloud.
pub fn operator<C: Cloud, E: Into<BoxError>>(
    connect: impl Fn() -> Result<Arc<C>, E> + Clone + Send + Sync + 'static,
) -> Operator {
    Operator::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .crd(api::network_v1alpha1::Network::crd())
        .crd(api::firewall_v1alpha1::Firewall::crd())
        .crd(api::ippool_v1alpha1::IpPool::crd())
        .crd(api::ipclaim_v1alpha1::IpClaim::crd())
        .crd(api::instance_v1alpha1::Instance::crd())
        .crd(api::operation_v1alpha1::Operation::crd())
        .controller(controllers::network::controller(connect.clone()))
        .controller(controllers::firewall::controller(connect.clone()))
        .controller(controllers::ippool::controller(connect.clone()))
        .controller(controllers::ipclaim::controller(connect.clone()))
        .controller(controllers::instance::controller(connect.clone()))
        .controller(controllers::operation::controller(connect))
    // +flyball:operator
}
