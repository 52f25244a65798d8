//! Types of `IpPool` in `compute.flyball.dev/v1alpha1`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pool of public addresses, from which [`IpClaim`](super::ipclaim_v1alpha1::IpClaim)s of all namespaces get one.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "compute.flyball.dev",
    version = "v1alpha1",
    kind = "IpPool",
    doc = "A pool of public addresses",
    status = "IpPoolStatus",
    printcolumn(name = "Capacity", type_ = "integer", json_path = ".status.capacity"),
    printcolumn(name = "Allocated", type_ = "integer", json_path = ".status.allocated"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct IpPoolSpec {
    /// The addresses. One that is removed stays with its claim, and is not allocated again.
    #[schemars(length(min = 1, max = 256), inner(length(min = 2, max = 39)))]
    #[schemars(extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [{
        "rule": "self.all(address, isIP(address))",
        "message": "must be IP addresses, such as 192.0.2.1",
    }]))]
    pub addresses: Vec<String>,
}

/// Observed state of a pool: the allocation table of its addresses.
///
/// Each change replaces the state that it is based on, so that concurrent changes conflict.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct IpPoolStatus {
    /// Number of addresses in the specification.
    pub capacity: usize,
    /// Number of allocated addresses.
    pub allocated: usize,
    /// The allocated addresses. The API server rejects an address with two holders.
    #[schemars(length(max = 1024))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["address"]))]
    pub allocations: Vec<Allocation>,
    /// `Ready`: all allocated addresses are in the specification.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// An allocated address.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// The address.
    pub address: String,
    /// The claim that holds it.
    pub claim: ClaimReference,
}

/// Reference to an `IpClaim`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReference {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID of the claim: a later claim of the same name is another holder.
    pub uid: String,
}
