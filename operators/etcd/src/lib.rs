//! The operator that runs etcd clusters: the sample of capability level 5.
//!
//! An [`EtcdCluster`](api::etcdcluster_v1beta2::EtcdCluster) specifies the number of members and their version. Each
//! member is a pod with an identity in etcd. To replace a member, the operator removes the old one from the membership
//! before it adds the new one, and it never makes two changes at the same time.
//!
//! | Module | Content |
//! |---|---|
//! | [`api`] | the custom resources: clusters, backups, restores |
//! | [`plan`] | the next step for the observed state of a cluster: plain data, no I/O |
//! | [`controllers`] | one controller for each kind: observe, take the step, report status, conditions and events |
//! | [`objects`] | the pods and services of a cluster |
//! | [`metrics`] | the metrics |
//! | [`etcd`] | the required part of etcd's API, and a client for its JSON gateway |
//! | [`snapshots`] | storage of snapshots |
//! | [`model`] | a model of etcd, for tests |
//!
//! `flyball create` inserts lines above the comments that begin with `+flyball`. It changes nothing else.

pub mod api {
    //! Custom resources: one module for each version of a kind.

    pub mod etcdbackup_v1beta2;
    pub mod etcdcluster_v1beta2;
    pub mod etcdrestore_v1beta2;
    // +flyball:api
}

pub mod controllers {
    //! Controllers: one module for each kind.

    pub mod etcdbackup;
    pub mod etcdcluster;
    pub mod etcdrestore;
    // +flyball:controllers
}

pub mod webhooks {
    //! Admission and conversion webhooks: one module for each kind.

    // +flyball:webhooks
}

pub mod etcd;
pub mod metrics;
pub mod model;
pub mod objects;
pub mod plan;
pub mod snapshots;

use etcd::Etcd;
use flyball::Operator;
use kube::CustomResourceExt;
use metrics::ClusterMetrics;
use snapshots::Snapshots;
use std::sync::Arc;

/// Name of the operator: its field manager, and the reporter of its events.
pub const NAME: &str = "etcd-operator";

/// Returns the operator with all of its CRDs, controllers and webhooks.
pub fn operator<E: Etcd, S: Snapshots>(etcd: Arc<E>, snapshots: Arc<S>, metrics: ClusterMetrics) -> Operator {
    let registered = metrics.clone();
    Operator::new(NAME)
        .metrics(move |registry| registered.register(registry))
        .crd(api::etcdcluster_v1beta2::EtcdCluster::crd())
        .crd(api::etcdbackup_v1beta2::EtcdBackup::crd())
        .crd(api::etcdrestore_v1beta2::EtcdRestore::crd())
        .policy(controllers::etcdcluster::policy())
        .controller(controllers::etcdcluster::controller(etcd.clone(), snapshots.clone(), metrics))
        .controller(controllers::etcdbackup::controller(etcd, snapshots))
        .controller(controllers::etcdrestore::controller())
    // +flyball:operator
}
