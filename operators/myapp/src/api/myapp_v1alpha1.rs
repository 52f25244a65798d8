//! The custom resource: an application with its settings.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of an application.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[expect(clippy::duplicated_attributes, reason = "columns may be of one type")]
#[kube(
    group = "apps.flyball.dev",
    version = "v1alpha1",
    kind = "MyApp",
    namespaced,
    doc = "An application of four components",
    status = "MyAppStatus",
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct MyAppSpec {
    /// Image repository of the components: a component's image is `<images>/<component>:<version>`.
    #[schemars(length(min = 1))]
    pub images: String,
    /// Version of all components.
    #[schemars(length(min = 1))]
    pub version: String,
    /// Pods of each component but the database, which has one.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
    /// Port of the application.
    #[serde(default = "http")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Capacity for the database's data, such as `1Gi`. The storage class determines if it can be changed later.
    #[serde(default = "one_gibibyte")]
    #[schemars(regex(pattern = "^[1-9][0-9]*(k|[MGTPE]|[KMGTPE]i)?$"))]
    pub storage: String,
}

fn one() -> i32 {
    1
}

fn http() -> i32 {
    80
}

fn one_gibibyte() -> String {
    "1Gi".into()
}

/// Observed state of an application.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct MyAppStatus {
    /// Number of ready components, such as `3/4`.
    #[serde(default)]
    pub ready: String,
    /// `Ready`: all pods of all components are ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
