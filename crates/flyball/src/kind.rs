//! What a kind of object is, as a Rust type and as a value.

use flyball_core::{GroupResource, GroupVersionKind, ObjectKey};
use k8s_openapi::ClusterResourceScope;
use kube::core::PartialObjectMeta;
use serde::de::DeserializeOwned;
use std::any::{TypeId, type_name};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A Rust type for one kind of object: those of `k8s-openapi`, and those that `#[derive(CustomResource)]` makes.
///
/// It is implemented for every type that fits, so that it serves as a bound:
///
/// ```
/// use flyball::{Caches, Resource, Result};
///
/// fn count<T: Resource>(caches: &Caches) -> Result<usize> {
///     Ok(caches.list::<T>(None)?.len())
/// }
/// # let _ = count::<k8s_openapi::api::core::v1::Pod>;
/// ```
pub trait Resource:
    kube::Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Send + Sync + 'static
{
}

impl<T> Resource for T where
    T: kube::Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Send + Sync + 'static
{
}

/// A [`Resource`] as a value: which type it is, and what that is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

impl Type {
    pub(crate) fn of<T: Resource>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>() }
    }

    /// Tells whether the type reads nothing but metadata.
    pub(crate) fn is_metadata(&self) -> bool {
        // The type itself does not say. Were it called otherwise one day, whole objects would be read.
        self.name.starts_with(type_name::<PartialObjectMeta<()>>().trim_end_matches("()>"))
    }
}

/// Returns namespace and name of an object.
pub(crate) fn key_of<T: kube::Resource>(object: &T) -> ObjectKey {
    let meta = object.meta();
    ObjectKey::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

/// A kind as a value: its names, and whether its objects live in namespaces.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Kind(Arc<Names>);

#[derive(PartialEq, Eq)]
struct Names {
    kind: GroupVersionKind,
    resource: GroupResource,
    namespaced: bool,
}

impl Kind {
    /// Names the kind of a type.
    pub(crate) fn of<T: Resource>() -> Self {
        let group = T::group(&());
        let kind = GroupVersionKind::new(&group, &T::version(&()), &T::kind(&()));
        let namespaced = TypeId::of::<T::Scope>() != TypeId::of::<ClusterResourceScope>();
        Self::new(kind, GroupResource::new(&group, &T::plural(&())), namespaced)
    }

    /// Names a kind that has no type.
    pub(crate) fn new(kind: GroupVersionKind, resource: GroupResource, namespaced: bool) -> Self {
        Self(Arc::new(Names { kind, resource, namespaced }))
    }

    /// Returns group, version and kind.
    pub(crate) fn gvk(&self) -> &GroupVersionKind {
        &self.0.kind
    }

    /// Returns the kind's bare name.
    pub(crate) fn name(&self) -> &str {
        &self.0.kind.kind
    }

    /// Returns the resource by which URLs and RBAC rules name the kind.
    pub(crate) fn resource(&self) -> &GroupResource {
        &self.0.resource
    }

    /// Returns resource, version and group, as kubectl takes them: `deployments.v1.apps`.
    pub(crate) fn qualified(&self) -> String {
        let GroupVersionKind { group, version, .. } = self.gvk();
        let plural = &self.0.resource.resource;
        if group.is_empty() { format!("{plural}.{version}") } else { format!("{plural}.{version}.{group}") }
    }

    /// Tells whether objects of this kind live in namespaces.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.0.namespaced
    }

    /// Returns the URL of all objects, or of those in one namespace.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let GroupVersionKind { group, version, .. } = self.gvk();
        let plural = &self.0.resource.resource;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace.filter(|_| self.0.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    /// Returns the URL of one object.
    pub(crate) fn object_path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.path(key.namespace()), key.name())
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.0.resource, &self.0.kind.version).cmp(&(&other.0.resource, &other.0.kind.version))
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Prints as RBAC and error messages name it: `deployments.apps`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.resource.fmt(f)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Namespace, Pod};

    #[test]
    fn a_kind_knows_its_urls() {
        let key = ObjectKey::new(Some("ns"), "web");
        assert_eq!(Kind::of::<Deployment>().object_path(&key), "/apis/apps/v1/namespaces/ns/deployments/web");
        assert_eq!(Kind::of::<Pod>().path(None), "/api/v1/pods");
        assert_eq!(Kind::of::<Namespace>().object_path(&ObjectKey::new(None, "ns")), "/api/v1/namespaces/ns");
        assert!(Kind::of::<Pod>().is_namespaced() && !Kind::of::<Namespace>().is_namespaced());
        assert_eq!(Kind::of::<Deployment>().to_string(), "deployments.apps");
    }
}
