//! Types of `Foo` in `samplecontroller.k8s.io/v1alpha1`.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of a `Foo`. The API server enforces the validation rules of its fields.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    namespaced,
    doc = "A Deployment by name and size",
    // CRDs in a Kubernetes API group need an approval annotation.
    annotation("api-approved.kubernetes.io", "unapproved, experimental-only"),
    status = "FooStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// Name of the Deployment.
    #[schemars(length(min = 1, max = 63))]
    pub deployment_name: String,
    /// Number of pods.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
}

/// Observed state of a `Foo`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// Number of available pods of the Deployment.
    #[serde(default)]
    pub available_replicas: i32,
}
