//! `Foo` in `samplecontroller.k8s.io/v1alpha1`.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desired state of a `Foo`. The API server refuses what does not follow its rules.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    namespaced,
    doc = "A Deployment by name and size",
    // Groups of Kubernetes itself are approved by its reviewers, or say that they are not.
    annotation("api-approved.kubernetes.io", "unapproved, experimental-only"),
    status = "FooStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// What its Deployment is called.
    #[schemars(length(min = 1, max = 63))]
    pub deployment_name: String,
    /// How many pods it has.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
}

/// Observed state of a `Foo`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// How many pods of its Deployment are available.
    #[serde(default)]
    pub available_replicas: i32,
}
