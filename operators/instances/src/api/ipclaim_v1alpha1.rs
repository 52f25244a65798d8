//! Types of `IpClaim` in `compute.flyball.dev/v1alpha1`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A claim for a public address. It holds the address until it is deleted.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "compute.flyball.dev",
    version = "v1alpha1",
    kind = "IpClaim",
    namespaced,
    doc = "A claim for a public address",
    status = "IpClaimStatus",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Bound", type_ = "string", json_path = ".status.conditions[?(@.type==\"Bound\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct IpClaimSpec {
    /// The `IpPool`.
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "self == oldSelf", "message": "the pool of a claim cannot change: create another claim"},
    ]))]
    pub pool: String,
}

/// Observed state of a claim.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(oldSelf.address) || has(self.address) && self.address == oldSelf.address",
    "message": "the address of a claim cannot change",
}]))]
pub struct IpClaimStatus {
    /// The address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 39))]
    pub address: Option<String>,
    /// `Bound`: the claim has an address.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
