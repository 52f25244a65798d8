//! ClusterServiceVersion: a version of an operator with all that it needs to run.

use super::{GROUP, is_default, kind};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

kind! {
    /// A version of an operator: its deployments and permissions, and the APIs that it provides and requires.
    ClusterServiceVersion, "ClusterServiceVersion", GROUP, "v1alpha1", "clusterserviceversions",
    NamespaceResourceScope, ClusterServiceVersionSpec, ClusterServiceVersionStatus
}

impl ClusterServiceVersion {
    /// Returns the namespace of the original if this is a copy.
    pub fn copied_from(&self) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(super::labels::COPIED_FROM).map(String::as_str)
    }

    /// Returns the value of an annotation, empty if it is not set.
    pub fn annotation(&self, name: &str) -> &str {
        self.metadata.annotations.as_ref().and_then(|annotations| annotations.get(name)).map_or("", String::as_str)
    }

    /// Returns the packages that its annotation names; none if it was not installed from a catalog.
    pub fn packages(&self) -> Vec<String> {
        let annotation: Value = serde_json::from_str(self.annotation(super::labels::PROPERTIES)).unwrap_or_default();
        let properties = annotation["properties"].as_array().into_iter().flatten();
        let packages = properties.filter(|property| property["type"] == "olm.package");
        packages.filter_map(|property| property["value"]["packageName"].as_str().map(str::to_owned)).collect()
    }

    /// Returns false if it was installed from another package, whatever the status of a Subscription claims.
    pub(crate) fn may_be_of(&self, package: &str) -> bool {
        let packages = self.packages();
        packages.is_empty() || packages.iter().any(|own| own == package)
    }

    /// Returns true if a webhook or an APIService needs a serving certificate.
    pub fn needs_certificates(&self) -> bool {
        !self.spec.webhook_definitions.is_empty() || !self.spec.api_services.owned.is_empty()
    }
}

/// Desired state of a [`ClusterServiceVersion`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterServiceVersionSpec {
    /// Deployments and permissions.
    #[serde(skip_serializing_if = "is_default")]
    pub install: InstallStrategy,
    /// Version of the operator.
    #[serde(skip_serializing_if = "is_default")]
    pub version: String,
    /// Owned and required CRDs.
    #[serde(rename = "customresourcedefinitions", skip_serializing_if = "is_default")]
    pub crds: CrdDescriptions,
    /// Owned and required aggregated APIs.
    #[serde(rename = "apiservicedefinitions", skip_serializing_if = "is_default")]
    pub api_services: ApiServiceDescriptions,
    /// Admission and conversion webhooks.
    #[serde(rename = "webhookdefinitions", skip_serializing_if = "is_default")]
    pub webhook_definitions: Vec<WebhookDescription>,
    /// APIs that the cluster must have.
    #[serde(rename = "nativeAPIs", skip_serializing_if = "is_default")]
    pub native_apis: Vec<NativeApi>,
    /// Oldest supported version of Kubernetes.
    #[serde(skip_serializing_if = "is_default")]
    pub min_kube_version: String,
    /// Name for people.
    #[serde(default)]
    pub display_name: String,
    /// Sets of target namespaces that the operator supports.
    #[serde(skip_serializing_if = "is_default")]
    pub install_modes: Vec<InstallMode>,
    /// Name of the ClusterServiceVersion that this one replaces.
    #[serde(skip_serializing_if = "is_default")]
    pub replaces: String,
    /// Names of versions that upgrades skip.
    #[serde(skip_serializing_if = "is_default")]
    pub skips: Vec<String>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl ClusterServiceVersionSpec {
    /// Returns the details of the strategy.
    pub fn details(&self) -> &StrategyDetails {
        &self.install.spec
    }
}

/// The way to install an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstallStrategy {
    /// Name of the strategy: `deployment`.
    pub strategy: String,
    /// Details of the strategy.
    #[serde(skip_serializing_if = "is_default")]
    pub spec: StrategyDetails,
}

/// Details of the strategy `deployment`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StrategyDetails {
    /// Deployments of the operator.
    pub deployments: Vec<DeploymentDescription>,
    /// Permissions in the target namespaces.
    #[serde(skip_serializing_if = "is_default")]
    pub permissions: Vec<Permission>,
    /// Permissions in the cluster.
    #[serde(skip_serializing_if = "is_default")]
    pub cluster_permissions: Vec<Permission>,
}

/// A Deployment of an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeploymentDescription {
    /// Name of the Deployment.
    pub name: String,
    /// Spec of the Deployment.
    pub spec: Value,
    /// Labels of the Deployment.
    #[serde(skip_serializing_if = "is_default")]
    pub label: BTreeMap<String, String>,
}

/// Permissions of a service account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Permission {
    /// Name of the service account.
    pub service_account_name: String,
    /// Rules that the service account gets.
    pub rules: Vec<PolicyRule>,
}

/// Owned and required CRDs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrdDescriptions {
    /// CRDs that belong to the operator.
    #[serde(skip_serializing_if = "is_default")]
    pub owned: Vec<CrdDescription>,
    /// CRDs that must exist.
    #[serde(skip_serializing_if = "is_default")]
    pub required: Vec<CrdDescription>,
}

/// A version of a CRD.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrdDescription {
    /// Name of the CRD, as `plural.group`.
    pub name: String,
    /// Version of the API.
    pub version: String,
    /// Kind of the API.
    pub kind: String,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl CrdDescription {
    /// Returns the API group.
    pub fn group(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, group)| group)
    }
}

/// Owned and required aggregated APIs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiServiceDescriptions {
    /// APIs that a Deployment of the operator serves.
    #[serde(skip_serializing_if = "is_default")]
    pub owned: Vec<ApiServiceDescription>,
    /// APIs that must exist.
    #[serde(skip_serializing_if = "is_default")]
    pub required: Vec<ApiServiceDescription>,
}

/// A kind of an aggregated API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiServiceDescription {
    /// Name of the resource.
    pub name: String,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Deployment that serves the API.
    #[serde(skip_serializing_if = "is_default")]
    pub deployment_name: String,
    /// Port of the server in its container.
    #[serde(skip_serializing_if = "is_default")]
    pub container_port: i32,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl ApiServiceDescription {
    /// Returns the name of the APIService.
    pub fn api_service_name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }
}

/// An API that the cluster must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NativeApi {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// Type of a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WebhookType {
    /// Validating admission webhook.
    #[default]
    #[serde(rename = "ValidatingAdmissionWebhook")]
    Validating,
    /// Mutating admission webhook.
    #[serde(rename = "MutatingAdmissionWebhook")]
    Mutating,
    /// Conversion webhook of CRDs.
    #[serde(rename = "ConversionWebhook")]
    Conversion,
}

/// A webhook of an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookDescription {
    /// Name of the webhook, and prefix of the name of its configuration.
    pub generate_name: String,
    /// Type of the webhook.
    #[serde(rename = "type")]
    pub webhook_type: WebhookType,
    /// Deployment that serves the webhook.
    #[serde(skip_serializing_if = "is_default")]
    pub deployment_name: String,
    /// Port of the Service.
    #[serde(skip_serializing_if = "is_default")]
    pub container_port: i32,
    /// Port of the container, a number or a name; that of the Service if absent.
    #[serde(skip_serializing_if = "is_default")]
    pub target_port: Option<Value>,
    /// Operations that the webhook reviews.
    #[serde(skip_serializing_if = "is_default")]
    pub rules: Vec<Value>,
    /// Path of the webhook.
    #[serde(skip_serializing_if = "is_default")]
    pub webhook_path: Option<String>,
    /// CRDs that the webhook converts.
    #[serde(rename = "conversionCRDs", skip_serializing_if = "is_default")]
    pub conversion_crds: Vec<String>,
    /// Versions of reviews that the webhook accepts.
    pub admission_review_versions: Vec<String>,
    /// All other fields, those of the webhook in its configuration.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Type of an install mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum InstallModeType {
    /// The operator watches its own namespace.
    #[default]
    OwnNamespace,
    /// The operator watches one other namespace.
    SingleNamespace,
    /// The operator watches several namespaces.
    MultiNamespace,
    /// The operator watches all namespaces.
    AllNamespaces,
}

impl fmt::Display for InstallModeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Support of an install mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstallMode {
    /// Type of the mode.
    #[serde(rename = "type")]
    pub mode: InstallModeType,
    /// True if the operator supports it.
    pub supported: bool,
}

/// Phase of a [`ClusterServiceVersion`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterServiceVersionPhase {
    /// Not yet processed.
    #[default]
    #[serde(rename = "")]
    None,
    /// Requirements are missing or not yet checked.
    Pending,
    /// All requirements are present.
    InstallReady,
    /// The objects of the operator exist and are not ready yet.
    Installing,
    /// The operator is ready.
    Succeeded,
    /// The operator cannot be installed, or does not run.
    Failed,
    /// The state cannot be determined.
    Unknown,
    /// A newer version is being installed.
    Replacing,
    /// A newer version is installed; this one is being deleted.
    Deleting,
}

/// ClusterObjects state of a [`ClusterServiceVersion`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterServiceVersionStatus {
    /// Phase.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: ClusterServiceVersionPhase,
    /// Explanation of the phase.
    #[serde(skip_serializing_if = "is_default")]
    pub message: String,
    /// Reason for the phase.
    #[serde(skip_serializing_if = "is_default")]
    pub reason: String,
    /// Time of the last change of the phase, reason or message.
    #[serde(skip_serializing_if = "is_default")]
    pub last_update_time: Option<Time>,
    /// Time of the last change of the phase.
    #[serde(skip_serializing_if = "is_default")]
    pub last_transition_time: Option<Time>,
    /// The last phases, oldest first.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<ClusterServiceVersionCondition>,
    /// Requirements and whether they are met.
    #[serde(skip_serializing_if = "is_default")]
    pub requirement_status: Vec<RequirementStatus>,
    /// Time when the serving certificates were issued.
    #[serde(skip_serializing_if = "is_default")]
    pub certs_last_updated: Option<Time>,
    /// Time when the serving certificates are replaced.
    #[serde(skip_serializing_if = "is_default")]
    pub certs_rotate_at: Option<Time>,
    /// Custom resources that a cleanup waits for.
    #[serde(skip_serializing_if = "is_default")]
    pub cleanup: Value,
}

/// A phase that a [`ClusterServiceVersion`] has passed through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterServiceVersionCondition {
    /// Phase.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: ClusterServiceVersionPhase,
    /// Explanation of the phase.
    #[serde(skip_serializing_if = "is_default")]
    pub message: String,
    /// Reason for the phase.
    #[serde(skip_serializing_if = "is_default")]
    pub reason: String,
    /// Time of the last change.
    #[serde(skip_serializing_if = "is_default")]
    pub last_update_time: Option<Time>,
    /// Time of the last change of the phase.
    #[serde(skip_serializing_if = "is_default")]
    pub last_transition_time: Option<Time>,
}

/// State of a requirement, or of one that it depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequirementState {
    /// The requirement exists.
    Present,
    /// The requirement does not exist.
    #[default]
    NotPresent,
    /// The object exists and does not satisfy the requirement.
    PresentNotSatisfied,
    /// The object exists and cannot be used yet.
    #[serde(rename = "PresentNotAvailable")]
    NotAvailable,
    /// The Deployment of an owned API is declared.
    DeploymentFound,
    /// The Deployment of an owned API is not declared.
    DeploymentNotFound,
    /// The dependent is satisfied.
    Satisfied,
    /// The dependent is not satisfied.
    NotSatisfied,
}

/// A requirement of a [`ClusterServiceVersion`] and its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequirementStatus {
    /// API group of the required object.
    pub group: String,
    /// API version of the required object.
    pub version: String,
    /// Kind of the required object.
    pub kind: String,
    /// Name of the required object.
    pub name: String,
    /// State.
    pub status: RequirementState,
    /// Explanation of the state.
    pub message: String,
    /// UID of the object.
    #[serde(skip_serializing_if = "is_default")]
    pub uuid: String,
    /// Parts of the requirement, such as the rules of a service account.
    #[serde(skip_serializing_if = "is_default")]
    pub dependents: Vec<DependentStatus>,
}

/// A part of a requirement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DependentStatus {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// State.
    pub status: RequirementState,
    /// UID of the object.
    #[serde(skip_serializing_if = "is_default")]
    pub uuid: String,
    /// Explanation of the state.
    #[serde(skip_serializing_if = "is_default")]
    pub message: String,
}
