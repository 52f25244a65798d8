//! OLMConfig: settings of the lifecycle manager.

use super::{GROUP, is_default, kind};
use flyball::Condition;
use k8s_openapi::ClusterResourceScope;
use serde::{Deserialize, Serialize};

kind! {
    /// Settings of the lifecycle manager; the object with the name `cluster` applies.
    OlmConfig, "OLMConfig", GROUP, "v1", "olmconfigs", ClusterResourceScope, OlmConfigSpec, OlmConfigStatus
}

/// Desired state of an [`OlmConfig`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OlmConfigSpec {
    /// Optional features.
    #[serde(skip_serializing_if = "is_default")]
    pub features: Option<Features>,
}

/// Optional features.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Features {
    /// True if ClusterServiceVersions that target all namespaces are not copied to them.
    #[serde(rename = "disableCopiedCSVs", skip_serializing_if = "is_default")]
    pub disable_copied_csvs: Option<bool>,
    /// Interval at which PackageManifests are updated.
    #[serde(skip_serializing_if = "is_default")]
    pub package_server_sync_interval: Option<String>,
}

/// ClusterObjects state of an [`OlmConfig`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OlmConfigStatus {
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
