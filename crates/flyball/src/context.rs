//! What a reconcile works with.

mod drawn_names;
mod dynamic;
mod environment;
mod finalizer;
mod idempotency;
mod metrics;
mod normalization;
mod recent;
mod session;
mod status_writer;

pub(crate) use drawn_names::Reservation;
pub(crate) use environment::{Environment, OnError, OnSettled};
pub(crate) use metrics::{ApplyMetrics, ApplyOutcome};
pub(crate) use session::{Declared, Known, Pass, Primary};
pub(crate) use status_writer::StatusWriter;

use crate::cache::{Caches, Entry, Index, NamedIndex};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::kind::{AnyResource, Resource, Type, dealt, key_of, reads_metadata};
use crate::panics::guarded;
use flyball_core::{ObjectKey, Rng, time::Timestamp};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// What a reconcile works with: reads, writes, events, time and chance.
///
/// **Reads** come from the operator's caches, and cost no request. They show the past, but never one in which something is
/// missing that this very object's reconciles wrote: before a reconcile begins, the caches have caught up with
/// the writes of the one before. Where a cache has not after ten seconds (see
/// [`Controller::patience`](crate::Controller::patience)), reads of its kind go to the API server. So do those of an object of
/// which no answer told what became of a write, and of what a cache [does not keep](crate::Cache#secrets). Within a reconcile,
/// reads show what it wrote itself.
///
/// **Writes** through the context are noted for that purpose. Writes through [`client`](Self::client) are too, if you tell
/// of them by [`wrote`](Self::wrote); if not, the next reconcile may not see them, and their events cause one.
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
    pub(crate) pass: Arc<Pass>,
    kind: PhantomData<fn(K)>,
}

// Types are for those who write operators. Here they only choose what is decoded: all else is done by the pass, once for all types.
impl<K: AnyResource> Context<K> {
    pub(crate) fn of(pass: Arc<Pass>) -> Self {
        Self { pass, kind: PhantomData }
    }

    /// Returns the client, for requests that the context has no method for.
    ///
    /// Its requests are counted, have a deadline, and wait when the API server is busy. What they need is
    /// [allowed](crate::Controller::allows) to the controller, and what they write is [told](Self::wrote).
    ///
    /// ```
    /// # use flyball::{Context, Resource, Result};
    /// use k8s_openapi::api::core::v1::Node;
    /// use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
    ///
    /// async fn cordon<K: Resource>(cx: &Context<K>, node: &str) -> Result<()> {
    ///     let patch = serde_json::json!({"spec": {"unschedulable": true}});
    ///     let nodes = Api::<Node>::all(cx.client().clone());
    ///     cx.wrote(&nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?);
    ///
    ///     // A kind for which there is no type.
    ///     let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
    ///     let certificates = Api::<DynamicObject>::default_namespaced_with(cx.client().clone(), &kind);
    ///     let _ready = certificates.get("site").await?.data["status"]["conditions"][0]["status"] == "True";
    ///     Ok(())
    /// }
    /// ```
    pub fn client(&self) -> &kube::Client {
        self.pass.env.client.kube()
    }

    /// Returns the caches, which may be behind what this reconcile wrote.
    pub fn caches(&self) -> &Caches {
        &self.pass.env.caches
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.pass.now()
    }

    /// Returns the source of chance. What is drawn from it repeats in a simulation.
    pub fn rng(&self) -> &Rng {
        &self.pass.env.rng
    }

    /// Returns namespace and name of the object being reconciled.
    pub fn key(&self) -> &ObjectKey {
        &self.pass.primary.key
    }

    /// Names an object in the namespace of the one being reconciled.
    pub fn sibling(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.pass.primary.key.namespace(), name)
    }

    /// Returns an object, `None` if there is none.
    ///
    /// A kind that the controller only [reads](crate::Controller::reads) has no cache and is asked for at the API server.
    ///
    /// # Errors
    ///
    /// When the kind is not declared or the operator's [cache](crate::Cache) of it cannot hold such an object, when the API server
    /// has to be asked and refuses, or when the object does not decode.
    pub async fn get<T: Resource>(&self, key: &ObjectKey) -> Result<Option<T>> {
        self.get_as(&Type::of::<T>(), key).await
    }

    async fn get_as<T: AnyResource>(&self, ty: &Type, key: &ObjectKey) -> Result<Option<T>> {
        let (kind, entry) = self.pass.get(ty, key, reads_metadata::<T>()).await?;
        let decoded = entry.map(|entry| entry.object(kind)).transpose();
        decoded.map_err(|error| Error::from(error).context(format_args!("{kind} {key}")))
    }

    /// Returns the objects of one namespace, or all of them, in the order of their keys.
    ///
    /// Objects that do not decode are passed over and logged.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn list<T: Resource>(&self, namespace: Option<&str>) -> Result<Vec<T>> {
        self.list_as(&Type::of::<T>(), namespace).await
    }

    async fn list_as<T: AnyResource>(&self, ty: &Type, namespace: Option<&str>) -> Result<Vec<T>> {
        let (kind, found) = self.pass.list(ty, namespace, reads_metadata::<T>()).await?;
        Ok(found.iter().filter_map(|(key, entry)| self.caches().decode(kind, key, entry)).collect())
    }

    /// Returns the objects that an index finds by a value, in the order of their keys.
    ///
    /// Objects that do not decode are passed over and logged.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get); and when nobody [declares](crate::Controller::index) the index.
    pub async fn list_by<I: Index>(&self, value: &I::Value) -> Result<Vec<I::Resource>> {
        self.list_named(NamedIndex::of::<I>(), value, I::values).await
    }

    async fn list_named<T: AnyResource, V: Ord + Clone + 'static>(
        &self,
        index: NamedIndex,
        value: &V,
        values: impl Fn(&T) -> Vec<V>,
    ) -> Result<Vec<T>> {
        self.pass.cached_kind(&index.ty)?;
        let mut objects = Vec::new();
        for (store, known) in self.caches().found_by(&index, value)? {
            let found = self.pass.latest_list(store, None, reads_metadata::<T>(), Box::new(|_| known));
            for (key, entry) in found.await? {
                let object = self.caches().decode::<T>(store.kind(), &key, &entry);
                // What the reconcile wrote itself, or read past the cache, went through no index.
                let holds = |object: &_| {
                    guarded(format_args!("an index, reconcile of {}", self.key()), || values(object))
                        .is_ok_and(|values| values.contains(value))
                };
                objects.extend(object.filter(holds));
            }
        }
        Ok(objects)
    }

    /// Returns the objects that refer to the one being reconciled as their owner, in the order of their keys.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get). A child that does not decode is an error: an owner that did not know of it might make
    /// another one.
    pub async fn children<T: Resource>(&self) -> Result<Vec<T>> {
        self.children_as(&Type::of::<T>()).await
    }

    async fn children_as<T: AnyResource>(&self, ty: &Type) -> Result<Vec<T>> {
        let (kind, children) = self.pass.children(ty, reads_metadata::<T>()).await?;
        let decode = |(key, entry): (ObjectKey, Arc<Entry>)| {
            let child = entry.object(kind);
            child.map_err(|error| Error::from(error).context(format_args!("child {key}")))
        };
        children.into_iter().map(decode).collect()
    }

    /// Publishes an event about the object being reconciled.
    ///
    /// It is sent in the background, as events.k8s.io/v1. Equal events become one, with a count that is written from time to
    /// time. There is a limit to the rate, beyond which events are dropped and counted: they are for people to read, nothing may
    /// depend on them.
    pub fn event(&self, event: Event) {
        self.pass.event(event);
    }

    /// Notes a write that was made through [`client`](Self::client): `object` is what the API server answered.
    pub fn wrote<T: AnyResource>(&self, object: &T) {
        self.pass.wrote(&dealt(object), &key_of(object), object.meta().resource_version.as_deref());
    }
}

/// A clone is of the same reconcile: what it reads is as new, and what it writes counts as written by it.
impl<K> Clone for Context<K> {
    fn clone(&self) -> Self {
        Self { pass: self.pass.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Context<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.pass).finish()
    }
}
