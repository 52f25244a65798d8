//! Declaration of the part of a kind that an operator caches.

use super::fields::{self, Fields, KeptFields};
use super::selection::Selection;
use super::shape;
use crate::kind::{AnyResource, Kind, Resource, Type};
use flyball_core::names;
use kube::core::DynamicObject;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

/// The part of a kind that an operator watches and keeps in memory; see [`Operator::cache`](crate::Operator::cache).
///
/// By default, a kind that controllers use is cached with all objects and all fields. This restricts it to objects by
/// labels, fields or namespace, which the API server filters, or drops fields. It applies to all controllers of the
/// operator, since they share one cache per kind.
///
/// ```
/// use flyball::{Cache, Operator};
/// use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
///
/// let operator = Operator::new("site-operator")
///     .cache(Cache::<Pod>::new().labels("app=site").without("spec.containers.env").without("status.conditions"))
///     .cache(Cache::<ConfigMap>::new().namespaces(["sites"]))
///     .cache(Cache::<Node>::new().without("status.images"));
/// ```
///
/// # Guarantees
///
/// - Objects that are not selected do not exist for the controllers. An object that is no longer selected is delivered
///   as deleted, and keeps its [finalizer](crate::Reconcile::FINALIZER): it cannot be removed before it is selected
///   again.
/// - Reading a name or namespace that is not selected is an error. Labels and other fields are unknown before the
///   object is read: an object that its labels do not select is not found.
/// - An object that a controller writes has to be selected too; otherwise the write is rejected before it is sent,
///   since its owner would not find it again.
/// - Dropped fields are removed from the received JSON before parsing. Reads, mapping functions, predicates and indexes
///   do not see them. Metadata is always kept, except for specified annotations.
/// - [Applying](crate::Context::apply) dropped fields sends them each time, since the cache cannot show that they are
///   unchanged. [Replacing](crate::Context::replace) such objects would lose the fields, and is rejected at the start.
///
/// # Metadata only
///
/// Use [`PartialObjectMeta<Pod>`](kube::core::PartialObjectMeta) instead of `Pod` where metadata is enough: in
/// [`watches`](crate::Controller::watches), in [`Context::get`](crate::Context::get), as
/// [`Reconcile::Resource`](crate::Reconcile::Resource). If all controllers do so for a kind, only metadata is
/// transferred and kept; otherwise they read the metadata of whole objects. For a kind that is known at run time only,
/// call [`metadata_only`](Self::metadata_only).
///
/// ```
/// # use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::core::PartialObjectMeta;
/// # struct Sites;
/// # impl Reconcile for Sites {
/// #     type Resource = ConfigMap;
/// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
/// # }
/// let controller = Controller::new(Sites).watches::<PartialObjectMeta<Pod>>(|pod, _| {
///     let site = pod.metadata.labels.as_ref().and_then(|labels| labels.get("site"));
///     Ok(site.map(|site| ObjectKey::new(pod.metadata.namespace.as_deref(), site)).into_iter().collect())
/// });
/// ```
///
/// # Secrets
///
/// The data of secrets is not kept in memory, except for secrets that the operator applied.
/// [`Context::get`](crate::Context::get) and similar methods read it from the API server, so the role lets the
/// operator get secrets that are not cached. [`Caches`](crate::Caches) return an error for them; mapping functions
/// see secrets without data, and a [custom predicate](crate::Predicate::new) passes all their updates.
/// `Cache::<Secret>::new()`, with or without a selector, keeps the data of the selected secrets.
#[doc(alias = "ByObject")]
#[must_use = "a cache does nothing until it is added to an operator"]
pub struct Cache<T> {
    plan: Plan,
    kind: PhantomData<fn(T)>,
}

impl<T: Resource> Cache<T> {
    /// Creates a cache of all objects of the kind, with all their fields.
    pub fn new() -> Self {
        Self { plan: Plan::new(Type::of::<T>(), Kind::of::<T>()), kind: PhantomData }
    }
}

impl Cache<DynamicObject> {
    /// Creates a cache of all objects of a [kind](Kind) that is known at run time only, with all their fields.
    pub fn of(kind: &Kind) -> Self {
        Self { plan: Plan::new(Type::dynamic(kind), kind.clone()), kind: PhantomData }
    }

    /// Transfers and keeps metadata only, as [`PartialObjectMeta`](kube::core::PartialObjectMeta) does for a kind
    /// with a type. The operator does not start if a controller uses the kind by a type with more than metadata, or
    /// replaces its objects.
    ///
    /// ```
    /// use flyball::{Cache, Kind, Operator};
    ///
    /// let site = Kind::new("example.com", "v1", "Site");
    /// let operator = Operator::new("site-auditor").cache(Cache::of(&site).metadata_only());
    /// ```
    #[doc(alias = "PartialObjectMetadata")]
    pub fn metadata_only(mut self) -> Self {
        self.plan.metadata_only = true;
        self
    }
}

impl<T: AnyResource> Cache<T> {
    /// Restricts the cache to objects with these labels, such as `app=web,tier notin (test)`.
    #[doc(alias = "label_selector")]
    #[doc(alias = "ByObject")]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.plan.labels = selector.into();
        self
    }

    /// Restricts the cache to objects with these fields, such as `spec.nodeName=node-1`, if the API server [supports
    /// them in
    /// selectors](https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/#list-of-supported-fields).
    #[doc(alias = "field_selector")]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.plan.fields = selector.into();
        self
    }

    /// Restricts the cache to these namespaces, instead of [those of the operator](crate::Operator::namespaces). Its
    /// roles follow.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.plan.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Drops a field, such as `status.images`, or `spec.containers.env` of each container. A name with dots is
    /// written as in `metadata.annotations['example.com/notes']`.
    #[doc(alias = "TransformFunc")]
    #[doc(alias = "transform")]
    pub fn without(mut self, path: impl Into<String>) -> Self {
        self.plan.without.push(path.into());
        self
    }

    /// Keeps only the fields that the type `T` declares. The operator does not start if a controller uses the kind by
    /// another type, other than for its metadata.
    ///
    /// A custom type with a few fields of a large kind results in a small cache:
    ///
    /// ```
    /// use flyball::{Cache, Operator};
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::{Resource, core::ObjectMeta};
    ///
    /// #[derive(Clone, Debug, serde::Deserialize, Resource)]
    /// #[resource(inherit = Pod)]
    /// struct Placement {
    ///     metadata: ObjectMeta,
    ///     spec: Place,
    /// }
    ///
    /// #[derive(Clone, Debug, serde::Deserialize)]
    /// #[serde(rename_all = "camelCase")]
    /// struct Place {
    ///     node_name: Option<String>,
    /// }
    ///
    /// let operator = Operator::new("site-operator").cache(Cache::<Placement>::new().declared_only());
    /// ```
    ///
    /// Flattened maps and enums are kept whole.
    pub fn declared_only(mut self) -> Self {
        self.plan.declared = Some(shape::declared::<T>());
        self
    }

    pub(crate) fn into_plan(self) -> Plan {
        self.plan
    }
}

impl<T: Resource> Default for Cache<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt(f)
    }
}

/// A declared cache.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) ty: Type,
    pub(crate) kind: Kind,
    pub(crate) namespaces: BTreeSet<String>,
    labels: String,
    fields: String,
    without: Vec<String>,
    /// The fields of the Rust type, if only those are kept.
    declared: Option<Fields>,
    metadata_only: bool,
}

/// The part of a kind in a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CachedPart {
    pub(crate) selection: Selection,
    pub(crate) kept: KeptFields,
}

impl Plan {
    fn new(ty: Type, kind: Kind) -> Self {
        let (labels, fields) = (String::new(), String::new());
        Self {
            ty,
            kind,
            namespaces: BTreeSet::new(),
            labels,
            fields,
            without: Vec::new(),
            declared: None,
            metadata_only: false,
        }
    }

    /// Returns true if writing an object back would lose fields.
    pub(crate) fn loses_fields(&self) -> bool {
        self.metadata_only || !self.without.is_empty()
    }

    /// Returns the part of the kind that is kept, or the reason why the declaration is invalid; `types` are the types
    /// by which controllers use the kind.
    pub(crate) fn cached_part(&self, types: &[Type]) -> Result<CachedPart, String> {
        if !self.kind.is_namespaced() && !self.namespaces.is_empty() {
            return Err("namespaces are set for a cluster-scoped kind".into());
        }
        for namespace in &self.namespaces {
            let wrong = names::dns_label(namespace);
            if !wrong.is_empty() {
                return Err(format!("invalid namespace {namespace:?}: {}", wrong.join("; ")));
            }
        }
        let selection = Selection::parse(&self.labels, &self.fields)?;
        let other = types.iter().find(|ty| **ty != self.ty && !ty.is_metadata());
        if let Some(other) = other.filter(|_| self.metadata_only || self.declared.is_some()) {
            let own = match self.metadata_only {
                true => "metadata".to_owned(),
                false => format!("the fields of {}", self.ty),
            };
            return Err(format!("it keeps {own}, but a controller uses the kind as {other}"));
        }
        if self.metadata_only || types.iter().all(|ty| ty.is_metadata()) {
            return Ok(CachedPart { selection, kept: KeptFields::Metadata });
        }
        let mut kept = self.declared.clone().unwrap_or(Fields::All);
        ["apiVersion", "kind", "metadata"].iter().for_each(|member| kept.keep(member));
        for text in &self.without {
            let path = fields::path(text)?;
            match path.iter().map(|name| &**name).collect::<Vec<_>>()[..] {
                ["apiVersion" | "kind", ..] => return Err(format!("{text} is always kept")),
                ["metadata", "annotations", super::entry::PAUSED] => return Err(format!("{text} is always kept")),
                ["metadata", "annotations", _] => {}
                ["metadata", ..] => {
                    return Err(format!("{text} is always kept: only annotations can be dropped from metadata"));
                }
                _ => {}
            }
            kept.drop(&path);
        }
        let kept = if kept == Fields::All { KeptFields::Whole } else { KeptFields::Some(kept) };
        Ok(CachedPart { selection, kept })
    }
}

impl CachedPart {
    /// Returns the part of a kind that is kept without a declaration.
    pub(crate) fn usual(kind: &Kind, types: &[Type]) -> Self {
        let resource = kind.resource();
        let confidential = (&*resource.group, &*resource.resource) == ("", "secrets");
        let kept = match types.iter().all(|ty| ty.is_metadata()) {
            true => KeptFields::Metadata,
            false if confidential => KeptFields::Own,
            false => KeptFields::Whole,
        };
        Self { selection: Selection::default(), kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Node, Pod, Secret};
    use kube::core::PartialObjectMeta;

    fn cached_part<T: Resource>(cache: Cache<T>) -> Result<CachedPart, String> {
        let plan = cache.into_plan();
        plan.cached_part(std::slice::from_ref(&plan.ty))
    }

    #[test]
    fn invalid_declarations_are_rejected() {
        let check = |cache: Cache<Pod>, expected: &str| assert_eq!(cached_part(cache).unwrap_err(), expected);
        let cache = Cache::<Pod>::new;
        check(
            cache().namespaces(["A"]).labels("a"),
            "invalid namespace \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        );
        check(cache().fields("a"), "invalid selector: 'a'; can't understand 'a'");
        check(
            cache().without("metadata.uid"),
            "metadata.uid is always kept: only annotations can be dropped from metadata",
        );
        check(
            cache().without("metadata.annotations['flyball.dev/paused']"),
            "metadata.annotations['flyball.dev/paused'] is always kept",
        );
        check(cache().without("kind"), "kind is always kept");
        let nodes = cached_part(Cache::<Node>::new().namespaces(["a"]));
        assert_eq!(nodes.unwrap_err(), "namespaces are set for a cluster-scoped kind");
    }

    #[test]
    fn fields_that_another_type_may_read_are_not_dropped() {
        let plan = Cache::<Pod>::new().declared_only().into_plan();
        let (pod, meta, node) = (plan.ty.clone(), Type::of::<PartialObjectMeta<Pod>>(), Type::of::<Node>());
        assert!(plan.cached_part(&[pod.clone(), meta]).is_ok());
        let why = plan.cached_part(&[pod, node]).unwrap_err();
        assert!(why.contains("pod::Pod,") && why.ends_with("core::v1::node::Node"), "{why}");
    }

    #[test]
    fn dynamic_kind_is_cached_as_metadata_if_declared() {
        let plan = Cache::of(&Kind::of::<Pod>()).metadata_only().into_plan();
        let (pod, meta) = (Type::of::<Pod>(), Type::of::<PartialObjectMeta<Pod>>());
        assert_eq!(plan.cached_part(&[plan.ty.clone(), meta]).unwrap().kept, KeptFields::Metadata);
        let why = plan.cached_part(&[plan.ty.clone(), pod]).unwrap_err();
        assert!(why.starts_with("it keeps metadata, but") && why.ends_with("core::v1::pod::Pod"), "{why}");
    }

    #[test]
    fn metadata_is_cached_if_all_types_are_metadata_types() {
        let (pod, meta) = (Type::of::<Pod>(), Type::of::<PartialObjectMeta<Pod>>());
        let usual = |types: &[Type]| CachedPart::usual(&Kind::of::<Pod>(), types).kept;
        assert_eq!(
            (usual(std::slice::from_ref(&meta)), usual(&[meta, pod])),
            (KeptFields::Metadata, KeptFields::Whole)
        );
        let secrets = CachedPart::usual(&Kind::of::<Secret>(), &[Type::of::<Secret>()]).kept;
        assert_eq!((secrets, cached_part(Cache::<Secret>::new()).unwrap().kept), (KeptFields::Own, KeptFields::Whole));
    }
}
