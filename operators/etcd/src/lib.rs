//! The operator that runs etcd clusters: the sample of capability level 5.
//!
//! An [`EtcdCluster`](resource::EtcdCluster) asks for a number of members in a version. They are pods of their own, each with
//! an identity in etcd, for replacing a member of etcd takes more than a new pod: the old one is removed from the membership
//! before the new one is added, and never are two changes under way at the same time.
//!
//! | Module | Job |
//! |---|---|
//! | [`resource`] | the custom resources: clusters, backups, restores |
//! | [`plan`] | what is seen of a cluster, and the one step that comes next: plain data, no I/O |
//! | [`operator`] | looks, takes the step, and tells: status, conditions, events |
//! | [`objects`] | the pods and services that a cluster consists of |
//! | [`backup`], [`restore`] | the controllers of the other two kinds |
//! | [`figures`] | the metrics |
//! | [`etcd`] | what is needed of etcd, and a client for its JSON gateway |
//! | [`snapshots`] | where snapshots are kept |
//! | [`model`] | an etcd without an etcd, for tests |

pub mod backup;
pub mod etcd;
pub mod figures;
pub mod model;
pub mod objects;
pub mod operator;
pub mod plan;
pub mod resource;
pub mod restore;
pub mod snapshots;
