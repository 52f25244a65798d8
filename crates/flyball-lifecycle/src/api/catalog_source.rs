//! CatalogSource: a catalog and the way to read it.

use super::{GROUP, is_default, kind};
use flyball::Condition;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

kind! {
    /// A catalog and the way to read it.
    CatalogSource, "CatalogSource", GROUP, "v1alpha1", "catalogsources",
    NamespaceResourceScope, CatalogSourceSpec, CatalogSourceStatus
}

/// Desired state of a [`CatalogSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogSourceSpec {
    /// Type: `grpc`, `configmap` or `internal`.
    pub source_type: String,
    /// Priority among the catalogs; the highest is preferred.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i64,
    /// Name of the ConfigMap with the catalog.
    #[serde(skip_serializing_if = "is_default")]
    pub config_map: String,
    /// Address of a registry server.
    #[serde(skip_serializing_if = "is_default")]
    pub address: String,
    /// Image of the catalog.
    #[serde(skip_serializing_if = "is_default")]
    pub image: String,
    /// Settings of the pod that serves the image.
    #[serde(skip_serializing_if = "is_default")]
    pub grpc_pod_config: Option<GrpcPodConfig>,
    /// Polling of the image.
    #[serde(skip_serializing_if = "is_default")]
    pub update_strategy: Option<UpdateStrategy>,
    /// Names of Secrets for pulling the image.
    #[serde(skip_serializing_if = "is_default")]
    pub secrets: Vec<String>,
    /// Name for people.
    #[serde(skip_serializing_if = "is_default")]
    pub display_name: String,
    /// Description.
    #[serde(skip_serializing_if = "is_default")]
    pub description: String,
    /// Publisher.
    #[serde(skip_serializing_if = "is_default")]
    pub publisher: String,
    /// Icon, with `base64data` and `mediatype`.
    #[serde(skip_serializing_if = "is_default")]
    pub icon: Option<Value>,
    /// Setting of older versions, unused.
    #[serde(skip_serializing_if = "is_default")]
    pub run_as_root: Option<bool>,
}

/// Settings of the pod that serves an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcPodConfig {
    /// Node selector.
    #[serde(skip_serializing_if = "is_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations.
    #[serde(skip_serializing_if = "is_default")]
    pub tolerations: Vec<Value>,
    /// Affinity.
    #[serde(skip_serializing_if = "is_default")]
    pub affinity: Option<Value>,
    /// Priority class.
    #[serde(skip_serializing_if = "is_default")]
    pub priority_class_name: Option<String>,
    /// `legacy` or `restricted`.
    #[serde(skip_serializing_if = "is_default")]
    pub security_context_config: String,
    /// Memory that the pod should use at most.
    #[serde(skip_serializing_if = "is_default")]
    pub memory_target: Option<Value>,
    /// Directories of the content in the image.
    #[serde(skip_serializing_if = "is_default")]
    pub extract_content: Option<ExtractContent>,
}

/// Directories of the content in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtractContent {
    /// Directory of the cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cache_dir: String,
    /// Directory of the catalog.
    pub catalog_dir: String,
}

/// Update strategy of a CatalogSource: polling of its image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// Interval.
    #[serde(skip_serializing_if = "is_default")]
    pub registry_poll: Option<RegistryPoll>,
}

/// Interval at which an image is polled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryPoll {
    /// Duration in Go's format.
    #[serde(skip_serializing_if = "is_default")]
    pub interval: String,
}

/// ClusterObjects state of a [`CatalogSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogSourceStatus {
    /// Explanation of an error.
    #[serde(skip_serializing_if = "is_default")]
    pub message: String,
    /// Reason of an error.
    #[serde(skip_serializing_if = "is_default")]
    pub reason: String,
    /// Time of the last poll of the image.
    #[serde(skip_serializing_if = "is_default")]
    pub latest_image_registry_poll: Option<Time>,
    /// The ConfigMap that was read.
    #[serde(skip_serializing_if = "is_default")]
    pub config_map_reference: Option<ConfigMapReference>,
    /// The registry server.
    #[serde(skip_serializing_if = "is_default")]
    pub registry_service: Option<RegistryService>,
    /// State of the connection.
    #[serde(skip_serializing_if = "is_default")]
    pub connection_state: Option<ConnectionState>,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// A ConfigMap that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapReference {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    #[serde(skip_serializing_if = "is_default")]
    pub uid: String,
    /// Resource version.
    #[serde(skip_serializing_if = "is_default")]
    pub resource_version: String,
    /// Time when it was read.
    #[serde(skip_serializing_if = "is_default")]
    pub last_update_time: Option<Time>,
}

/// Registry server of a CatalogSource, in its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistryService {
    /// Protocol.
    #[serde(skip_serializing_if = "is_default")]
    pub protocol: String,
    /// Name of the Service.
    #[serde(skip_serializing_if = "is_default")]
    pub service_name: String,
    /// Namespace of the Service.
    #[serde(skip_serializing_if = "is_default")]
    pub service_namespace: String,
    /// Port of the Service.
    #[serde(skip_serializing_if = "is_default")]
    pub port: String,
    /// Time of creation.
    #[serde(skip_serializing_if = "is_default")]
    pub created_at: Option<Time>,
}

/// State of the connection to a registry server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionState {
    /// Address.
    #[serde(skip_serializing_if = "is_default")]
    pub address: String,
    /// State: `READY`, `CONNECTING`, `IDLE` or `TRANSIENT_FAILURE`.
    pub last_observed_state: String,
    /// Time of the last change of the state.
    #[serde(rename = "lastConnect", skip_serializing_if = "is_default")]
    pub last_connect_time: Option<Time>,
}
