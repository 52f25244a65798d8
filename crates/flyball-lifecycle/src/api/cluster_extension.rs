//! ClusterExtension: an operator of OLM v1.

use super::{EXTENSIONS_GROUP, is_default, kind};
use flyball::Condition;
use k8s_openapi::ClusterResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::Value;

kind! {
    /// An operator that is installed once in a cluster.
    ClusterExtension, "ClusterExtension", EXTENSIONS_GROUP, "v1", "clusterextensions",
    ClusterResourceScope, ClusterExtensionSpec, ClusterExtensionStatus
}

/// Desired state of a [`ClusterExtension`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterExtensionSpec {
    /// The namespace of the operator.
    pub namespace: String,
    /// The source of the operator.
    pub source: ExtensionSource,
    /// Options of the installation.
    #[serde(skip_serializing_if = "is_default")]
    pub install: Option<ExtensionInstall>,
    /// Configuration of the operator.
    #[serde(skip_serializing_if = "is_default")]
    pub config: Option<ExtensionConfig>,
}

/// The source of a [`ClusterExtension`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionSource {
    /// `Catalog`.
    pub source_type: String,
    /// The selection of a bundle.
    #[serde(skip_serializing_if = "is_default")]
    pub catalog: Option<CatalogFilter>,
}

/// The selection of a bundle from catalogs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogFilter {
    /// The package.
    pub package_name: String,
    /// A range of versions; all if empty.
    #[serde(skip_serializing_if = "is_default")]
    pub version: String,
    /// Channels; all if empty.
    #[serde(skip_serializing_if = "is_default")]
    pub channels: Vec<String>,
    /// Selector of the ClusterCatalogs; all if absent.
    #[serde(skip_serializing_if = "is_default")]
    pub selector: Option<Value>,
    /// The upgrades that are allowed.
    pub upgrade_constraint_policy: UpgradeConstraintPolicy,
}

/// The upgrades that a [`ClusterExtension`] allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpgradeConstraintPolicy {
    /// Upgrades of the catalog: `replaces`, `skips` and `skipRange`.
    #[default]
    CatalogProvided,
    /// All upgrades, also to older versions.
    SelfCertified,
}

/// Options of the installation of a [`ClusterExtension`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtensionInstall {
    /// Checks before an installation or an upgrade.
    #[serde(skip_serializing_if = "is_default")]
    pub preflight: Option<Preflight>,
}

/// Checks before an installation or an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preflight {
    /// The check of CRDs.
    #[serde(skip_serializing_if = "is_default")]
    pub crd_upgrade_safety: Option<CrdUpgradeSafety>,
}

/// The check that an upgrade of a CRD invalidates and loses no stored object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrdUpgradeSafety {
    /// `Strict` or `None`.
    pub enforcement: String,
}

/// Configuration of a [`ClusterExtension`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionConfig {
    /// `Inline`.
    pub config_type: String,
    /// Values; `watchNamespace` is supported.
    #[serde(skip_serializing_if = "is_default")]
    pub inline: Option<Value>,
}

/// State of a [`ClusterExtension`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterExtensionStatus {
    /// Conditions `Installed`, `Progressing`, and those about deprecations.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// The installed bundle.
    #[serde(skip_serializing_if = "is_default")]
    pub install: Option<InstalledExtension>,
}

/// The bundle that is installed for a [`ClusterExtension`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstalledExtension {
    /// The bundle.
    pub bundle: InstalledBundle,
}

/// An installed bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstalledBundle {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}
