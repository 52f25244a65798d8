//! One reconcile of one object, whatever its type: what it sees of the world, and what it wrote to it.
//!
//! [`Context`](super::Context) shows it to those who know the type. What it awaits is boxed here, so that it is compiled with this
//! crate, not with each one that has a reconciler.

use super::{Environment, StatusWriter};
use crate::cache::{self, Entry, Selection, Store, StoreId};
use crate::client;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::kind::{Kind, Type};
use crate::queue::{Behind, Effect, Write};
use flyball_core::{ObjectKey, time::Timestamp};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many objects of which a cache does not keep all are asked for one by one; of more, all that there are.
const FEW: usize = 8;

/// Objects with their keys.
type Entries = Vec<(ObjectKey, Arc<Entry>)>;

/// The kind of a type, with what is found of it.
type Found<'a, T> = BoxFuture<'a, Result<(&'a Kind, T)>>;

/// One reconcile of one object.
pub(crate) struct Pass {
    pub(crate) env: Arc<Environment>,
    pub(crate) declared: Arc<Declared>,
    /// The object being reconciled, as the reconcile got it.
    pub(crate) primary: Primary,
    /// What the caches do not show of what this key wrote.
    behind: Behind,
    written: Mutex<Vec<Option<Written>>>,
}

/// The object that is reconciled.
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
    /// As whom the controller sets the status, if it is one of several of its kind.
    pub(crate) status: Option<StatusWriter>,
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

impl Pass {
    pub(crate) fn new(env: Arc<Environment>, declared: Arc<Declared>, primary: Primary, behind: Behind) -> Self {
        let unknown = behind.unknown.iter().map(|write| Some(Written { write: write.clone(), entry: None }));
        let written = Mutex::new(unknown.collect());
        Self { env, declared, primary, behind, written }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    /// Returns the kind of a type and its object of this key, `None` if there is none; of one of which the cache does not
    /// keep all, more than its metadata unless that is enough.
    pub(crate) fn get<'a>(&'a self, ty: &'a Type, key: &'a ObjectKey, metadata: bool) -> Found<'a, Option<Arc<Entry>>> {
        async move {
            let (kind, cached) = self.kind(ty)?;
            let entry = match cached.then(|| self.env.caches.store_of(kind, key.namespace())).transpose()? {
                Some(store) if !store.portion().selection.may_hold(key) => {
                    return Err(cache::Error::not_selected(store, key));
                }
                Some(store) => {
                    let mut entry = self.latest(store, key).await?;
                    if entry.as_ref().is_some_and(|entry| entry.is_withheld()) && !metadata {
                        entry = self.env.fetch(store.kind(), key).await?;
                        entry.iter().for_each(|entry| self.relied_on(store, key, entry));
                    }
                    entry
                }
                None => self.env.fetch(kind, key).await?,
            };
            Ok((kind, entry))
        }
        .boxed()
    }

    /// Returns the kind of a type and its objects in one namespace, or all of them, in the order of their keys.
    pub(crate) fn list<'a>(&'a self, ty: &'a Type, namespace: Option<&'a str>, metadata: bool) -> Found<'a, Entries> {
        async move {
            let (kind, cached) = self.kind(ty)?;
            if !cached {
                return Ok((kind, self.env.fetch_list(kind, namespace, &Selection::default()).await?));
            }
            let mut found = Vec::new();
            for store in self.env.caches.stores_of(kind, namespace)? {
                let list = Box::new(move |store: &Store| store.list(namespace));
                found.extend(self.latest_list(store, namespace, metadata, list).await?);
            }
            Ok((kind, found))
        }
        .boxed()
    }

    /// Returns the kind of a type and those of its objects that refer to the one being reconciled as their owner, in the order
    /// of their keys.
    pub(crate) fn children<'a>(&'a self, ty: &'a Type, metadata: bool) -> Found<'a, Entries> {
        async move {
            let kind = self.env.caches.kind(ty)?;
            let (uid, namespace) = (self.primary.entry.uid(), self.primary.key.namespace());
            let mut children = Vec::new();
            for store in self.env.caches.stores_of(kind, namespace)? {
                let list = Box::new(|store: &Store| store.owned_by(&uid));
                children.extend(self.latest_list(store, namespace, metadata, list).await?);
            }
            let is_child = |entry: &Entry| entry.owner_references().iter().any(|owner| owner.uid == uid);
            children.retain(|(_, entry)| is_child(entry));
            Ok((kind, children))
        }
        .boxed()
    }

    /// Notes a write that the reconciler made by itself.
    pub(crate) fn wrote(&self, ty: &Type, key: &ObjectKey, version: Option<&str>) {
        let Ok((kind, true)) = self.kind(ty) else { return };
        let Ok(store) = self.env.caches.store_of(kind, key.namespace()) else { return };
        let version = version.and_then(|version| version.parse().ok());
        let number = self.note(store, key);
        self.settle(number, version.map_or(Effect::Unknown, Effect::Version), None);
    }

    /// Returns the kind of a type, and whether it has a cache or is read without one.
    fn kind(&self, ty: &Type) -> Result<(&Kind, bool)> {
        match self.declared.read.get(ty) {
            Some(kind) if !self.declared.cached.contains(ty) => Ok((kind, false)),
            _ => Ok((self.cached_kind(ty)?, true)),
        }
    }

    /// Returns the kind of a type that the controller has a cache of.
    pub(crate) fn cached_kind(&self, ty: &Type) -> Result<&Kind> {
        match self.declared.cached.contains(ty) {
            true => Ok(self.env.caches.kind(ty)?),
            false => Err(Error::from(cache::Error::NotDeclared(ty.to_string())).terminal()),
        }
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
            for (key, entry) in self.latest_list(store, namespace, true, Box::new(|store| store.owned_by(&uid))).await?
            {
                let controller = entry.controller();
                if controller.is_some_and(|owner| owner.uid == *uid)
                    && entry.applied_fields("", &self.env.manager).is_some()
                {
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

    /// Tells whether an object was seen, in its cache or by this reconcile.
    pub(crate) fn has_seen(&self, store: &Store, key: &ObjectKey) -> bool {
        store.holds(key) || self.written_to(store.id()).contains_key(key)
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
    pub(crate) fn latest_list<'a>(
        &'a self,
        store: &'a Store,
        namespace: Option<&'a str>,
        metadata: bool,
        cached: Box<dyn FnOnce(&Store) -> Entries + Send + 'a>,
    ) -> BoxFuture<'a, kube::Result<BTreeMap<ObjectKey, Arc<Entry>>>> {
        async move {
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
                            true => {
                                self.env.fetch(store.kind(), &key).await?.inspect(|e| self.relied_on(store, &key, e))
                            }
                            false => Some(entry),
                        };
                        found.extend(entry.map(|entry| (key, entry)));
                    }
                    found
                }
                _ => {
                    let (namespace, selection) = (namespace.or(store.namespace()), &store.portion().selection);
                    let found = self.env.fetch_list(store.kind(), namespace, selection).await?;
                    self.looked(store, |object| {
                        namespace.is_none_or(|namespace| object.namespace() == Some(namespace))
                    });
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
        .boxed()
    }

    /// Sends a write and notes what became of it; gives the object that the API server answered with.
    pub(crate) async fn write(
        &self,
        store: &Store,
        key: &ObjectKey,
        request: Request<Vec<u8>>,
    ) -> kube::Result<Arc<Entry>> {
        let number = self.note(store, key);
        let answer = self.env.client.exchange(request).await;
        let entry = answer.and_then(|body| self.env.answered(store, key, body));
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
    pub(crate) fn take_writes(&self) -> Vec<Write> {
        take(&mut *self.written()).into_iter().flatten().map(|written| written.write).collect()
    }

    pub(crate) fn event(&self, event: Event) {
        let primary = &self.primary;
        self.env.recorder.record(&primary.kind, &primary.key, &primary.entry.uid(), event, self.now());
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

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("primary", &self.primary).field("behind", &self.behind).finish_non_exhaustive()
    }
}
