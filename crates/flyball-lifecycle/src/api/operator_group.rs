//! OperatorGroup: the target namespaces of the operators of a namespace.

use super::{GROUP, is_default, kind};
use flyball::Condition;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use serde::{Deserialize, Serialize};

kind! {
    /// The target namespaces of the operators of a namespace, and the service account that installs them.
    OperatorGroup, "OperatorGroup", GROUP, "v1", "operatorgroups",
    NamespaceResourceScope, OperatorGroupSpec, OperatorGroupStatus
}

impl OperatorGroup {
    /// Returns the target namespaces of the status, sorted and separated by commas.
    pub fn targets(&self) -> String {
        let mut namespaces = self.status.namespaces.clone();
        namespaces.sort();
        namespaces.join(",")
    }

    /// Returns true if the group targets all namespaces.
    pub fn targets_all(&self) -> bool {
        self.status.namespaces.iter().any(String::is_empty)
    }
}

/// Strategy for ClusterServiceVersions that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpgradeStrategy {
    /// Upgrades wait for a ClusterServiceVersion that failed.
    #[default]
    Default,
    /// Upgrades replace a ClusterServiceVersion that failed.
    #[serde(rename = "TechPreviewUnsafeFailForward")]
    FailForward,
}

/// Desired state of an [`OperatorGroup`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperatorGroupSpec {
    /// Selector of target namespaces, if there are no `target_namespaces`.
    #[serde(skip_serializing_if = "is_default")]
    pub selector: Option<LabelSelector>,
    /// Target namespaces; all if neither they nor a selector are set.
    #[serde(skip_serializing_if = "is_default")]
    pub target_namespaces: Vec<String>,
    /// Service account whose permissions limit installations.
    #[serde(skip_serializing_if = "is_default")]
    pub service_account_name: String,
    /// True if the annotation of provided APIs is not changed.
    #[serde(rename = "staticProvidedAPIs", skip_serializing_if = "is_default")]
    pub static_provided_apis: bool,
    /// Strategy for ClusterServiceVersions that failed.
    #[serde(skip_serializing_if = "is_default")]
    pub upgrade_strategy: UpgradeStrategy,
}

/// ClusterObjects state of an [`OperatorGroup`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperatorGroupStatus {
    /// Target namespaces; one empty name for all.
    #[serde(skip_serializing_if = "is_default")]
    pub namespaces: Vec<String>,
    /// Service account whose permissions limit installations.
    #[serde(skip_serializing_if = "is_default")]
    pub service_account_ref: Option<ObjectReference>,
    /// Time of the last change.
    #[serde(skip_serializing_if = "is_default")]
    pub last_updated: Option<Time>,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
