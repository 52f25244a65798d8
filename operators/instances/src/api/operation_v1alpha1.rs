//! Types of `Operation` in `compute.flyball.dev/v1alpha1`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reboot or a rebuild of a machine. It is carried out once.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "compute.flyball.dev",
    version = "v1alpha1",
    kind = "Operation",
    namespaced,
    doc = "A reboot or a rebuild of a machine",
    status = "OperationStatus",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.instance"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.type == oldSelf.type && self.instance == oldSelf.instance",
    "message": "type and instance cannot change: create another operation",
}]))]
pub struct OperationSpec {
    /// `Reboot` or `Rebuild`.
    #[serde(rename = "type")]
    pub kind: OperationType,
    /// The `Instance`, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub instance: String,
    /// Seconds after its end in which the operation is deleted. Without it, it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(max = 31_536_000))]
    pub ttl_seconds_after_finished: Option<u32>,
}

/// Type of an operation.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationType {
    /// Restarts a running machine.
    Reboot,
    /// Replaces the disk of a machine by a new one from its image. The machine keeps its addresses.
    Rebuild,
}

/// Observed state of an operation.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(oldSelf.phase) || !(oldSelf.phase in ['Succeeded', 'Failed']) || \
                 has(self.phase) && self.phase == oldSelf.phase",
        "message": "the phase of an operation that has ended cannot change",
    },
    {
        "rule": "!has(oldSelf.requestId) || has(self.requestId) && self.requestId == oldSelf.requestId",
        "message": "an operation is requested once",
    },
    {
        "rule": "!has(oldSelf.completionTime) || \
                 has(self.completionTime) && self.completionTime == oldSelf.completionTime",
        "message": "an operation ends once",
    },
]))]
pub struct OperationStatus {
    /// Pending, Running, Succeeded or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Phase")]
    pub phase: Option<Phase>,
    /// Idempotency key of the request, which is stored before the request is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 63))]
    pub request_id: Option<String>,
    /// The machine that the request concerns, by its identity in the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 253))]
    pub machine_id: Option<String>,
    /// Time of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 63))]
    pub start_time: Option<String>,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 63))]
    pub completion_time: Option<String>,
    /// Explanation of the phase, a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub message: Option<String>,
    /// `Succeeded`: `Unknown` until the operation has ended.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Phase of an operation.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The operation is not requested yet.
    Pending,
    /// The operation is requested.
    Running,
    /// The cloud has carried it out.
    Succeeded,
    /// The operation was rejected, or has failed.
    Failed,
}

impl Phase {
    /// Returns true if the operation has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}
