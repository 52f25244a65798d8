//! Which kinds a cluster has, and how people call them.

use super::get;
use crate::error::{Result, ResultExt};
use kube::Client;
use serde_json::Value;

/// All groups and versions in one answer.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// One kind, in the version that its group prefers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    group: String,
    version: String,
    pub(super) kind: String,
    plural: String,
    /// Other names of it: singular, short.
    names: Vec<String>,
    pub(super) namespaced: bool,
    pub(super) can_list: bool,
}

impl Kind {
    /// Returns the path of all objects, or of one.
    pub(super) fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let Self { group, version, plural, .. } = self;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let place = namespace.filter(|_| self.namespaced).map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        format!("{root}{place}/{plural}{}", name.map(|name| format!("/{name}")).unwrap_or_default())
    }
}

/// All kinds of a cluster, in the order in which the cluster tells of them.
#[derive(Debug)]
pub(super) struct Kinds(Vec<Kind>);

impl Kinds {
    pub(super) async fn discover(client: &Client) -> Result<Self> {
        let mut kinds = Vec::new();
        for path in ["/api", "/apis"] {
            let told = get(client, path, AGGREGATED).await.when("cannot find out which kinds the cluster has")?;
            read(&told, &mut kinds);
        }
        Ok(Self(kinds))
    }

    pub(super) fn all(&self) -> &[Kind] {
        &self.0
    }

    /// Finds a kind by any of its names, which the group may follow: `deploy`, `deployments.apps`.
    pub(super) fn find(&self, name: &str) -> Option<&Kind> {
        let name = name.to_lowercase();
        self.0.iter().find(|kind| {
            let bare = match kind.group.as_str() {
                "" => name.as_str(),
                group => name.strip_suffix(group).and_then(|name| name.strip_suffix('.')).unwrap_or(&name),
            };
            kind.plural == bare || kind.kind.to_lowercase() == bare || kind.names.iter().any(|name| name == bare)
        })
    }

    /// Finds the kind that an owner reference names, whatever its version.
    pub(super) fn of(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.0.iter().find(|known| known.group == group && known.kind == kind)
    }
}

fn read(told: &Value, kinds: &mut Vec<Kind>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for group in list(&told["items"]) {
        // The first version is the preferred one; kinds that only others have are found there.
        for version in list(&group["versions"]) {
            for resource in list(&version["resources"]) {
                let kind = Kind {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    kind: text(&resource["responseKind"]["kind"]),
                    plural: text(&resource["resource"]),
                    names: list(&resource["shortNames"])
                        .iter()
                        .chain([&resource["singularResource"]])
                        .map(text)
                        .collect(),
                    namespaced: resource["scope"] == "Namespaced",
                    // Events are read for what they say; nobody owns them.
                    can_list: resource["resource"] != "events"
                        && list(&resource["verbs"]).iter().any(|verb| verb == "list"),
                };
                let known = |known: &Kind| (&known.group, &known.plural) == (&kind.group, &kind.plural);
                if !kinds.iter().any(known) {
                    kinds.push(kind);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kind_is_found_by_each_of_its_names() {
        let resource = |plural: &str, kind: &str, short: &str| {
            json!({"resource": plural, "responseKind": {"kind": kind}, "singularResource": kind.to_lowercase(),
                "shortNames": [short], "scope": "Namespaced", "verbs": ["get", "list"]})
        };
        let mut kinds = Vec::new();
        let group = |name: &str, resource: Value| {
            json!({"items": [{"metadata": {"name": name}, "versions": [
                {"version": "v1", "resources": [resource]}, {"version": "v1beta1", "resources": [resource]},
            ]}]})
        };
        read(&group("", resource("pods", "Pod", "po")), &mut kinds);
        read(&group("apps", resource("deployments", "Deployment", "deploy")), &mut kinds);
        let kinds = Kinds(kinds);
        for name in ["deployments", "deployment", "Deployment", "deploy", "deployments.apps", "deploy.apps"] {
            let path = kinds.find(name).map(|kind| kind.path(Some("ns"), Some("web")));
            assert_eq!(path.as_deref(), Some("/apis/apps/v1/namespaces/ns/deployments/web"), "{name}");
        }
        assert_eq!(kinds.find("po").map(|kind| kind.path(None, None)).as_deref(), Some("/api/v1/pods"));
        assert!(kinds.find("deployments.other").is_none() && kinds.of("apps/v1beta2", "Deployment").is_some());
    }
}
