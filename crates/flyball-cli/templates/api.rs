//! Types of `{{kind}}` in `{{api_version}}`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of {{a_kind}}. The API server enforces the validation rules of its fields.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "{{group}}",
    version = "{{version}}",
    kind = "{{kind}}",
{{attributes}}    doc = "{{A_kind}}",
    status = "{{kind}}Status",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct {{kind}}Spec {
    /// Message of {{a_kind}}. This is an example: replace it with your own fields.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub message: String,
    /// Number of times that the message is repeated. Defaults to 1.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 10))]
    pub times: i32,
}

fn once() -> i32 {
    1
}

/// Observed state of {{a_kind}}.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct {{kind}}Status {
    /// The condition `Ready` is true when the desired state has been applied.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
