//! Types of `EtcdBackup` in `etcd.database.coreos.com/v1beta2`.

use super::etcdcluster_v1beta2::ClusterReference;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A one-time snapshot.
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
    /// Deletion policy of the snapshot: `Delete` or `Retain`.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Deletion policy of a snapshot, applied when its `EtcdBackup` is deleted.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// The snapshot is deleted too.
    #[default]
    Delete,
    /// The snapshot is retained.
    Retain,
}

/// Observed state of a backup.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdBackupStatus {
    /// True if a snapshot exists.
    pub succeeded: bool,
    /// Reason why none exists yet.
    pub reason: String,
    /// Name of the snapshot in the snapshot storage.
    pub snapshot: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Version of the etcd member that it was taken from.
    pub etcd_version: String,
    /// Minimum revision of the snapshot.
    pub etcd_revision: i64,
    /// Time of the snapshot.
    pub last_success_date: String,
    /// UID of the cluster.
    #[serde(rename = "clusterUID")]
    pub cluster_uid: String,
}
