//! The context of a reconcile, and the state that reconciles share.
//!
//! [`Context`] has the type of the object; the session behind it is the same for all types, and compiled once. This
//! module is independent of the queues of controllers and of authors' functions.

mod changes;
mod dynamic;
mod environment;
mod finalizer;
mod generated_names;
mod idempotency;
mod metrics;
mod normalization;
mod recent;
mod session;
mod status_schema;
mod status_writer;

pub(crate) use environment::{Environment, OnError, OnSuccess};
pub(crate) use generated_names::Reservation;
pub(crate) use metrics::{ApplyMetrics, ApplyOutcome};
pub(crate) use session::{DeclaredTypes, LastKnown, Primary, ReconcileSession};
pub(crate) use status_schema::{Adapted, StatusSchema};
pub(crate) use status_writer::StatusWriter;

use crate::cache::{Caches, Entry, Index, NamedIndex};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::kind::{AnyResource, Resource, Type, key_of, type_of};
use crate::panics::guarded;
use flyball_core::{ObjectKey, Rng, time::Timestamp};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The context of one reconcile: reads, writes, events, time and randomness.
///
/// **Reads** come from the operator's caches and cost no request. They may be stale, but never lack what earlier
/// reconciles of the same object wrote: before a reconcile begins, the caches have caught up with the writes of the
/// one before. If a cache has not caught up within ten seconds (see
/// [`Controller::own_write_timeout`](crate::Controller::own_write_timeout)), reads of its kind go to the API server.
/// So do reads of an object whose last write had no response, and of objects that a cache [does not
/// keep](crate::Cache#secrets). Within a reconcile, reads return its own writes.
///
/// **Writes** through the context are recorded for that purpose. Record writes through [`client`](Self::client) with
/// [`record_write`](Self::record_write); otherwise the next reconcile may not see them, and their events trigger one.
///
/// ```
/// use flyball::{Action, Context, Error, Event, ObjectKey, Result};
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use kube::{ResourceExt, core::ObjectMeta};
///
/// // Publishes the public half of a secret, for a controller that `owns::<ConfigMap>` and `watches::<Secret>`.
/// async fn publish(map: &ConfigMap, cx: &Context<ConfigMap>) -> Result<Action> {
///     let key = ObjectKey::new(cx.key().namespace(), &format!("{}-key", map.name_any()));
///     let Some(secret) = cx.get::<Secret>(&key).await? else {
///         return Err(Error::from(format!("there is no secret {key}")).wait()); // the watch wakes it when there is
///     };
///     let public = secret.data.and_then(|mut data| data.remove("public")).unwrap_or_default();
///     let metadata = ObjectMeta { name: Some(format!("{}-public", map.name_any())), ..ObjectMeta::default() };
///     let text = String::from_utf8_lossy(&public.0).into_owned();
///     cx.apply(&ConfigMap { metadata, data: Some([("key".into(), text)].into()), ..ConfigMap::default() }).await?;
///     Ok(Action::done())
/// }
/// ```
pub struct Context<K> {
    pub(crate) session: Arc<ReconcileSession>,
    object: Arc<K>,
}

// Types are otherwise only used to choose the decoder: the session implements everything else, once for all types.
impl<K: AnyResource> Context<K> {
    pub(crate) fn of(session: Arc<ReconcileSession>, object: Arc<K>) -> Self {
        Self { session, object }
    }

    /// Returns the object that is reconciled, as it was passed to the reconciler. Work on other threads shares it
    /// without a copy, which takes milliseconds for a large object.
    pub fn object(&self) -> &Arc<K> {
        &self.object
    }

    /// Returns the client, for requests that the context has no method for.
    ///
    /// It counts requests, has a timeout, and retries when the API server is busy. [Allow](crate::Controller::allows)
    /// the requests, and [record](Self::record_write) the writes.
    ///
    /// ```
    /// # use flyball::{Context, Resource, Result};
    /// use k8s_openapi::api::core::v1::Node;
    /// use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
    ///
    /// async fn cordon<K: Resource>(cx: &Context<K>, node: &str) -> Result<()> {
    ///     let patch = serde_json::json!({"spec": {"unschedulable": true}});
    ///     let nodes = Api::<Node>::all(cx.client().clone());
    ///     cx.record_write(&nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?);
    ///
    ///     // A kind for which there is no type.
    ///     let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
    ///     let certificates = Api::<DynamicObject>::default_namespaced_with(cx.client().clone(), &kind);
    ///     let _ready = certificates.get("site").await?.data["status"]["conditions"][0]["status"] == "True";
    ///     Ok(())
    /// }
    /// ```
    pub fn client(&self) -> &kube::Client {
        self.session.env.client.kube()
    }

    /// Returns the caches, which may not have caught up with the writes of this reconcile.
    pub fn caches(&self) -> &Caches {
        &self.session.env.caches
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.session.now()
    }

    /// Returns the source of randomness, which repeats in a simulation.
    pub fn rng(&self) -> &Rng {
        &self.session.env.rng
    }

    /// Returns namespace and name of the object being reconciled.
    #[doc(alias = "Request")]
    #[doc(alias = "NamespacedName")]
    pub fn key(&self) -> &ObjectKey {
        &self.session.primary.key
    }

    /// Waits until the object being reconciled is deleted, or is being deleted: a long reconcile can end then, so that
    /// its workers are free and [`finalize`](crate::Reconcile::finalize) is called.
    ///
    /// It is dropped at the end of the reconcile:
    ///
    /// ```
    /// # use flyball::{Action, Context, Result};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # async fn copy(_: &ConfigMap) -> Result<()> { Ok(()) }
    /// async fn reconcile(disk: &ConfigMap, cx: &Context<ConfigMap>) -> Result<Action> {
    ///     tokio::select! {
    ///         biased;
    ///         copied = copy(disk) => copied.map(|()| Action::done()),
    ///         () = cx.deleted() => Ok(Action::done()),
    ///     }
    /// }
    /// ```
    #[doc(alias = "kopf.daemon")]
    pub async fn deleted(&self) {
        let primary = &self.session.primary;
        match self.session.primary_store() {
            Ok(store) => store.deleted(&primary.key, &primary.entry.uid()).await,
            // Without a cache there is no reconcile either.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns true if the object being reconciled exists and is not being deleted, according to the API server.
    ///
    /// The cache may be older than the deletion, for example after a restart that reads a lagging API server. Objects
    /// in the cluster are garbage collected then; a machine or a DNS record would remain. So confirm that the object
    /// exists before each creation outside of the cluster. An object of the same name with another UID is another
    /// object. This costs one request.
    ///
    /// # Errors
    ///
    /// When the API server returns an error.
    #[doc(alias = "APIReader")]
    pub async fn confirm_exists(&self) -> Result<bool> {
        let primary = &self.session.primary;
        let found = self.session.env.fetch(&primary.kind, &primary.key).await?;
        Ok(found.is_some_and(|found| found.uid() == primary.entry.uid() && !found.is_deleting()))
    }

    /// Returns the key of an object in the namespace of the one being reconciled.
    pub fn sibling(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.session.primary.key.namespace(), name)
    }

    /// Returns an object, `None` if it does not exist.
    ///
    /// A kind that the controller only [reads](crate::Controller::reads) has no cache, and is read from the API server.
    ///
    /// # Errors
    ///
    /// When the kind is not declared, when its [cache](crate::Cache) does not select the object, when the API server
    /// returns an error, or when the object cannot be decoded.
    #[doc(alias = "client.Get")]
    pub async fn get<T: Resource>(&self, key: &ObjectKey) -> Result<Option<T>> {
        self.get_as(&Type::of::<T>(), key).await
    }

    async fn get_as<T: AnyResource>(&self, ty: &Type, key: &ObjectKey) -> Result<Option<T>> {
        let (kind, entry) = self.session.get(ty, key).await?;
        let decoded = entry.map(|entry| entry.object(kind)).transpose();
        decoded.map_err(|error| Error::from(error).context(format_args!("{kind} {key}")))
    }

    /// Returns the objects of one namespace, or of all, in the order of their keys.
    ///
    /// Objects that do not decode are skipped and logged.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    #[doc(alias = "client.List")]
    #[doc(alias = "InNamespace")]
    pub async fn list<T: Resource>(&self, namespace: Option<&str>) -> Result<Vec<T>> {
        self.list_as(&Type::of::<T>(), namespace).await
    }

    async fn list_as<T: AnyResource>(&self, ty: &Type, namespace: Option<&str>) -> Result<Vec<T>> {
        let (kind, found) = self.session.list(ty, namespace).await?;
        Ok(found.iter().filter_map(|(key, entry)| self.caches().decode(kind, key, entry)).collect())
    }

    /// Decodes the objects of one namespace, or of all, one by one in the order of their keys, and returns the results
    /// of a function of them, such as the required parts of the selected objects.
    ///
    /// Objects that do not decode are skipped and logged.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn filter_map<T: Resource, R>(
        &self,
        namespace: Option<&str>,
        mut select: impl FnMut(T) -> Option<R>,
    ) -> Result<Vec<R>> {
        let ty = Type::of::<T>();
        let (kind, found) = self.session.list(&ty, namespace).await?;
        let decode = |(key, entry): &(ObjectKey, Arc<Entry>)| self.caches().decode(kind, key, entry);
        Ok(found.iter().filter_map(decode).filter_map(&mut select).collect())
    }

    /// Returns the objects that an index has for a value, in the order of their keys.
    ///
    /// Objects that do not decode are skipped and logged.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get); and when no controller [declares](crate::Controller::index) the index.
    #[doc(alias = "MatchingFields")]
    pub async fn list_by<I: Index>(&self, value: &I::Value) -> Result<Vec<I::Resource>> {
        self.list_named(NamedIndex::of::<I>(), value, I::values, Some).await
    }

    /// Decodes the objects that an index has for a value, one by one in the order of their keys, and returns the
    /// results of a function of them, as [`filter_map`](Self::filter_map) does.
    ///
    /// # Errors
    ///
    /// As for [`list_by`](Self::list_by).
    pub async fn filter_map_by<I: Index, R>(
        &self,
        value: &I::Value,
        select: impl FnMut(I::Resource) -> Option<R>,
    ) -> Result<Vec<R>> {
        self.list_named(NamedIndex::of::<I>(), value, I::values, select).await
    }

    async fn list_named<T: AnyResource, V: Ord + Clone + 'static, R>(
        &self,
        index: NamedIndex,
        value: &V,
        values: impl Fn(&T) -> Vec<V>,
        mut select: impl FnMut(T) -> Option<R>,
    ) -> Result<Vec<R>> {
        self.session.cached_kind(&index.ty)?;
        let mut objects = Vec::new();
        for (store, known) in self.caches().found_by(&index, value)? {
            let found = self.session.latest_list(store, None, index.ty.is_metadata(), Box::new(|_| known));
            let found = found.await?;
            self.session.record_list(store.kind(), store.namespace(), true, found.len());
            for (key, entry) in found {
                let object = self.caches().decode::<T>(store.kind(), &key, &entry);
                // Objects that the reconcile wrote itself, or read past the cache, are not in the index.
                let holds = |object: &_| {
                    guarded(format_args!("an index, reconcile of {}", self.key()), || values(object))
                        .is_ok_and(|values| values.contains(value))
                };
                objects.extend(object.filter(holds).and_then(&mut select));
            }
        }
        Ok(objects)
    }

    /// Returns the objects whose owner is the one being reconciled, in the order of their keys. Those of a namespaced
    /// owner are in its namespace: a reference in another one is not valid, and anyone there may write it.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get). A child that cannot be decoded is an error, since the owner might create another one.
    pub async fn children<T: Resource>(&self) -> Result<Vec<T>> {
        self.children_as(&Type::of::<T>()).await
    }

    async fn children_as<T: AnyResource>(&self, ty: &Type) -> Result<Vec<T>> {
        let (kind, children) = self.session.children(ty).await?;
        let decode = |(key, entry): (ObjectKey, Arc<Entry>)| {
            let child = entry.object(kind);
            child.map_err(|error| Error::from(error).context(format_args!("child {key}")))
        };
        children.into_iter().map(decode).collect()
    }

    /// Publishes an event about the object being reconciled.
    ///
    /// It is sent in the background, as events.k8s.io/v1. Equal events are merged into a series, whose count is
    /// updated from time to time. Beyond a rate limit events are dropped and counted, so nothing may depend on them.
    #[doc(alias = "GetEventRecorderFor")]
    #[doc(alias = "GetEventRecorder")]
    #[doc(alias = "kopf.event")]
    #[doc(alias = "recorder")]
    #[doc(alias = "EventRecorder")]
    #[doc(alias = "publish")]
    #[doc(alias = "Recorder")]
    #[doc(alias = "kopf.info")]
    pub fn event(&self, event: Event) {
        self.session.event(event);
    }

    /// Sets the version of the desired state, for a reconciler that installs several of them for one spec, such as an
    /// upgrade and its rollback. A field that differs between versions is not reported as alternating by the event
    /// `Flapping`.
    pub fn set_desired_version(&self, version: u64) {
        self.session.desired_version.store(version, Ordering::Relaxed);
    }

    /// Records a write that was made through [`client`](Self::client), by the object in its response.
    pub fn record_write<T: AnyResource>(&self, object: &T) {
        self.session.record_write(&type_of(object), &key_of(object), object.meta().resource_version.as_deref());
    }
}

/// A clone belongs to the same reconcile, with the same reads and writes.
impl<K> Clone for Context<K> {
    fn clone(&self) -> Self {
        Self { session: self.session.clone(), object: self.object.clone() }
    }
}

impl<K> fmt::Debug for Context<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.session).finish()
    }
}
