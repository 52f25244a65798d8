//! The stores of an operator, by the type of their objects.

use super::{CachedPart, Entry, Index, NamedIndex, Plan, Store, StoreId, Writer};
use crate::error::Result;
use crate::kind::{AnyResource, Kind, Resource, Type, reads_metadata};
use flyball_core::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The caches of an operator, one per kind and namespace that it watches, shared by its controllers.
///
/// A kind has a cache if a controller reconciles it, [owns](crate::Controller::owns) it or
/// [watches](crate::Controller::watches) it; the cache may be [restricted](crate::Cache). Objects are decoded at each
/// call, so keep the result while you need it.
///
/// ```
/// # use flyball::{Caches, ObjectKey, Result};
/// use k8s_openapi::api::core::v1::{Pod, Service};
///
/// // A mapping for `Controller::watches::<Pod>`: to the service of the same name, if it exists.
/// fn service_of(pod: &Pod, caches: &Caches) -> Result<Vec<ObjectKey>> {
///     let meta = &pod.metadata;
///     let key = ObjectKey::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default());
///     Ok(caches.get::<Service>(&key)?.map(|_| key).into_iter().collect())
/// }
/// ```
///
/// Reads may be stale; see [`Context`](crate::Context) for the guarantees within a reconcile.
#[doc(alias = "Store")]
#[doc(alias = "Lister")]
#[doc(alias = "Informer")]
#[doc(alias = "reflector")]
#[derive(Debug)]
#[doc(alias = "GetCache")]
#[doc(alias = "client.Reader")]
pub struct Caches {
    stores: Vec<Arc<Store>>,
    by_type: BTreeMap<Type, Kind>,
    by_kind: BTreeMap<Kind, Vec<StoreId>>,
    undecodable: AtomicU64,
}

/// A store with matching entries.
type StoreEntries<'a> = (&'a Arc<Store>, Vec<(ObjectKey, Arc<Entry>)>);

/// An invalid declaration of a cache.
#[derive(Debug)]
pub(crate) struct InvalidPlan {
    pub(crate) kind: String,
    pub(crate) why: String,
}

/// An error of a read. It is permanent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0} has no cache: declare it with Controller::owns, watches or reads")]
    NotDeclared(String),
    #[error(
        "{kind} in namespace {namespace:?} has no cache: the operator does not watch this namespace, which \
         --namespaces, Operator::namespaces or Cache::namespaces adds"
    )]
    NotWatched { kind: String, namespace: String },
    #[error("no index {name}: declare it with Controller::{declare}")]
    NotIndexed { name: String, declare: &'static str },
    #[error("{kind} {key} cannot be in the cache, which selects {selector}: extend the selection in Operator::cache")]
    NotSelected { kind: String, key: ObjectKey, selector: String },
    #[error(
        "what is in {kind} {key} is not kept in memory: ask Context::get for it, be content with PartialObjectMeta, or have \
         the operator keep it by Operator::cache"
    )]
    Withheld { kind: String, key: ObjectKey },
}

impl Error {
    /// Creates the error for an object that the cache does not select.
    pub(crate) fn not_selected(store: &Store, key: &ObjectKey) -> crate::Error {
        let (kind, selector) = (store.kind().to_string(), store.cached_part().selection.describe());
        crate::Error::from(Self::NotSelected { kind, key: key.clone(), selector }).terminal()
    }
}

/// Creates the error for an index that no controller declares.
fn not_indexed(index: &NamedIndex) -> crate::Error {
    crate::Error::from(Error::NotIndexed { name: index.name.clone(), declare: index.declare }).terminal()
}

impl Caches {
    /// Creates a store for each kind in each namespace, or one for all namespaces if none is specified, restricted by
    /// `plans`.
    pub(crate) fn planned(
        types: impl IntoIterator<Item = (Type, Kind)>,
        plans: &[Plan],
        namespaces: &BTreeSet<String>,
    ) -> Result<(Self, Vec<Writer>), InvalidPlan> {
        let (mut by_type, mut kinds) = (BTreeMap::new(), BTreeMap::<Kind, Vec<Type>>::new());
        for (ty, kind) in types.into_iter().chain(plans.iter().map(|plan| (plan.ty.clone(), plan.kind.clone()))) {
            by_type.insert(ty.clone(), kind.clone());
            kinds.entry(kind).or_default().push(ty);
        }
        let (mut stores, mut writers, mut by_kind) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (kind, types) in kinds {
            let mut plans = plans.iter().filter(|plan| plan.kind == kind);
            let plan = plans.next();
            let cached_part = match plan {
                Some(_) if plans.next().is_some() => Err("declared twice".into()),
                Some(plan) => plan.cached_part(&types),
                None => Ok(CachedPart::usual(&kind, &types)),
            };
            let cached_part = cached_part.map(Arc::new).map_err(|why| InvalidPlan { kind: kind.to_string(), why })?;
            let named = plan.map(|plan| &plan.namespaces).filter(|named| !named.is_empty()).unwrap_or(namespaces);
            // Keys sort by `namespace/name`, so the stores of a kind do as well.
            let mut scopes: Vec<Arc<str>> = named.iter().map(|name| name.as_str().into()).collect();
            scopes.sort_by_key(|name| format!("{name}/"));
            let scopes: Vec<Option<Arc<str>>> = match kind.is_namespaced() && !scopes.is_empty() {
                true => scopes.into_iter().map(Some).collect(),
                false => vec![None],
            };
            for scope in scopes {
                let (store, writer) = Store::of(stores.len(), kind.clone(), scope, cached_part.clone());
                by_kind.entry(kind.clone()).or_insert_with(Vec::new).push(store.id());
                stores.push(store);
                writers.push(writer);
            }
        }
        Ok((Self { stores, by_type, by_kind, undecodable: AtomicU64::new(0) }, writers))
    }

    /// Creates stores without plans.
    pub(crate) fn new(
        types: impl IntoIterator<Item = (Type, Kind)>,
        namespaces: &BTreeSet<String>,
    ) -> (Self, Vec<Writer>) {
        Self::planned(types, &[], namespaces).expect("nothing is planned")
    }

    /// Returns an object; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// When the kind or its namespace has no cache, when the cache [does not select](crate::Cache) the name, or when
    /// it [does not keep](crate::Cache#secrets) the data. An object that cannot be decoded as a `T` counts as missing,
    /// and is logged.
    pub fn get<T: Resource>(&self, key: &ObjectKey) -> Result<Option<T>> {
        self.get_as(&Type::of::<T>(), key)
    }

    pub(super) fn get_as<T: AnyResource>(&self, ty: &Type, key: &ObjectKey) -> Result<Option<T>> {
        let store = self.store_of(self.kind(ty)?, key.namespace())?;
        if !store.cached_part().selection.may_select(key) {
            return Err(Error::not_selected(store, key));
        }
        let Some(entry) = store.get(key) else { return Ok(None) };
        self.check_known::<T>(store.kind(), key, &entry)?;
        Ok(self.decode(store.kind(), key, &entry))
    }

    /// Returns the objects of one namespace, or of all namespaces, in the order of their keys.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn list<T: Resource>(&self, namespace: Option<&str>) -> Result<Vec<T>> {
        self.list_as(&Type::of::<T>(), namespace)
    }

    pub(super) fn list_as<T: AnyResource>(&self, ty: &Type, namespace: Option<&str>) -> Result<Vec<T>> {
        let mut found = Vec::new();
        for store in self.stores_of(self.kind(ty)?, namespace)? {
            let entries = store.list(namespace);
            for (key, entry) in &entries {
                self.check_known::<T>(store.kind(), key, entry)?;
            }
            found.extend(entries.iter().filter_map(|(key, entry)| self.decode(store.kind(), key, entry)));
        }
        Ok(found)
    }

    /// Returns the keys of the objects of one namespace, or of all namespaces, in order, without decoding the objects.
    ///
    /// # Errors
    ///
    /// When the kind or its namespace has no cache.
    pub fn keys<T: Resource>(&self, namespace: Option<&str>) -> Result<Vec<ObjectKey>> {
        self.keys_as(&Type::of::<T>(), namespace)
    }

    pub(super) fn keys_as(&self, ty: &Type, namespace: Option<&str>) -> Result<Vec<ObjectKey>> {
        let stores = self.stores_of(self.kind(ty)?, namespace)?.into_iter();
        Ok(stores.flat_map(|store| store.keys(namespace)).collect())
    }

    /// Returns the objects that an index has for a value, in the order of their keys.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get); and when no controller [declares](crate::Controller::index) the index.
    pub fn list_by<I: Index>(&self, value: &I::Value) -> Result<Vec<I::Resource>> {
        self.list_named(&NamedIndex::of::<I>(), value)
    }

    pub(super) fn list_named<T: AnyResource, V: Ord + Clone + 'static>(
        &self,
        index: &NamedIndex,
        value: &V,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        for (store, entries) in self.found_by(index, value)? {
            for (key, entry) in entries {
                self.check_known::<T>(store.kind(), &key, &entry)?;
                found.extend(self.decode(store.kind(), &key, &entry));
            }
        }
        Ok(found)
    }

    /// Returns the values of an index in a range, each with the key of an object, without decoding the objects.
    ///
    /// It is for mappings of frequent changes: their cost should not depend on the size of other objects.
    ///
    /// ```
    /// # use flyball::{Caches, Index, ObjectKey, Result};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// /// Pods by priority.
    /// struct ByPriority;
    ///
    /// impl Index for ByPriority {
    ///     type Resource = Pod;
    ///     type Value = i32;
    ///
    ///     fn values(pod: &Pod) -> Vec<i32> {
    ///         pod.spec.iter().filter_map(|spec| spec.priority).collect()
    ///     }
    /// }
    ///
    /// fn important_pods(caches: &Caches) -> Result<Vec<ObjectKey>> {
    ///     Ok(caches.range_by::<ByPriority>(1000..)?.into_iter().map(|(_, key)| key).collect())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// When the kind has no cache, and when no controller [declares](crate::Controller::index) the index.
    pub fn range_by<I: Index>(&self, values: impl RangeBounds<I::Value>) -> Result<Vec<(I::Value, ObjectKey)>> {
        let index = NamedIndex::of::<I>();
        let mut found = Vec::new();
        for store in self.stores_of(self.kind(&index.ty)?, None)? {
            found.extend(store.range_by(&index.id, &values).ok_or_else(|| not_indexed(&index))?);
        }
        Ok(found)
    }

    /// Returns the keys that an index has for a value, by store.
    pub(crate) fn found_by<V: Ord + Clone + 'static>(
        &self,
        index: &NamedIndex,
        value: &V,
    ) -> Result<Vec<StoreEntries<'_>>> {
        let stores = self.stores_of(self.kind(&index.ty)?, None)?.into_iter();
        stores.map(|store| Ok((store, store.list_by(&index.id, value).ok_or_else(|| not_indexed(index))?))).collect()
    }

    /// Returns an error for an entry without its data.
    fn check_known<T: AnyResource>(&self, kind: &Kind, key: &ObjectKey, entry: &Entry) -> Result<()> {
        if entry.is_withheld() && !reads_metadata::<T>() {
            let (kind, key) = (kind.to_string(), key.clone());
            return Err(crate::Error::from(Error::Withheld { kind, key }).terminal());
        }
        Ok(())
    }

    /// Returns all stores.
    pub(crate) fn stores(&self) -> &[Arc<Store>] {
        &self.stores
    }

    /// Returns the kind of a type.
    pub(crate) fn kind(&self, ty: &Type) -> Result<&Kind> {
        let not_declared = || crate::Error::from(Error::NotDeclared(ty.to_string())).terminal();
        self.by_type.get(ty).ok_or_else(not_declared)
    }

    /// Returns the store for the objects of a namespace.
    pub(crate) fn store_of(&self, kind: &Kind, namespace: Option<&str>) -> Result<&Arc<Store>> {
        Ok(self.stores_of(kind, namespace)?[0])
    }

    /// Returns the stores for the objects of a namespace, or of all namespaces; there is at least one.
    pub(crate) fn stores_of(&self, kind: &Kind, namespace: Option<&str>) -> Result<Vec<&Arc<Store>>> {
        let all = self.by_kind.get(kind).into_iter().flatten().map(|id| &self.stores[*id]);
        let serves =
            |store: &&Arc<Store>| namespace.is_none() || store.namespace().is_none_or(|n| Some(n) == namespace);
        let found: Vec<_> = all.filter(serves).collect();
        if found.is_empty() {
            let namespace = namespace.unwrap_or_default().to_owned();
            return Err(crate::Error::from(Error::NotWatched { kind: kind.to_string(), namespace }).terminal());
        }
        Ok(found)
    }

    /// Returns the stores of these types without duplicates.
    pub(crate) fn stores_among(&self, types: &BTreeSet<Type>) -> impl Iterator<Item = &Arc<Store>> {
        let kinds: BTreeSet<&Kind> = types.iter().filter_map(|ty| self.by_type.get(ty)).collect();
        kinds.into_iter().flat_map(|kind| &self.by_kind[kind]).map(|id| &self.stores[*id])
    }

    /// Decodes an object; `None` if it cannot be decoded.
    pub(crate) fn decode<T: AnyResource>(&self, kind: &Kind, key: &ObjectKey, entry: &Entry) -> Option<T> {
        let decoded = entry.object(kind);
        if let Err(error) = &decoded {
            self.undecodable.fetch_add(1, Ordering::Relaxed);
            let version = entry.resource_version();
            tracing::warn!(%kind, %key, version, %error, "cannot decode object; skipping it");
        }
        decoded.ok()
    }

    /// Returns the number of skipped objects that did not decode.
    pub(crate) fn undecodable(&self) -> u64 {
        self.undecodable.load(Ordering::Relaxed)
    }
}
