//! Messages of version v1alpha1 of kubebuilder's plugin protocol, see
//! <https://pkg.go.dev/sigs.k8s.io/kubebuilder/v4/pkg/plugin/external>.

use super::flags::Flag;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(super) const VERSION: &str = "v1alpha1";

/// Request to a plugin.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    api_version: &'static str,
    pub(super) args: Vec<String>,
    pub(super) command: &'static str,
    /// All files of the project, by their path in it.
    pub(super) universe: BTreeMap<String, String>,
    /// All plugins of the command, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) plugin_chain: Vec<String>,
}

impl Request {
    pub(super) fn new(command: &'static str, args: Vec<String>) -> Self {
        Self { api_version: VERSION, args, command, universe: BTreeMap::new(), plugin_chain: Vec::new() }
    }
}

/// Response of a plugin.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Response {
    pub(super) api_version: String,
    pub(super) command: String,
    #[serde(default)]
    pub(super) metadata: Metadata,
    // Go writes an empty map or slice as null.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) universe: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) error: bool,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) error_msgs: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) flags: Vec<Flag>,
}

/// Description of a command of the plugin. Fields are named as in Go.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Metadata {
    #[serde(default, alias = "Description")]
    pub(super) description: String,
    #[serde(default, alias = "Examples")]
    pub(super) examples: String,
}

fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
