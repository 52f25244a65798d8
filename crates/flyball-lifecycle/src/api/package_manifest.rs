//! PackageManifest: a package of a catalog, as people see it.

use super::{PACKAGES_GROUP, is_default, kind};
use k8s_openapi::NamespaceResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::Value;

kind! {
    /// A package of a catalog; read-only.
    PackageManifest, "PackageManifest", PACKAGES_GROUP, "v1", "packagemanifests",
    NamespaceResourceScope, PackageManifestSpec, PackageManifestStatus
}

/// Desired state of a [`PackageManifest`], which has no fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PackageManifestSpec {}

/// Content of a package: its catalog, channels and default channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageManifestStatus {
    /// Name of the CatalogSource.
    pub catalog_source: String,
    /// Name of the CatalogSource for people.
    pub catalog_source_display_name: String,
    /// Publisher of the CatalogSource.
    pub catalog_source_publisher: String,
    /// Namespace of the CatalogSource.
    pub catalog_source_namespace: String,
    /// Provider of the package, with `name` and `url`.
    #[serde(skip_serializing_if = "is_default")]
    pub provider: Value,
    /// Name of the package.
    pub package_name: String,
    /// Channels.
    pub channels: Vec<PackageChannel>,
    /// Name of the default channel.
    pub default_channel: String,
    /// Deprecation of the package, with `message`.
    #[serde(skip_serializing_if = "is_default")]
    pub deprecation: Option<Value>,
}

/// A channel of a package.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageChannel {
    /// Name.
    pub name: String,
    /// ClusterServiceVersion of the head.
    #[serde(rename = "currentCSV")]
    pub current_csv: String,
    /// Description of the head.
    #[serde(rename = "currentCSVDesc", skip_serializing_if = "is_default")]
    pub current_csv_desc: Value,
    /// Versions in the channel.
    #[serde(skip_serializing_if = "is_default")]
    pub entries: Vec<PackageChannelEntry>,
    /// Deprecation of the channel, with `message`.
    #[serde(skip_serializing_if = "is_default")]
    pub deprecation: Option<Value>,
}

/// A version in a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PackageChannelEntry {
    /// Name of the ClusterServiceVersion.
    pub name: String,
    /// Version.
    #[serde(skip_serializing_if = "is_default")]
    pub version: String,
    /// Deprecation of the version, with `message`.
    #[serde(skip_serializing_if = "is_default")]
    pub deprecation: Option<Value>,
}
