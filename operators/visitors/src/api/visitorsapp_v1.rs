//! The custom resource: a visitors site.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of a visitors site.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "VisitorsApp",
    namespaced,
    doc = "A site that counts its visitors",
    status = "VisitorsAppStatus",
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Title", type_ = "string", json_path = ".spec.title"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message")
)]
pub struct VisitorsAppSpec {
    /// Pods of the backend.
    #[schemars(range(min = 1, max = 100))]
    pub size: i32,
    /// Heading of the site.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub title: String,
}

/// Observed state of a visitors site.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VisitorsAppStatus {
    /// Image that the backend runs.
    #[serde(default)]
    pub backend_image: String,
    /// Image that the frontend runs.
    #[serde(default)]
    pub frontend_image: String,
    /// `Ready`: database, backend and frontend are ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
