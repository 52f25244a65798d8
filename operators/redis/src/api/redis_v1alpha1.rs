//! Types of `Redis` in `cache.acme.io/v1alpha1`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of a `Redis`. The API server enforces the validation rules of its fields.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[kube(
    group = "cache.acme.io",
    version = "v1alpha1",
    kind = "Redis",
    namespaced,
    doc = "A cache of several pods",
    status = "RedisStatus",
    scale(spec_replicas_path = ".spec.size", status_replicas_path = ".status.ready"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct RedisSpec {
    /// Number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10))]
    pub size: i32,
    /// Container image of the pods.
    #[serde(default = "image")]
    #[schemars(length(min = 1))]
    pub image: String,
}

fn one() -> i32 {
    1
}

fn image() -> String {
    "redis:8-alpine".into()
}

/// Observed state of a `Redis`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct RedisStatus {
    /// Names of its pods.
    #[serde(default)]
    pub pods: Vec<String>,
    /// Number of ready pods.
    #[serde(default)]
    pub ready: i32,
    /// The condition `Ready` is true when all pods are ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
