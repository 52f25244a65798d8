//! Types of `Memcached` in `cache.example.com/v1alpha1`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of a `Memcached`. The API server enforces the validation rules of its fields.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "cache.example.com",
    version = "v1alpha1",
    kind = "Memcached",
    namespaced,
    doc = "A memcached of several pods",
    status = "MemcachedStatus",
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedSpec {
    /// Number of pods.
    #[schemars(range(min = 0, max = 5))]
    pub size: i32,
    /// Port that the pods listen on.
    #[serde(default = "port")]
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: i32,
}

fn port() -> i32 {
    11211
}

/// Observed state of a `Memcached`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct MemcachedStatus {
    /// Names of its pods.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// The condition `Available` is true when all pods are ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
