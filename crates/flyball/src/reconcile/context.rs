//! What a reconcile sees of the world, and what it wrote to it.

use super::guarded;
use crate::cache::{self, Caches, Entry, Index, Selection, Store, StoreId};
use crate::client;
use crate::error::{Error, Result};
use crate::kind::{AnyResource, Kind, Resource, Type, dealt, key_of, reads_metadata};
use crate::operator::Environment;
use crate::queue::{Behind, Effect, Write};
use flyball_core::{ObjectKey, Rng, time::Timestamp};
use http::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many objects of which a cache does not keep all are asked for one by one; of more, all that there are.
const FEW: usize = 8;

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
    pub(crate) env: Arc<Environment>,
    pub(crate) declared: Arc<Declared>,
    /// The object being reconciled, as the reconcile got it.
    pub(crate) primary: Primary,
    /// What the caches do not show of what this key wrote.
    behind: Behind,
    written: Mutex<Vec<Option<Written>>>,
    kind: PhantomData<fn(K)>,
}

/// The object that a context belongs to.
#[derive(Debug)]
pub(crate) struct Primary {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    pub(crate) entry: Arc<Entry>,
}

/// What a controller said it would do with which types.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    /// Types whose caches the controller waits for and listens to.
    pub(crate) cached: BTreeSet<Type>,
    /// Types that may be applied, created and deleted.
    pub(crate) owned: BTreeSet<Type>,
    /// Types that may be replaced.
    pub(crate) replaced: BTreeSet<Type>,
    /// Whether the reconciler has a finalizer.
    pub(crate) finalizes: bool,
    /// Types without a cache that may be read.
    pub(crate) read: BTreeMap<Type, Kind>,
}

/// What is known of an object that is to be applied.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) entry: Option<Arc<Entry>>,
    /// Whether that is all: what a write made of it whose answer was lost may be missing.
    pub(crate) sure: bool,
}

/// A write, and what it made of the object.
#[derive(Debug)]
struct Written {
    write: Write,
    entry: Option<Arc<Entry>>,
}

impl<K: AnyResource> Context<K> {
    pub(crate) fn new(env: Arc<Environment>, declared: Arc<Declared>, primary: Primary, behind: Behind) -> Self {
        let unknown = behind.unknown.iter().map(|write| Some(Written { write: write.clone(), entry: None }));
        let written = Mutex::new(unknown.collect());
        Self { env, declared, primary, behind, written, kind: PhantomData }
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
        &self.env.client
    }

    /// Returns the caches, which may be behind what this reconcile wrote.
    pub fn caches(&self) -> &Caches {
        &self.env.caches
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    /// Returns the source of chance. What is drawn from it repeats in a simulation.
    pub fn rng(&self) -> &Rng {
        &self.env.rng
    }

    /// Returns namespace and name of the object being reconciled.
    pub fn key(&self) -> &ObjectKey {
        &self.primary.key
    }

    /// Names an object in the namespace of the one being reconciled.
    pub fn sibling(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.primary.key.namespace(), name)
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

    pub(super) async fn get_as<T: AnyResource>(&self, ty: &Type, key: &ObjectKey) -> Result<Option<T>> {
        let (kind, cached) = self.kind(ty)?;
        let entry = match cached.then(|| self.env.caches.store_of(kind, key.namespace())).transpose()? {
            Some(store) if !store.portion().selection.may_hold(key) => {
                return Err(cache::Error::not_selected(store, key));
            }
            Some(store) => {
                let mut entry = self.latest(store, key).await?;
                if entry.as_ref().is_some_and(|entry| entry.is_withheld()) && !reads_metadata::<T>() {
                    entry = self.env.fetch(store.kind(), key).await?;
                    entry.iter().for_each(|entry| self.relied_on(store, key, entry));
                }
                entry
            }
            None => self.env.fetch(kind, key).await?,
        };
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

    pub(super) async fn list_as<T: AnyResource>(&self, ty: &Type, namespace: Option<&str>) -> Result<Vec<T>> {
        let (kind, cached) = self.kind(ty)?;
        let mut found = Vec::new();
        if cached {
            let metadata = reads_metadata::<T>();
            for store in self.env.caches.stores_of(kind, namespace)? {
                found.extend(self.latest_list(store, namespace, metadata, |store| store.list(namespace)).await?);
            }
        } else {
            found = self.env.fetch_list(kind, namespace, &Selection::default()).await?;
        }
        Ok(found.iter().filter_map(|(key, entry)| self.env.caches.decode(kind, key, entry)).collect())
    }

    /// Returns the objects that an index finds by a value, in the order of their keys.
    ///
    /// Objects that do not decode are passed over and logged.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get); and when nobody [declares](crate::Controller::index) the index.
    pub async fn list_by<I: Index>(&self, value: &I::Value) -> Result<Vec<I::Resource>> {
        let ty = Type::of::<I::Resource>();
        if !self.kind(&ty)?.1 {
            return Err(Error::from(cache::Error::NotDeclared(ty.to_string())).terminal());
        }
        let metadata = reads_metadata::<I::Resource>();
        let mut found = Vec::new();
        for (store, known) in self.env.caches.found_by::<I>(value)? {
            for (key, entry) in self.latest_list(store, None, metadata, |_| known).await? {
                let object = self.env.caches.decode::<I::Resource>(store.kind(), &key, &entry);
                // What the reconcile wrote itself, or read past the cache, went through no index.
                let holds = |object: &_| guarded(|| I::values(object)).is_ok_and(|values| values.contains(value));
                found.extend(object.filter(holds));
            }
        }
        Ok(found)
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

    pub(super) async fn children_as<T: AnyResource>(&self, ty: &Type) -> Result<Vec<T>> {
        let (uid, namespace) = (self.primary.entry.uid(), self.primary.key.namespace());
        let mut children = Vec::new();
        for store in self.env.caches.stores_of(self.env.caches.kind(ty)?, namespace)? {
            let metadata = reads_metadata::<T>();
            for (key, entry) in self.latest_list(store, namespace, metadata, |store| store.owned_by(&uid)).await? {
                if entry.owner_references().iter().any(|owner| owner.uid == uid) {
                    let child = entry.object(store.kind());
                    children.push(child.map_err(|error| Error::from(error).context(format_args!("child {key}")))?);
                }
            }
        }
        Ok(children)
    }

    /// Notes a write that was made through [`client`](Self::client): `object` is what the API server answered.
    pub fn wrote<T: AnyResource>(&self, object: &T) {
        let key = key_of(object);
        let Ok((kind, true)) = self.kind(&dealt(object)) else { return };
        let Ok(store) = self.env.caches.store_of(kind, key.namespace()) else { return };
        let version = object.meta().resource_version.as_ref().and_then(|version| version.parse().ok());
        let number = self.note(store, &key);
        self.settle(number, version.map_or(Effect::Unknown, Effect::Version), None);
    }

    /// Returns the kind of a type, and whether it has a cache or is read without one.
    fn kind(&self, ty: &Type) -> Result<(&Kind, bool)> {
        if self.declared.cached.contains(ty) {
            return Ok((self.env.caches.kind(ty)?, true));
        }
        let read = self.declared.read.get(ty).map(|kind| (kind, false));
        read.ok_or_else(|| Error::from(cache::Error::NotDeclared(ty.to_string())).terminal())
    }

    /// Returns the kind of a type that the controller may write.
    pub(crate) fn owned_kind(&self, ty: &Type) -> Result<&Kind> {
        if !self.declared.owned.contains(ty) {
            return Err(Error::from(format!("{ty} is not owned: declare it with Controller::owns")).terminal());
        }
        self.env.caches.kind(ty)
    }

    /// Returns the kind of a type whose objects the controller may replace.
    pub(crate) fn replaced_kind(&self, ty: &Type) -> Result<&Kind> {
        if !self.declared.replaced.contains(ty) {
            return Err(Error::from(format!("{ty} is not replaced: declare it with Controller::replaces")).terminal());
        }
        self.env.caches.kind(ty)
    }

    /// Returns what was applied in the operator's name to be controlled by the object being reconciled: of all types that
    /// the controller owns.
    pub(crate) async fn applied_children(&self) -> Result<Vec<(&Arc<Store>, ObjectKey, Arc<Entry>)>> {
        let (uid, namespace) = (self.primary.entry.uid(), self.primary.key.namespace());
        let mut found = Vec::new();
        for store in self.env.caches.stores_among(&self.declared.owned) {
            for (key, entry) in self.latest_list(store, namespace, true, |store| store.owned_by(&uid)).await? {
                let controller = entry.controller();
                if controller.is_some_and(|owner| owner.uid == *uid) && entry.applied_fields("").is_some() {
                    found.push((store, key, entry));
                }
            }
        }
        Ok(found)
    }

    /// Returns the cache of the object being reconciled.
    pub(crate) fn primary_store(&self) -> Result<&Arc<Store>> {
        self.env.caches.store_of(&self.primary.kind, self.primary.key.namespace())
    }

    /// Returns the newest state of an object that is known, without asking the API server if the cache may be relied on.
    pub(crate) async fn latest(&self, store: &Store, key: &ObjectKey) -> kube::Result<Option<Arc<Entry>>> {
        let known = match self.behind.stores.contains(&store.id()) || self.is_unsure(store, key) {
            true => {
                let found = self.env.fetch_selected(store, key).await?;
                self.looked(store, |object| object == key);
                found.inspect(|entry| self.relied_on(store, key, entry))
            }
            false => store.get(key),
        };
        let version = known.as_ref().map_or(0, |entry| entry.resource_version());
        let written = self.written_to(store.id()).remove(key);
        Ok(written.filter(|entry| entry.resource_version() > version).or(known))
    }

    /// Returns what is known of an object that is to be applied. If it is unsure what became of a write, nobody is asked: applying
    /// it once more costs no more than a look at it, and often has to follow anyway.
    pub(crate) async fn latest_to_apply(&self, store: &Store, key: &ObjectKey) -> kube::Result<Known> {
        let sure = self.behind.stores.contains(&store.id()) || !self.is_unsure(store, key);
        let entry = if sure { self.latest(store, key).await? } else { store.get(key) };
        Ok(Known { entry, sure })
    }

    /// Tells whether it is not known what became of a write of this object, by this reconcile's word either.
    fn is_unsure(&self, store: &Store, key: &ObjectKey) -> bool {
        self.behind.is_unsure(store.id(), key) && !self.written_to(store.id()).contains_key(key)
    }

    /// Notes that objects of a cache were looked at: what became of the writes of earlier reconciles is known now.
    fn looked(&self, store: &Store, at: impl Fn(&ObjectKey) -> bool) {
        for earlier in self.written().iter_mut().take(self.behind.unknown.len()) {
            let is_settled = |earlier: &Written| earlier.write.store == store.id() && at(&earlier.write.object);
            if earlier.as_ref().is_some_and(is_settled) {
                *earlier = None;
            }
        }
    }

    /// Notes that the reconcile relies on a state of an object that the cache may not have shown yet. As with a write, the
    /// next reconcile must not go back behind it.
    pub(crate) fn relied_on(&self, store: &Store, key: &ObjectKey, entry: &Arc<Entry>) {
        if store.get(key).is_none_or(|cached| cached.resource_version() < entry.resource_version()) {
            let number = self.note(store, key);
            self.settle(number, Effect::Version(entry.resource_version()), Some(entry.clone()));
        }
    }

    /// Lists a cache, or what it should hold, together with what this reconcile wrote; of objects of which the cache
    /// does not keep all, more than their metadata unless that is enough.
    async fn latest_list(
        &self,
        store: &Store,
        namespace: Option<&str>,
        metadata: bool,
        cached: impl FnOnce(&Store) -> Vec<(ObjectKey, Arc<Entry>)>,
    ) -> kube::Result<BTreeMap<ObjectKey, Arc<Entry>>> {
        let unsure = |store: &Store| self.behind.unknown.iter().any(|write| write.store == store.id());
        let known = match self.behind.stores.contains(&store.id()) || unsure(store) {
            true => None,
            false => Some(cached(store)),
        };
        let lacking = |known: &Vec<(_, Arc<Entry>)>| match metadata {
            true => 0,
            false => known.iter().filter(|(_, entry)| entry.is_withheld()).count(),
        };
        let found = match known {
            Some(known) if lacking(&known) <= FEW => {
                let mut found = Vec::new();
                for (key, entry) in known {
                    let entry = match entry.is_withheld() && !metadata {
                        true => self.env.fetch(store.kind(), &key).await?.inspect(|e| self.relied_on(store, &key, e)),
                        false => Some(entry),
                    };
                    found.extend(entry.map(|entry| (key, entry)));
                }
                found
            }
            _ => {
                let (namespace, selection) = (namespace.or(store.namespace()), &store.portion().selection);
                let found = self.env.fetch_list(store.kind(), namespace, selection).await?;
                self.looked(store, |object| namespace.is_none_or(|namespace| object.namespace() == Some(namespace)));
                found.iter().for_each(|(key, entry)| self.relied_on(store, key, entry));
                found
            }
        };
        let mut found: BTreeMap<_, _> = found.into_iter().collect();
        for (key, entry) in self.written_to(store.id()) {
            let newer = found.get(&key).is_none_or(|known| known.resource_version() < entry.resource_version());
            if newer && namespace.is_none_or(|namespace| key.namespace() == Some(namespace)) {
                found.insert(key, entry);
            }
        }
        Ok(found)
    }

    /// Sends a write and notes what became of it; gives the object that the API server answered with.
    pub(crate) async fn write(
        &self,
        store: &Store,
        key: &ObjectKey,
        request: Request<Vec<u8>>,
    ) -> kube::Result<Arc<Entry>> {
        let number = self.note(store, key);
        let answer = client::exchange(&self.env.client, request).await;
        let entry = answer.and_then(|body| self.env.parse(&body));
        match &entry {
            Ok(entry) => self.settle_at(number, store, key, entry),
            Err(error) if client::is_ambiguous(error) => {}
            Err(_) => self.cancel(number),
        }
        entry
    }

    /// Notes that a request made an object what it is.
    pub(crate) fn settle_at(&self, number: usize, store: &Store, key: &ObjectKey, entry: &Arc<Entry>) {
        tracing::debug!(resource = %store.kind(), object = %key, version = entry.resource_version(), "wrote");
        self.settle(number, Effect::Version(entry.resource_version()), Some(entry.clone()));
    }

    /// Notes that a request is about to be sent. Whatever ends the reconcile before it is settled, the effect is unknown.
    pub(crate) fn note(&self, store: &Store, key: &ObjectKey) -> usize {
        let before = store.get(key).map_or(0, |entry| entry.resource_version());
        let write = Write { store: store.id(), object: key.clone(), before, effect: Effect::Unknown };
        let mut written = self.written();
        written.push(Some(Written { write, entry: None }));
        written.len() - 1
    }

    /// Notes what a request effected; that answers for earlier ones about the same object whose answers were lost.
    pub(crate) fn settle(&self, number: usize, effect: Effect, entry: Option<Arc<Entry>>) {
        let mut written = self.written();
        let Some(mut settled) = written[number].take() else { return };
        (settled.write.effect, settled.entry) = (effect, entry);
        let same = |w: &Write| w.store == settled.write.store && w.object == settled.write.object;
        for earlier in written.iter_mut() {
            if earlier.as_ref().is_some_and(|e| e.write.effect == Effect::Unknown && same(&e.write)) {
                *earlier = None;
            }
        }
        written[number] = Some(settled);
    }

    /// Notes that a request effected nothing.
    pub(crate) fn cancel(&self, number: usize) {
        self.written()[number] = None;
    }

    /// Returns what was written, once the reconcile is over.
    pub(crate) fn into_writes(self) -> Vec<Write> {
        let written = self.written.into_inner().unwrap_or_else(PoisonError::into_inner);
        written.into_iter().flatten().map(|written| written.write).collect()
    }

    fn written_to(&self, store: StoreId) -> BTreeMap<ObjectKey, Arc<Entry>> {
        let mut latest: BTreeMap<ObjectKey, Arc<Entry>> = BTreeMap::new();
        for written in self.written().iter().flatten().filter(|written| written.write.store == store) {
            match &written.entry {
                Some(entry) => drop(latest.insert(written.write.object.clone(), entry.clone())),
                None => drop(latest.remove(&written.write.object)),
            }
        }
        latest
    }

    fn written(&self) -> MutexGuard<'_, Vec<Option<Written>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> fmt::Debug for Context<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("primary", &self.primary).field("behind", &self.behind).finish_non_exhaustive()
    }
}
