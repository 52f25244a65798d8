//! `{{kind}}` in `{{api_version}}`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of {{a_kind}}. The API server refuses what does not follow its rules.
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
    /// What {{a_kind}} says: an example, in whose place your own fields come.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub message: String,
    /// How often it says so; once unless given.
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
    /// `Ready`: what is desired is so.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
