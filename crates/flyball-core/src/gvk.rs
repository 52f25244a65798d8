//! The names of kinds, resources and objects.

use std::fmt;
use std::sync::Arc;

/// An API group and version; the core group is the empty string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupVersion {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// API version.
    pub version: Arc<str>,
}

impl GroupVersion {
    /// Creates a group and version.
    pub fn new(group: &str, version: &str) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    /// Parses `v1` or `group/v1`; `None` if there is more than one slash or no version.
    pub fn parse(api_version: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        (!version.is_empty() && !version.contains('/')).then(|| Self::new(group, version))
    }

    /// Returns a kind of this group and version.
    pub fn kind(&self, kind: &str) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: self.version.clone(), kind: kind.into() }
    }

    /// Returns a resource of this group and version.
    pub fn resource(&self, resource: &str) -> GroupVersionResource {
        GroupVersionResource { group: self.group.clone(), version: self.version.clone(), resource: resource.into() }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.version) } else { write!(f, "{}/{}", self.group, self.version) }
    }
}

/// A kind by group and version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[doc(alias = "schema.GroupVersionKind")]
pub struct GroupVersionKind {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// API version.
    pub version: Arc<str>,
    /// Kind in CamelCase.
    pub kind: Arc<str>,
}

impl GroupVersionKind {
    /// Creates a kind.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Returns the group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// Returns the `apiVersion` of such objects.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

/// Formats the kind like messages of Kubernetes: `apps/v1, Kind=Deployment`.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A resource by group and version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupVersionResource {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// API version.
    pub version: Arc<str>,
    /// Plural name in lower case, as in URLs.
    pub resource: Arc<str>,
}

impl GroupVersionResource {
    /// Creates a resource.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// Returns the group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// Returns the resource without its version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }
}

/// A resource without its version: the unit of storage and of RBAC rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupResource {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// Plural name in lower case.
    pub resource: Arc<str>,
}

impl GroupResource {
    /// Creates a resource.
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

/// Formats the resource like messages of Kubernetes: `deployments.apps`, or `pods` in the core group.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.resource) } else { write!(f, "{}.{}", self.resource, self.group) }
    }
}

/// The name of one object within its kind.
///
/// Keys are ordered like lists of a real API server: by the bytes of `namespace/name`, so that namespace `a-b` comes
/// before `a`. One string contains both, because caches and stores contain very many keys.
#[doc(alias = "NamespacedName")]
#[doc(alias = "ObjectRef")]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Creates a key; `namespace` is `None` for cluster-scoped kinds.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self([namespace, "/", name].concat().into()),
            None => Self(name.into()),
        }
    }

    /// Returns the namespace, `None` for cluster-scoped kinds.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// Returns `namespace/name`, or only the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_versions_round_trip() {
        for text in ["v1", "apps/v1", "vm.example.com/v1alpha1"] {
            assert_eq!(GroupVersion::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(GroupVersion::parse("a/b/c"), None);
        assert_eq!(GroupVersion::parse("apps/"), None);
    }

    #[test]
    fn keys_are_ordered_by_their_text() {
        let mut keys =
            [ObjectKey::new(Some("a"), "z"), ObjectKey::new(Some("a-b"), "a"), ObjectKey::new(Some("a"), "a.x")];
        keys.sort();
        assert_eq!(keys.map(|k| k.to_string()), ["a-b/a", "a/a.x", "a/z"]);
    }

    #[test]
    fn keys_separate_namespace_and_name() {
        let key = ObjectKey::new(Some("ns"), "web");
        assert_eq!((key.namespace(), key.name()), (Some("ns"), "web"));
        let key = ObjectKey::new(None, "web");
        assert_eq!((key.namespace(), key.name()), (None, "web"));
    }
}
