//! InstallPlan: the steps of an installation or upgrade.

use super::{GROUP, is_default, kind};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

kind! {
    /// The steps of an installation or upgrade.
    InstallPlan, "InstallPlan", GROUP, "v1alpha1", "installplans",
    NamespaceResourceScope, InstallPlanSpec, InstallPlanStatus
}

/// Approval of an [`InstallPlan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Approval {
    /// Approved when it is created.
    #[default]
    Automatic,
    /// Approved by a person.
    Manual,
}

/// Desired state of an [`InstallPlan`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallPlanSpec {
    /// Names of the ClusterServiceVersions to install.
    pub cluster_service_version_names: Vec<String>,
    /// Required approval.
    pub approval: Approval,
    /// True if the plan may be executed.
    pub approved: bool,
    /// Number of the plan in its namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub generation: i64,
    /// Name of the CatalogSource; unused.
    #[serde(skip_serializing_if = "is_default")]
    pub source: String,
    /// Namespace of the CatalogSource; unused.
    #[serde(skip_serializing_if = "is_default")]
    pub source_namespace: String,
}

/// Phase of an [`InstallPlan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InstallPlanPhase {
    /// Not yet processed.
    #[default]
    #[serde(rename = "")]
    None,
    /// The bundles of the plan are being read.
    Planning,
    /// The plan waits for approval.
    RequiresApproval,
    /// The steps of the plan are being executed.
    Installing,
    /// All steps are done.
    Complete,
    /// A step failed.
    Failed,
}

/// ClusterObjects state of an [`InstallPlan`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallPlanStatus {
    /// Phase.
    pub phase: InstallPlanPhase,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<InstallPlanCondition>,
    /// Names of the CatalogSources.
    pub catalog_sources: Vec<String>,
    /// Steps.
    #[serde(skip_serializing_if = "is_default")]
    pub plan: Vec<Step>,
    /// Bundles that are being read.
    #[serde(skip_serializing_if = "is_default")]
    pub bundle_lookups: Vec<BundleLookup>,
    /// Service account whose permissions limit the steps.
    #[serde(skip_serializing_if = "is_default")]
    pub attenuated_service_account_ref: Option<ObjectReference>,
    /// Time when the execution started.
    #[serde(skip_serializing_if = "is_default")]
    pub start_time: Option<Time>,
    /// Explanation of the phase.
    #[serde(skip_serializing_if = "is_default")]
    pub message: String,
}

/// A condition of an [`InstallPlan`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallPlanCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Time of the last update.
    #[serde(skip_serializing_if = "is_default")]
    pub last_update_time: Option<Time>,
    /// Time of the last change of the status.
    #[serde(skip_serializing_if = "is_default")]
    pub last_transition_time: Option<Time>,
    /// Reason for the status.
    #[serde(skip_serializing_if = "is_default")]
    pub reason: String,
    /// Explanation of the status.
    #[serde(skip_serializing_if = "is_default")]
    pub message: String,
}

/// Status of a [`Step`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepStatus {
    /// Not yet executed.
    #[default]
    Unknown,
    /// The object does not exist.
    NotPresent,
    /// The object existed.
    Present,
    /// The object was created.
    Created,
    /// The object was not created.
    NotCreated,
    /// The API of the object is not available yet.
    #[serde(rename = "WaitingForApi")]
    WaitingForApi,
    /// The kind of the object is not supported.
    UnsupportedResource,
}

/// A step of an [`InstallPlan`]: one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Name of the ClusterServiceVersion that the step belongs to.
    pub resolving: String,
    /// The object.
    pub resource: StepResource,
    /// True if the plan can succeed without the step.
    #[serde(skip_serializing_if = "is_default")]
    pub optional: bool,
    /// Status.
    pub status: StepStatus,
}

/// The object of a [`Step`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StepResource {
    /// Name of the CatalogSource.
    pub source_name: String,
    /// Namespace of the CatalogSource.
    pub source_namespace: String,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// The object as JSON, or a reference to it.
    #[serde(skip_serializing_if = "is_default")]
    pub manifest: String,
}

/// A bundle that is being read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BundleLookup {
    /// Image of the bundle.
    pub path: String,
    /// Name of its ClusterServiceVersion.
    pub identifier: String,
    /// Name of the ClusterServiceVersion that it replaces.
    pub replaces: String,
    /// The CatalogSource.
    pub catalog_source_ref: Option<ObjectReference>,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<BundleLookupCondition>,
    /// Properties of the bundle as JSON.
    #[serde(skip_serializing_if = "is_default")]
    pub properties: String,
}

/// A condition of a [`BundleLookup`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BundleLookupCondition {
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
    pub last_update_time: Option<Time>,
    /// Time of the last change of the status.
    #[serde(skip_serializing_if = "is_default")]
    pub last_transition_time: Option<Time>,
}
