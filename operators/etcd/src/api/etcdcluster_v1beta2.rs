//! Types of `EtcdCluster` in `etcd.database.coreos.com/v1beta2`, the group and version of the original etcd operator.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Desired state of an etcd cluster.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdCluster",
    namespaced,
    shortname = "etcd",
    doc = "An etcd cluster",
    status = "EtcdClusterStatus",
    scale(spec_replicas_path = ".spec.size", status_replicas_path = ".status.size"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.currentVersion"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct EtcdClusterSpec {
    /// Number of members.
    #[schemars(range(min = 1, max = 7))]
    pub size: u8,
    /// Version of etcd, such as `3.5.17`: the image is `<repository>:v<version>`.
    #[serde(default = "version")]
    #[schemars(regex(pattern = r"^3\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$"))]
    pub version: String,
    /// Image repository of etcd.
    #[serde(default = "repository")]
    #[schemars(length(min = 1))]
    pub repository: String,
    /// Pauses the operator: it updates the status, and changes nothing else.
    #[serde(default)]
    pub paused: bool,
    /// Schedule of backups. Disabled if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_policy: Option<BackupPolicy>,
    /// Automatic maintenance. Disabled if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autopilot: Option<Autopilot>,
}

fn version() -> String {
    "3.5.17".into()
}

fn repository() -> String {
    "quay.io/coreos/etcd".into()
}

/// Schedule and number of backups.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BackupPolicy {
    /// Seconds from one backup to the next.
    #[schemars(range(min = 10))]
    pub backup_interval_in_second: u32,
    /// Number of scheduled backups to keep.
    #[serde(default = "seven")]
    #[schemars(range(min = 1, max = 100))]
    pub max_backups: u32,
}

fn seven() -> u32 {
    7
}

/// Automatic maintenance of databases.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Autopilot {
    /// Defragments a member when the unused share of its database file exceeds this percentage.
    #[serde(default = "half")]
    #[schemars(range(min = 10, max = 90))]
    pub defragment_above_percent: u8,
    /// Minimum size of a database file to defragment, in bytes.
    #[serde(default = "sixteen_mebibytes")]
    pub defragment_above_bytes: u64,
}

fn half() -> u8 {
    50
}

fn sixteen_mebibytes() -> u64 {
    16 << 20
}

/// Observed state of an etcd cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdClusterStatus {
    /// Creating, Running or Recovering.
    pub phase: Phase,
    /// True if the operator does not change the cluster because it is paused.
    pub control_paused: bool,
    /// Number of members.
    pub size: usize,
    /// The members of etcd that have started.
    pub members: Members,
    /// Version that each member runs.
    pub versions: BTreeMap<String, String>,
    /// The oldest version that a member runs.
    pub current_version: String,
    /// The version of an upgrade in progress; empty if all members run it.
    pub target_version: String,
    /// The service of clients.
    pub service_name: String,
    /// The port of that service.
    pub client_port: u16,
    /// The incarnation of this cluster: a restore starts the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
    /// Time since when the cluster has permanently lost its quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_since: Option<String>,
    /// Times of the last defragmentation of members.
    pub defragmented: BTreeMap<String, String>,
    /// `Available`: clients can read and write, and every member that was added has started. `Progressing`: the
    /// operator executes a step or waits for one.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Lifecycle phase of a cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The cluster has not reached its desired size yet.
    #[default]
    Creating,
    /// The cluster serves clients.
    Running,
    /// The cluster lost its quorum permanently.
    Recovering,
}

/// The members of etcd, by the names of their pods.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
pub struct Members {
    /// Members that respond and follow a leader.
    pub ready: Vec<String>,
    /// The others.
    pub unready: Vec<String>,
}

/// An incarnation of a cluster, which starts with its first member.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Incarnation {
    /// Counts from 1.
    pub number: u32,
    /// True if it has served requests. Until then its first member may be recreated.
    pub formed: bool,
    /// The snapshot that it was restored from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The UID of the `EtcdRestore` that requested it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<String>,
}

/// Reference to a cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct ClusterReference {
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
}
