//! Subscription: the wish to install a package and keep it up to date.

use super::{Approval, GROUP, is_default, kind};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

kind! {
    /// The wish to install a package from a catalog and keep it up to date.
    Subscription, "Subscription", GROUP, "v1alpha1", "subscriptions",
    NamespaceResourceScope, SubscriptionSpec, SubscriptionStatus
}

/// Desired state of a [`Subscription`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionSpec {
    /// Name of the CatalogSource.
    pub source: String,
    /// Namespace of the CatalogSource.
    pub source_namespace: String,
    /// Name of the package.
    #[serde(rename = "name")]
    pub package: String,
    /// Channel of the package; its default channel if empty.
    #[serde(skip_serializing_if = "is_default")]
    pub channel: String,
    /// First version to install; the newest if empty.
    #[serde(rename = "startingCSV", skip_serializing_if = "is_default")]
    pub starting_csv: String,
    /// Approval of InstallPlans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_plan_approval: Option<Approval>,
    /// Changes of the Deployments of the operator.
    #[serde(skip_serializing_if = "is_default")]
    pub config: Option<SubscriptionConfig>,
}

/// Changes of the Deployments of an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionConfig {
    /// Selector of the pods that are configured; without effect, as in OLM.
    #[serde(skip_serializing_if = "is_default")]
    pub selector: Option<LabelSelector>,
    /// Node selector of the pods.
    #[serde(skip_serializing_if = "is_default")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Tolerations of the pods.
    #[serde(skip_serializing_if = "is_default")]
    pub tolerations: Vec<Value>,
    /// Resources of the containers.
    #[serde(skip_serializing_if = "is_default")]
    pub resources: Option<Value>,
    /// Sources of environment variables of the containers.
    #[serde(skip_serializing_if = "is_default")]
    pub env_from: Vec<Value>,
    /// Environment variables of the containers.
    #[serde(skip_serializing_if = "is_default")]
    pub env: Vec<Value>,
    /// Volumes of the pods.
    #[serde(skip_serializing_if = "is_default")]
    pub volumes: Vec<Value>,
    /// Mounts of volumes in the containers.
    #[serde(skip_serializing_if = "is_default")]
    pub volume_mounts: Vec<Value>,
    /// Affinity of the pods.
    #[serde(skip_serializing_if = "is_default")]
    pub affinity: Option<Value>,
    /// Annotations of the Deployments and their pods.
    #[serde(skip_serializing_if = "is_default")]
    pub annotations: BTreeMap<String, String>,
}

/// State of a [`Subscription`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubscriptionState {
    /// Nothing was resolved yet.
    #[default]
    #[serde(rename = "")]
    None,
    /// An upgrade failed.
    UpgradeFailed,
    /// An upgrade is available.
    UpgradeAvailable,
    /// An upgrade waits for approval, or is being installed.
    UpgradePending,
    /// The newest version is installed.
    AtLatestKnown,
}

/// ClusterObjects state of a [`Subscription`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionStatus {
    /// The ClusterServiceVersion that is installed or being installed.
    #[serde(rename = "currentCSV", skip_serializing_if = "is_default")]
    pub current_csv: String,
    /// The ClusterServiceVersion that is installed.
    #[serde(rename = "installedCSV", skip_serializing_if = "is_default")]
    pub installed_csv: String,
    /// The newest InstallPlan.
    #[serde(rename = "installplan", skip_serializing_if = "is_default")]
    pub install_plan: Option<InstallPlanReference>,
    /// State.
    #[serde(skip_serializing_if = "is_default")]
    pub state: SubscriptionState,
    /// Reason for the state.
    #[serde(skip_serializing_if = "is_default")]
    pub reason: String,
    /// Generation of the newest InstallPlan.
    #[serde(skip_serializing_if = "is_default")]
    pub install_plan_generation: i64,
    /// The newest InstallPlan.
    #[serde(skip_serializing_if = "is_default")]
    pub install_plan_ref: Option<ObjectReference>,
    /// Health of the catalogs that the Subscription can use.
    #[serde(skip_serializing_if = "is_default")]
    pub catalog_health: Vec<CatalogHealth>,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<SubscriptionCondition>,
    /// Time of the last change.
    #[serde(skip_serializing_if = "is_default")]
    pub last_updated: Option<Time>,
}

/// A reference to an InstallPlan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallPlanReference {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    #[serde(rename = "uuid")]
    pub uid: String,
}

/// Health of a catalog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogHealth {
    /// The CatalogSource.
    pub catalog_source_ref: ObjectReference,
    /// Time of the last change.
    #[serde(skip_serializing_if = "is_default")]
    pub last_updated: Option<Time>,
    /// True if it can be used.
    pub healthy: bool,
}

/// A condition of a [`Subscription`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason for the status.
    #[serde(skip_serializing_if = "is_default")]
    pub reason: String,
    /// Explanation of the status.
    #[serde(skip_serializing_if = "is_default")]
    pub message: String,
    /// Time of the last update.
    #[serde(skip_serializing_if = "is_default")]
    pub last_heartbeat_time: Option<Time>,
    /// Time of the last change of the status.
    #[serde(skip_serializing_if = "is_default")]
    pub last_transition_time: Option<Time>,
}
