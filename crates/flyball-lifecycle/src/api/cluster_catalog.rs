//! ClusterCatalog: a catalog of OLM v1.

use super::{EXTENSIONS_GROUP, is_default, kind};
use flyball::Condition;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

kind! {
    /// A catalog that ClusterExtensions use.
    ClusterCatalog, "ClusterCatalog", EXTENSIONS_GROUP, "v1", "clustercatalogs",
    ClusterResourceScope, ClusterCatalogSpec, ClusterCatalogStatus
}

/// Desired state of a [`ClusterCatalog`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterCatalogSpec {
    /// The place of the content.
    pub source: ClusterCatalogSource,
    /// Priority among the catalogs; the highest is preferred.
    pub priority: i32,
    /// `Available`, or `Unavailable` for a catalog that is not used.
    pub availability_mode: String,
}

/// The place of the content of a [`ClusterCatalog`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterCatalogSource {
    /// `Image`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The image.
    #[serde(skip_serializing_if = "is_default")]
    pub image: Option<ImageSource>,
}

/// An image with a catalog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSource {
    /// The reference.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Interval at which the image is pulled again; never if absent.
    #[serde(skip_serializing_if = "is_default")]
    pub poll_interval_minutes: Option<u32>,
}

/// State of a [`ClusterCatalog`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterCatalogStatus {
    /// Conditions `Serving` and `Progressing`.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// Time when the content was loaded.
    #[serde(skip_serializing_if = "is_default")]
    pub last_unpacked: Option<Time>,
}
