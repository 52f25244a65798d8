//! Types of `EtcdRestore` in `etcd.database.coreos.com/v1beta2`.

use super::etcdcluster_v1beta2::ClusterReference;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A one-time restore of a cluster from a backup.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdRestore",
    namespaced,
    doc = "A restore of an etcd cluster from a backup; later writes are lost",
    status = "EtcdRestoreStatus",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.etcdCluster.name"),
    printcolumn(name = "Backup", type_ = "string", json_path = ".spec.backup"),
    printcolumn(name = "Succeeded", type_ = "boolean", json_path = ".status.succeeded"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct EtcdRestoreSpec {
    /// The cluster, in the same namespace. All its members are replaced.
    pub etcd_cluster: ClusterReference,
    /// The `EtcdBackup` in the same namespace that the cluster is restored from.
    #[schemars(length(min = 1))]
    pub backup: String,
}

/// Observed state of a restore.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdRestoreStatus {
    /// True if the cluster serves the data of the backup.
    pub succeeded: bool,
    /// Reason why the restore is not complete.
    pub reason: String,
}
