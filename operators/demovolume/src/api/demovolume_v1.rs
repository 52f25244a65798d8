//! The custom resource: a volume by name and size.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of a volume.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[kube(
    group = "demo.flyball.dev",
    version = "v1",
    kind = "DemoVolume",
    namespaced,
    doc = "A volume of a demo",
    status = "DemoVolumeStatus",
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Volume", type_ = "string", json_path = ".status.name"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".status.claim")
)]
pub struct DemoVolumeSpec {
    /// Name of the volume.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Capacity of its claim, in GiB.
    #[schemars(range(min = 1, max = 65536))]
    pub size: u32,
}

/// Observed state of a volume.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct DemoVolumeStatus {
    /// The name in its spec.
    #[serde(default)]
    pub name: String,
    /// Phase of its claim, such as `Bound`.
    #[serde(default)]
    pub claim: String,
}
