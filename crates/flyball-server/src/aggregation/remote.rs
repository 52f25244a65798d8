//! Resources of aggregated API servers in discovery documents.

use flyball_core::GroupVersion;
use serde_json::{Map, Value, json};

/// Maximum number of resources of a group version.
const MAX_RESOURCES: usize = 1_000;

/// A group version of an aggregated API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemoteVersion {
    pub(crate) of: GroupVersion,
    /// Its resources, as in aggregated discovery; `None` if its server does not list them.
    pub(crate) resources: Option<Vec<Value>>,
}

impl RemoteVersion {
    /// Converts an `APIResourceList`.
    pub(super) fn new(of: &GroupVersion, list: Option<&Value>) -> Self {
        let listed = list.and_then(|list| list["resources"].as_array());
        let resources = listed.map(|listed| {
            let plain = listed.iter().take(MAX_RESOURCES).filter(|resource| !name(resource).contains('/'));
            plain.map(|resource| convert(of, resource, listed)).collect()
        });
        Self { of: of.clone(), resources }
    }

    /// Describes the version in aggregated discovery.
    pub(crate) fn to_json(&self) -> Value {
        let freshness = if self.resources.is_some() { "Current" } else { "Stale" };
        let resources = self.resources.clone().unwrap_or_default();
        json!({"version": &*self.of.version, "resources": resources, "freshness": freshness})
    }
}

fn name(resource: &Value) -> &str {
    resource["name"].as_str().unwrap_or_default()
}

fn kind(of: &GroupVersion, resource: &Value) -> Value {
    let own = |field: &str, default: &str| resource[field].as_str().unwrap_or(default).to_owned();
    json!({"group": own("group", &of.group), "version": own("version", &of.version), "kind": resource["kind"]})
}

fn convert(of: &GroupVersion, resource: &Value, listed: &[Value]) -> Value {
    let mut entry = Map::new();
    let scope = if resource["namespaced"] == true { "Namespaced" } else { "Cluster" };
    entry.insert("resource".into(), resource["name"].clone());
    entry.insert("responseKind".into(), kind(of, resource));
    entry.insert("scope".into(), scope.into());
    entry.insert("singularResource".into(), resource["singularName"].clone());
    entry.insert("verbs".into(), resource["verbs"].clone());
    for field in ["shortNames", "categories"] {
        if resource[field].is_array() {
            entry.insert(field.into(), resource[field].clone());
        }
    }
    let prefix = format!("{}/", name(resource));
    let subresources: Vec<Value> = listed
        .iter()
        .filter_map(|listed| Some((name(listed).strip_prefix(&prefix)?, listed)))
        .map(|(name, listed)| json!({"subresource": name, "responseKind": kind(of, listed), "verbs": listed["verbs"]}))
        .collect();
    if !subresources.is_empty() {
        entry.insert("subresources".into(), subresources.into());
    }
    entry.into()
}
