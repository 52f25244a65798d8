//! Types of `EtcdBackup` in `etcd.database.coreos.com/v1beta2`.

use super::etcdcluster_v1beta2::ClusterReference;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A snapshot to be taken, once.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdBackup",
    namespaced,
    doc = "A snapshot of an etcd cluster",
    status = "EtcdBackupStatus",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.etcdCluster.name"),
    printcolumn(name = "Succeeded", type_ = "boolean", json_path = ".status.succeeded"),
    printcolumn(name = "Revision", type_ = "integer", json_path = ".status.etcdRevision"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct EtcdBackupSpec {
    /// The cluster, in the same namespace.
    pub etcd_cluster: ClusterReference,
    /// What becomes of the snapshot when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What becomes of a snapshot when its `EtcdBackup` goes.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// It goes too.
    #[default]
    Delete,
    /// It stays where it is kept.
    Retain,
}

/// What came of a backup.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdBackupStatus {
    /// Whether there is a snapshot.
    pub succeeded: bool,
    /// Why there is none yet.
    pub reason: String,
    /// The snapshot's name where snapshots are kept.
    pub snapshot: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The version of the etcd that gave it.
    pub etcd_version: String,
    /// The revision that this etcd was at, or beyond.
    pub etcd_revision: i64,
    /// When it was taken.
    pub last_success_date: String,
    /// The UID of the cluster that it is of.
    #[serde(rename = "clusterUID")]
    pub cluster_uid: String,
}
