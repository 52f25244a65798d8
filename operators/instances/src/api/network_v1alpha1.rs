//! Types of `Network` in `compute.flyball.dev/v1alpha1`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A private network of machines.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "compute.flyball.dev",
    version = "v1alpha1",
    kind = "Network",
    namespaced,
    doc = "A private network of machines",
    status = "NetworkStatus",
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct NetworkSpec {
    /// Range of the private addresses, such as `10.0.0.0/24`.
    #[schemars(length(min = 1, max = 43))]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "isCIDR(self)", "message": "must be a CIDR, such as 10.0.0.0/24"},
        {"rule": "self == oldSelf", "message": "the range of a network cannot change: create another network"},
    ]))]
    pub cidr: String,
}

/// Observed state of a network.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct NetworkStatus {
    /// `Ready`: the network exists in the cloud.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
