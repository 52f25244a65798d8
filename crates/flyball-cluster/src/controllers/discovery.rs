//! Discovery of the resources of all groups, each in one version.

use flyball_core::names::is_path_segment;
use flyball_core::{GroupResource, GroupVersionKind, ObjectKey};
use http::Request;
use serde::Deserialize;
use std::collections::BTreeSet;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource that the API server serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServedResource {
    pub(super) kind: GroupVersionKind,
    pub(super) resource: GroupResource,
    pub(super) namespaced: bool,
    verbs: Vec<String>,
}

impl ServedResource {
    /// Creates a namespaced resource without verbs.
    #[cfg(test)]
    pub(super) fn new(kind: GroupVersionKind, plural: &str) -> Self {
        let resource = GroupResource::new(&kind.group, plural);
        Self { kind, resource, namespaced: true, verbs: Vec::new() }
    }

    pub(super) fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|known| known == verb))
    }

    /// Returns true if a reference with this API version and kind names this kind, in any version. Kubernetes also
    /// accepts the kind in lower case, which OLM writes in the owner references of its roles.
    pub(super) fn is_of(&self, api_version: &str, kind: &str) -> bool {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let is_kind = *self.kind.kind == *kind || self.kind.kind.to_lowercase() == kind;
        is_kind && *self.kind.group == *group
    }

    /// Returns the URL of all objects, or of those in one namespace.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        let GroupVersionKind { group, version, .. } = &self.kind;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.resource.resource),
            None => format!("{root}/{}", self.resource.resource),
        }
    }

    /// Returns the URL of one object; `None` if its name is not a single path segment. Names come from references,
    /// whose authors must not choose another URL.
    pub(super) fn object_path(&self, key: &ObjectKey) -> Option<String> {
        is_path_segment(key.name()).then(|| format!("{}/{}", self.path(key.namespace()), key.name()))
    }
}

#[derive(Deserialize)]
struct GroupList {
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupName,
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    response_kind: Option<Kind>,
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

/// Discovers all resources, in the preferred version of each.
///
/// See <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery>.
pub(super) async fn served(client: &kube::Client) -> kube::Result<Vec<ServedResource>> {
    let mut served = Vec::new();
    let mut seen = BTreeSet::new();
    for root in ["/api", "/apis"] {
        let request = Request::get(root).header(http::header::ACCEPT, AGGREGATED).body(Vec::new());
        let groups: GroupList = client.request(request.map_err(kube::Error::HttpError)?).await?;
        for group in groups.items {
            let name = &group.metadata.name;
            for version in &group.versions {
                for resource in &version.resources {
                    let Some(kind) = &resource.response_kind else { continue };
                    let group_resource = GroupResource::new(name, &resource.resource);
                    if seen.insert(group_resource.clone()) {
                        served.push(ServedResource {
                            kind: GroupVersionKind::new(name, &version.version, &kind.kind),
                            resource: group_resource,
                            namespaced: resource.scope == "Namespaced",
                            verbs: resource.verbs.clone(),
                        });
                    }
                }
            }
        }
    }
    served.sort();
    Ok(served)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_name_a_kind_in_any_version_also_in_lower_case() {
        let crd = GroupVersionKind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let crd = ServedResource::new(crd, "customresourcedefinitions");
        let check = |api_version: &str, kind: &str, expected| assert_eq!(crd.is_of(api_version, kind), expected);
        check("apiextensions.k8s.io/v1", "CustomResourceDefinition", true);
        check("apiextensions.k8s.io/v1beta1", "customresourcedefinition", true);
        check("apiextensions.k8s.io/v1", "customResourceDefinition", false);
        check("v1", "CustomResourceDefinition", false);
    }
}
