//! Types of `Instance` in `compute.flyball.dev/v1alpha1`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A virtual machine.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "compute.flyball.dev",
    version = "v1alpha1",
    kind = "Instance",
    namespaced,
    shortname = "vm",
    doc = "A virtual machine in a cloud",
    status = "InstanceStatus",
    printcolumn(name = "Size", type_ = "string", json_path = ".spec.size"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Private_IP", type_ = "string", json_path = ".status.privateIp"),
    printcolumn(name = "Public_IP", type_ = "string", json_path = ".status.publicIp"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.size == oldSelf.size && self.image == oldSelf.image && self.network == oldSelf.network",
    "message": "size, image and network cannot change: create another instance",
}]))]
pub struct InstanceSpec {
    /// Size, as the cloud names it.
    #[schemars(length(min = 1, max = 63))]
    pub size: String,
    /// Image of the disk, as the cloud names it.
    #[schemars(length(min = 1, max = 253))]
    pub image: String,
    /// The `Network`, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub network: String,
    /// The `Firewall`, in the same namespace. Without one, all incoming connections are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub firewall: Option<String>,
    /// Requests a public address, by an `IpClaim` of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PublicIp")]
    pub public_ip: Option<PublicIp>,
    /// `Running` or `Stopped`.
    #[serde(default)]
    pub power: Power,
}

/// A public address.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PublicIp {
    /// The `IpPool`.
    #[schemars(length(min = 1, max = 253))]
    pub pool: String,
}

/// Desired power state of a machine.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// The machine runs.
    #[default]
    Running,
    /// The machine is powered off.
    Stopped,
}

/// Observed state of a machine.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// State of the machine in the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 63))]
    pub state: Option<String>,
    /// Identity of the machine in the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 253))]
    pub machine_id: Option<String>,
    /// Identity of the disk in the cloud, which changes when the machine is rebuilt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 253))]
    pub disk_id: Option<String>,
    /// Address in the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 39))]
    pub private_ip: Option<String>,
    /// Public address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 39))]
    pub public_ip: Option<String>,
    /// `Ready`: the machine is in its desired state.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
