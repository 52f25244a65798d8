//! Kinds of objects, as discovery lists them.

use serde::Serialize;
use std::pin::Pin;

/// A kind in the version that its group prefers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// Group, empty for the core group.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Name of the kind, such as `Pod`.
    pub kind: String,
    /// Plural name in paths, such as `pods`.
    pub plural: String,
    /// True if its objects belong to namespaces.
    pub namespaced: bool,
}

impl Kind {
    /// Returns the path of all objects, of those in a namespace, or of one.
    pub(crate) fn path(&self, namespace: &str, name: Option<&str>) -> String {
        let Self { group, version, plural, .. } = self;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let scope = match self.namespaced && !namespace.is_empty() {
            true => format!("/namespaces/{}", segment(namespace)),
            false => String::new(),
        };
        format!("{root}{scope}/{plural}{}", name.map(|name| format!("/{}", segment(name))).unwrap_or_default())
    }

    /// Returns true for kinds whose contents are never read: only metadata of Secrets reaches the console.
    pub(crate) fn is_secret(&self) -> bool {
        self.group.is_empty() && self.plural == "secrets"
    }

    /// Returns true for kinds whose objects define other kinds.
    pub(crate) fn is_definition(&self) -> bool {
        let (group, plural) = (&*self.group, &*self.plural);
        matches!(
            (group, plural),
            ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices")
        )
    }

    /// Returns true for kinds that the console reads on request instead of watching them.
    pub(crate) fn is_unwatched(&self) -> bool {
        // Events are read for one object; leases change every few seconds, and are read for the view of controllers.
        self.plural == "events" || self.group == "coordination.k8s.io" && self.plural == "leases"
    }
}

/// Escapes a segment of a path: names of some kinds, such as roles, may contain `%` and `:`.
fn segment(name: &str) -> String {
    url::form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

/// The listable kinds of a cluster. The caller implements discovery.
pub trait Discover: Send + Sync + 'static {
    /// Lists the kinds, or returns the reason why it cannot.
    fn kinds(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Kind>, String>> + Send + '_>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_paths() {
        let kind = |group: &str, plural: &str, namespaced| Kind {
            group: group.into(),
            version: "v1".into(),
            kind: "K".into(),
            plural: plural.into(),
            namespaced,
        };
        let role = kind("rbac.authorization.k8s.io", "clusterroles", false);
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aa%2Fb";
        assert_eq!(role.path("ignored", Some("system:a/b")), path);
        assert_eq!(kind("", "pods", true).path("ns", Some("p")), "/api/v1/namespaces/ns/pods/p");
        assert_eq!(kind("", "pods", true).path("", None), "/api/v1/pods");
    }
}
