//! A kind as a value.

use super::Resource;
use flyball_core::names::is_path_segment;
use flyball_core::{GroupResource, GroupVersionKind, ObjectKey};
use k8s_openapi::ClusterResourceScope;
use kube::core::{ApiResource, TypeMeta};
use std::any::TypeId;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A kind that is known at run time: group, version, kind, plural and scope.
///
/// Most operators know their kinds at compile time and do not need it: the type of a [`Resource`] determines its kind.
/// An operator whose kinds come from a file or an object uses [`DynamicObject`](kube::core::DynamicObject), and passes
/// the kind where others name a type:
///
/// ```
/// use flyball::{Action, Context, Controller, Kind, Operator, Reconcile, Result};
/// use kube::ResourceExt;
/// use kube::core::DynamicObject;
/// use serde_json::json;
///
/// /// Gives every object of one kind a child of another.
/// struct Pages {
///     child: Kind,
/// }
///
/// impl Reconcile for Pages {
///     type Resource = DynamicObject;
///
///     async fn reconcile(&self, site: &DynamicObject, cx: &Context<DynamicObject>) -> Result<Action> {
///         let child = DynamicObject::new(&site.name_any(), &self.child.api_resource());
///         let applied = cx.apply(&child.data(json!({"data": {"title": site.data["spec"]["title"]}}))).await?;
///         cx.set_status(&json!({"page": applied.name_any()})).await?;
///         Ok(Action::done())
///     }
/// }
///
/// let (site, page) = (Kind::new("example.com", "v1", "Site"), Kind::new("", "v1", "ConfigMap"));
/// let controller = Controller::of(&site, Pages { child: page.clone() }).dynamic(&page).owns();
/// let operator = Operator::new("page-operator").controller(controller);
/// assert_eq!(operator.describe().controllers[0].reconciles, "sites.v1.example.com");
/// ```
///
/// | With a type | With a value |
/// |---|---|
/// | [`Controller::new(reconciler)`](crate::Controller::new) | [`Controller::of(&kind, reconciler)`](crate::Controller::of) |
/// | `controller.owns::<T>()`, `watches`, `reads`, `replaces`, `filter`, `refers_to`, `index` | [`controller.dynamic(&kind)`](crate::Controller::dynamic)`.owns()`, … |
/// | `cx.get::<T>(&key)`, `list`, `list_by`, `children` | [`cx.dynamic(&kind)`](crate::Context::dynamic)`.get(&key)`, … |
/// | `caches.get::<T>(&key)`, `list`, `list_by`, `keys` | [`caches.dynamic(&kind)`](crate::Caches::dynamic)`.get(&key)`, … |
/// | [`cx.apply(&object)`](crate::Context::apply), `create`, `delete`, `replace`, [`Children::child`](crate::Children::child) | the same: the object has its `apiVersion` and `kind` |
/// | [`Index`](crate::Index) | [`DynamicIndex`](crate::DynamicIndex) |
/// | [`Cache::<T>::new()`](crate::Cache::new) | [`Cache::of(&kind)`](crate::Cache::of) |
/// | [`PartialObjectMeta<T>`](kube::core::PartialObjectMeta) | [`Cache::of(&kind).metadata_only()`](crate::Cache::metadata_only) |
///
/// Everything else is as with types: one watch per kind, finalizers, status, events, and the [RBAC
/// rules](crate::Operator::rules). A kind may be [installed later](crate::Operator#kinds-that-are-not-installed).
/// `types` of a [`DynamicObject`](kube::core::DynamicObject) from a cache is always set.
///
/// Webhooks and policies require a type.
///
/// Two kinds are equal if group, version and name are equal, independent of plural and scope; of several declarations
/// in an operator the first one counts.
#[doc(alias = "ApiResource")]
#[doc(alias = "RESTMapping")]
#[derive(Clone)]
pub struct Kind(Arc<Names>);

#[derive(Clone)]
struct Names {
    kind: GroupVersionKind,
    resource: GroupResource,
    namespaced: bool,
}

impl Kind {
    /// Returns the kind of a type.
    pub fn of<T: Resource>() -> Self {
        let group = T::group(&());
        let kind = GroupVersionKind::new(&group, &T::version(&()), &T::kind(&()));
        let namespaced = TypeId::of::<T::Scope>() != TypeId::of::<ClusterResourceScope>();
        Self::named(kind, GroupResource::new(&group, &T::plural(&())), namespaced)
    }

    /// Creates a kind whose objects live in namespaces; the core group is `""`.
    ///
    /// The plural is derived as usual: `Site`, `sites`; `Policy`, `policies`. Set another one by
    /// [`plural`](Self::plural), or look it up by [`discover`](Self::discover).
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        let plural = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind)).plural;
        Self::named(GroupVersionKind::new(group, version, kind), GroupResource::new(group, &plural), true)
    }

    /// Sets the plural in paths and RBAC rules.
    pub fn plural(mut self, plural: &str) -> Self {
        let names = Arc::make_mut(&mut self.0);
        names.resource = GroupResource::new(&names.kind.group, plural);
        self
    }

    /// Makes the kind cluster-scoped: its objects live in no namespace.
    #[doc(alias = "cluster_wide")]
    pub fn cluster_scoped(mut self) -> Self {
        Arc::make_mut(&mut self.0).namespaced = false;
        self
    }

    /// Creates a kind from all of its names.
    pub(crate) fn named(kind: GroupVersionKind, resource: GroupResource, namespaced: bool) -> Self {
        Self(Arc::new(Names { kind, resource, namespaced }))
    }

    /// Returns the kind as kube's [`ApiResource`], to make a [`DynamicObject`](kube::core::DynamicObject) or an
    /// `Api::<DynamicObject>`.
    pub fn api_resource(&self) -> ApiResource {
        let GroupVersionKind { group, version, kind } = self.gvk();
        ApiResource {
            group: group.to_string(),
            version: version.to_string(),
            api_version: self.gvk().api_version(),
            kind: kind.to_string(),
            plural: self.resource().resource.to_string(),
        }
    }

    /// Returns `apiVersion` and `kind` of the objects.
    pub(super) fn types(&self) -> TypeMeta {
        TypeMeta { api_version: self.gvk().api_version(), kind: self.name().to_owned() }
    }

    /// Returns group, version and kind.
    pub fn gvk(&self) -> &GroupVersionKind {
        &self.0.kind
    }

    /// Returns the name of the kind, without group and version.
    pub fn name(&self) -> &str {
        &self.0.kind.kind
    }

    /// Returns the resource in URLs and RBAC rules.
    pub fn resource(&self) -> &GroupResource {
        &self.0.resource
    }

    /// Returns resource, version and group, as kubectl takes them: `deployments.v1.apps`.
    pub(crate) fn qualified(&self) -> String {
        let GroupVersionKind { group, version, .. } = self.gvk();
        let plural = &self.0.resource.resource;
        if group.is_empty() { format!("{plural}.{version}") } else { format!("{plural}.{version}.{group}") }
    }

    /// Returns true if objects of this kind live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.0.namespaced
    }

    /// Returns the URL of all objects, or of those in one namespace.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let mut path = group_version_path(self.gvk());
        if let Some(namespace) = namespace.filter(|_| self.0.namespaced) {
            ["/namespaces/", namespace].into_iter().for_each(|part| path.push_str(part));
        }
        ["/", &self.0.resource.resource].into_iter().for_each(|part| path.push_str(part));
        path
    }

    /// Returns the URL of one object.
    ///
    /// # Errors
    ///
    /// When a name is not a single path segment. Names may come from a custom resource, whose author must not choose
    /// another URL.
    pub(crate) fn object_path(&self, key: &ObjectKey) -> Result<String, InvalidName> {
        self.check(key.namespace().into_iter().chain([key.name()]))?;
        let mut path = self.path(key.namespace());
        ["/", key.name()].into_iter().for_each(|part| path.push_str(part));
        Ok(path)
    }

    /// Returns an error unless each name is a single path segment.
    pub(crate) fn check<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<(), InvalidName> {
        match names.into_iter().find(|name| !is_path_segment(name)) {
            Some(name) => Err(InvalidName { kind: self.to_string(), name: name.to_owned() }),
            None => Ok(()),
        }
    }
}

/// An invalid name of an object or a namespace.
#[derive(Debug, thiserror::Error)]
#[error("{name:?} is not a valid name of an object or a namespace (of {kind})")]
pub(crate) struct InvalidName {
    kind: String,
    name: String,
}

/// Returns the URL of a group and version, with capacity for the rest.
pub(crate) fn group_version_path(GroupVersionKind { group, version, .. }: &GroupVersionKind) -> String {
    let mut root = String::with_capacity(192);
    let parts = if group.is_empty() { ["/api", "", ""] } else { ["/apis", "/", group] };
    parts.into_iter().chain(["/", version]).for_each(|part| root.push_str(part));
    root
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Kind {}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.kind.cmp(&other.0.kind)
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
    fn kind_determines_its_urls() {
        let key = ObjectKey::new(Some("ns"), "web");
        assert_eq!(Kind::of::<Deployment>().object_path(&key).unwrap(), "/apis/apps/v1/namespaces/ns/deployments/web");
        assert_eq!(Kind::of::<Pod>().path(None), "/api/v1/pods");
        assert_eq!(Kind::of::<Namespace>().object_path(&ObjectKey::new(None, "ns")).unwrap(), "/api/v1/namespaces/ns");
        assert!(Kind::of::<Pod>().is_namespaced() && !Kind::of::<Namespace>().is_namespaced());
        assert_eq!(Kind::of::<Deployment>().to_string(), "deployments.apps");
    }

    #[test]
    fn names_that_change_the_url_are_rejected() {
        let kind = Kind::of::<Deployment>();
        let path = |namespace: &str, name: &str| kind.object_path(&ObjectKey::new(Some(namespace), name));
        for name in ["", ".", "..", "a/status", "../vault/a", "a%2fb", "a?watch=true", "a#b", "a b", "a\nb", "a\\b"] {
            assert!(path("ns", name).is_err(), "{name:?}");
            assert!(name.is_empty() || path(name, "a").is_err(), "{name:?}");
        }
        for name in ["system:node", "a.b-c", "..a", "A_b"] {
            assert!(path("ns", name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn dynamic_kind_has_the_regular_plural_by_default() {
        let policy = Kind::new("example.com", "v1", "Policy");
        assert_eq!(policy.qualified(), "policies.v1.example.com");
        assert!(policy.is_namespaced() && !policy.clone().cluster_scoped().is_namespaced());
        assert_eq!(policy.plural("policys").path(None), "/apis/example.com/v1/policys");
        assert_eq!(Kind::new("apps", "v1", "Deployment"), Kind::of::<Deployment>());
    }
}
