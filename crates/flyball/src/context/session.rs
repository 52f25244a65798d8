//! One reconcile of one object of any type: the objects that it reads and its writes.
//!
//! [`Context`](super::Context) adds the type. The futures here are boxed, so that they are compiled once with this
//! crate, and not with each reconciler.

use super::{Environment, StatusSchema, StatusWriter};
use crate::cache::{self, Entry, Selection, Store, StoreId};
use crate::client;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::kind::{Kind, Type};
use crate::ledger::{Accesses, ChangedFields, Ledger, MAX_WRITES, Read, Target, Verb, WriteRecord};
use crate::queue::{Effect, StaleReads, Write};
use flyball_core::{ObjectKey, time::Timestamp};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Request;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Limit of partially cached objects that are read one by one; more of them are listed.
const MAX_SINGLE_READS: usize = 8;

/// Objects with their keys.
type Entries = Vec<(ObjectKey, Arc<Entry>)>;

/// The kind of a type, with the objects found.
type CacheRead<'a, T> = BoxFuture<'a, Result<(&'a Kind, T)>>;

/// A reconcile of one object.
pub(crate) struct ReconcileSession {
    pub(crate) env: Arc<Environment>,
    pub(crate) declared: Arc<DeclaredTypes>,
    /// The object being reconciled, as the reconcile got it.
    pub(crate) primary: Primary,
    /// The caches that have not caught up with the writes of this key.
    stale: StaleReads,
    written: Mutex<Vec<Option<RecordedWrite>>>,
    /// Identifier of the reconcile.
    pub(super) id: u64,
    /// True if the object being reconciled was read past the cache.
    is_from_server: bool,
    /// The ledger of the controller.
    pub(super) ledger: Arc<Ledger>,
    pub(super) accesses: Mutex<Accesses>,
    /// True if the object being reconciled is known to exist, or the API server has confirmed it.
    is_confirmed: AtomicBool,
    /// Distinguishes desired states for one spec; 0 if there is only one.
    pub(super) desired_version: AtomicU64,
}

/// The object being reconciled.
#[derive(Debug)]
pub(crate) struct Primary {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    pub(crate) entry: Arc<Entry>,
}

/// The types that a controller declared, by use.
#[derive(Debug, Default)]
pub(crate) struct DeclaredTypes {
    /// Types whose caches the controller waits for and listens to.
    pub(crate) cached: BTreeSet<Type>,
    /// Types that may be applied, created and deleted.
    pub(crate) owned: BTreeSet<Type>,
    /// Types that may be replaced.
    pub(crate) replaced: BTreeSet<Type>,
    /// True if the reconciler has a finalizer.
    pub(crate) finalizes: bool,
    /// The writer of the status, if several controllers share the kind.
    pub(crate) status: Option<StatusWriter>,
    /// The schema that the status is adapted to.
    pub(crate) status_schema: Option<StatusSchema>,
    /// Types without a cache that may be read.
    pub(crate) read: BTreeMap<Type, Kind>,
}

/// The last known state of an object that is applied.
#[derive(Debug)]
pub(crate) struct LastKnown {
    pub(crate) entry: Option<Arc<Entry>>,
    /// False if the response to an earlier write was lost, so that its result may be missing.
    pub(crate) certain: bool,
}

/// A write, and its result.
#[derive(Debug)]
struct RecordedWrite {
    write: Write,
    entry: Option<Arc<Entry>>,
    /// Verb and subresource; `None` for a state that was read past the cache.
    verb: Option<WriteVerb>,
    fields: ChangedFields,
}

/// The verb of a write, and its subresource.
pub(crate) type WriteVerb = (Verb, &'static str);

impl ReconcileSession {
    pub(crate) fn new(
        env: Arc<Environment>,
        declared: Arc<DeclaredTypes>,
        primary: Primary,
        stale: StaleReads,
        is_confirmed: bool,
        (id, is_from_server, ledger): (u64, bool, Arc<Ledger>),
    ) -> Self {
        let unknown = |write: &Write| {
            let (write, fields) = (write.clone(), ChangedFields::default());
            Some(RecordedWrite { write, entry: None, verb: None, fields })
        };
        let written = Mutex::new(stale.unknown.iter().map(unknown).collect());
        let (accesses, is_confirmed) = (Mutex::default(), is_confirmed.into());
        let desired_version = AtomicU64::default();
        Self {
            env,
            declared,
            primary,
            stale,
            written,
            id,
            is_from_server,
            ledger,
            accesses,
            is_confirmed,
            desired_version,
        }
    }

    /// Returns true if children can be created without a request for the object being reconciled.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }

    /// Returns true if the object being reconciled was read past the cache.
    pub(crate) fn is_from_server(&self) -> bool {
        self.is_from_server
    }

    /// Checks that the object being reconciled still exists, before a child is created.
    pub(crate) async fn confirm_primary(&self) -> Result<()> {
        if self.is_confirmed() {
            return Ok(());
        }
        let Primary { kind, key, entry } = &self.primary;
        let live = self.env.fetch(kind, key).await?.filter(|live| live.uid() == entry.uid());
        match live {
            Some(live) if live.is_deleting() && !entry.is_deleting() => {
                Err(Error::from(format!("{kind} {key} is being deleted, which the cache has not observed")).wait())
            }
            Some(_) => {
                self.is_confirmed.store(true, Ordering::Relaxed);
                Ok(())
            }
            None => Err(Error::from(format!("{kind} {key} was deleted, which the cache has not observed")).wait()),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    /// Returns the kind of a type and its object with this key, `None` if it does not exist; for a partially cached
    /// kind, the complete object unless metadata is sufficient.
    pub(crate) fn get<'a>(&'a self, ty: &'a Type, key: &'a ObjectKey) -> CacheRead<'a, Option<Arc<Entry>>> {
        async move {
            let (kind, cached) = self.kind(ty)?;
            let entry = match cached.then(|| self.env.caches.store_of(kind, key.namespace())).transpose()? {
                Some(store) if !store.cached_part().selection.may_select(key) => {
                    return Err(cache::Error::not_selected(store, key));
                }
                Some(store) => {
                    let mut entry = self.latest(store, key).await?;
                    if entry.as_ref().is_some_and(|entry| entry.is_withheld()) && !ty.is_metadata() {
                        entry = self.env.fetch(store.kind(), key).await?;
                        entry.iter().for_each(|entry| self.record_observed_state(store, key, entry));
                    }
                    entry
                }
                None => self.env.fetch(kind, key).await?,
            };
            let version = entry.as_ref().map_or(0, |entry| entry.resource_version());
            self.record_access(kind, key.namespace(), cached, |kind| Read::Object(kind, key.clone(), version));
            Ok((kind, entry))
        }
        .boxed()
    }

    /// Returns the kind of a type and its objects in one namespace, or all of them, in the order of their keys.
    pub(crate) fn list<'a>(&'a self, ty: &'a Type, namespace: Option<&'a str>) -> CacheRead<'a, Entries> {
        async move {
            let (kind, cached) = self.kind(ty)?;
            if !cached {
                let found = self.env.fetch_list(kind, namespace, &Selection::default()).await?;
                self.record_list(kind, namespace, false, found.len());
                return Ok((kind, found));
            }
            let mut found = Vec::new();
            for store in self.env.caches.stores_of(kind, namespace)? {
                let list = Box::new(move |store: &Store| store.list(namespace));
                found.extend(self.latest_list(store, namespace, ty.is_metadata(), list).await?);
            }
            self.record_list(kind, namespace, true, found.len());
            Ok((kind, found))
        }
        .boxed()
    }

    /// Returns the kind of a type and those of its objects whose owner is the one being reconciled, in the order of
    /// their keys.
    pub(crate) fn children<'a>(&'a self, ty: &'a Type) -> CacheRead<'a, Entries> {
        async move {
            let kind = self.env.caches.kind(ty)?;
            let (uid, namespace) = (self.primary.entry.uid(), self.primary.key.namespace());
            let mut children = Vec::new();
            for store in self.env.caches.stores_of(kind, namespace)? {
                let list = Box::new(|store: &Store| store.owned_by(&uid));
                children.extend(self.latest_list(store, namespace, ty.is_metadata(), list).await?);
            }
            let is_child = |entry: &Entry| entry.owner_references().iter().any(|owner| owner.uid == uid);
            children.retain(|(key, entry)| self.may_own(key) && is_child(entry));
            self.record_list(kind, namespace, true, children.len());
            Ok((kind, children))
        }
        .boxed()
    }

    /// Returns true if the object being reconciled may own an object: a namespaced owner has dependents in its
    /// namespace only. Anyone may write its UID into a reference elsewhere.
    fn may_own(&self, key: &ObjectKey) -> bool {
        self.primary.key.namespace().is_none_or(|namespace| key.namespace() == Some(namespace))
    }

    /// Records a write that the reconciler made through the client.
    pub(crate) fn record_write(&self, ty: &Type, key: &ObjectKey, version: Option<&str>) {
        let Ok((kind, true)) = self.kind(ty) else { return };
        let Ok(store) = self.env.caches.store_of(kind, key.namespace()) else { return };
        let version = version.and_then(|version| version.parse().ok());
        let number = self.note(store, key, Some((Verb::Client, "")));
        self.record_effect(number, version.map_or(Effect::Unknown, Effect::Version), None);
    }

    /// Returns the kind of a type, and whether it has a cache or is read without one.
    fn kind(&self, ty: &Type) -> Result<(&Kind, bool)> {
        match self.declared.read.get(ty) {
            Some(kind) if !self.declared.cached.contains(ty) => Ok((kind, false)),
            _ => Ok((self.cached_kind(ty)?, true)),
        }
    }

    /// Returns the kind of a type with a cache of the controller.
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

    /// Returns the objects that were applied under the operator's name and are controlled by the object being
    /// reconciled: of all types that the controller owns.
    pub(crate) async fn applied_children(&self) -> Result<Vec<(&Arc<Store>, ObjectKey, Arc<Entry>)>> {
        let (uid, namespace) = (self.primary.entry.uid(), self.primary.key.namespace());
        let mut found = Vec::new();
        for store in self.env.caches.stores_among(&self.declared.owned) {
            for (key, entry) in self.latest_list(store, namespace, true, Box::new(|store| store.owned_by(&uid))).await?
            {
                let controller = entry.controller();
                if self.may_own(&key)
                    && controller.is_some_and(|owner| owner.uid == *uid)
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

    /// Returns the newest known state of an object, from the API server if the cache has not caught up.
    pub(crate) async fn latest(&self, store: &Store, key: &ObjectKey) -> kube::Result<Option<Arc<Entry>>> {
        let known = match self.stale.stores.contains(&store.id()) || self.is_uncertain(store, key) {
            true => {
                let found = self.env.fetch_selected(store, key).await?;
                self.record_read(store, |object| object == key);
                found.inspect(|entry| self.record_observed_state(store, key, entry))
            }
            false => store.get(key),
        };
        let version = known.as_ref().map_or(0, |entry| entry.resource_version());
        let written = self.written_to(store.id()).remove(key);
        Ok(written.filter(|entry| entry.resource_version() > version).or(known))
    }

    /// Returns the last known state of an object that is applied. If the result of a write is uncertain, the object
    /// is not read again: applying costs no more than a read, and often has to follow anyway.
    pub(crate) async fn latest_to_apply(&self, store: &Store, key: &ObjectKey) -> kube::Result<LastKnown> {
        let certain = self.stale.stores.contains(&store.id()) || !self.is_uncertain(store, key);
        let entry = if certain { self.latest(store, key).await? } else { store.get(key) };
        Ok(LastKnown { entry, certain })
    }

    /// Returns true if the cache or this reconcile has observed an object.
    pub(crate) fn has_observed(&self, store: &Store, key: &ObjectKey) -> bool {
        store.holds(key) || self.written_to(store.id()).contains_key(key)
    }

    /// Returns true if the result of a write of this object is unknown, and this reconcile has not written it since.
    fn is_uncertain(&self, store: &Store, key: &ObjectKey) -> bool {
        self.stale.is_uncertain(store.id(), key) && !self.written_to(store.id()).contains_key(key)
    }

    /// Records that objects were read from the API server, so that the results of earlier writes are known.
    fn record_read(&self, store: &Store, at: impl Fn(&ObjectKey) -> bool) {
        for earlier in self.written().iter_mut().take(self.stale.unknown.len()) {
            let is_settled = |earlier: &RecordedWrite| earlier.write.store == store.id() && at(&earlier.write.object);
            if earlier.as_ref().is_some_and(is_settled) {
                *earlier = None;
            }
        }
    }

    /// Records that the reconcile relies on a state that the cache may not have yet. As after a write, the next
    /// reconcile must not read an older state.
    pub(crate) fn record_observed_state(&self, store: &Store, key: &ObjectKey, entry: &Arc<Entry>) {
        if store.get(key).is_none_or(|cached| cached.resource_version() < entry.resource_version()) {
            let number = self.note(store, key, None);
            self.record_effect(number, Effect::Version(entry.resource_version()), Some(entry.clone()));
        }
    }

    /// Lists a cache, or the API server in its place, together with the writes of this reconcile; for a partially
    /// cached kind, complete objects unless metadata is sufficient.
    pub(crate) fn latest_list<'a>(
        &'a self,
        store: &'a Store,
        namespace: Option<&'a str>,
        metadata: bool,
        cached: Box<dyn FnOnce(&Store) -> Entries + Send + 'a>,
    ) -> BoxFuture<'a, kube::Result<BTreeMap<ObjectKey, Arc<Entry>>>> {
        async move {
            let unsure = |store: &Store| self.stale.unknown.iter().any(|write| write.store == store.id());
            let known = match self.stale.stores.contains(&store.id()) || unsure(store) {
                true => None,
                false => Some(cached(store)),
            };
            let lacking = |known: &Vec<(_, Arc<Entry>)>| match metadata {
                true => 0,
                false => known.iter().filter(|(_, entry)| entry.is_withheld()).count(),
            };
            let found = match known {
                Some(known) if lacking(&known) <= MAX_SINGLE_READS => {
                    let mut found = Vec::new();
                    for (key, entry) in known {
                        let entry = match entry.is_withheld() && !metadata {
                            true => self
                                .env
                                .fetch(store.kind(), &key)
                                .await?
                                .inspect(|e| self.record_observed_state(store, &key, e)),
                            false => Some(entry),
                        };
                        found.extend(entry.map(|entry| (key, entry)));
                    }
                    found
                }
                _ => {
                    let (namespace, selection) = (namespace.or(store.namespace()), &store.cached_part().selection);
                    let found = self.env.fetch_list(store.kind(), namespace, selection).await?;
                    self.record_read(store, |object| {
                        namespace.is_none_or(|namespace| object.namespace() == Some(namespace))
                    });
                    found.iter().for_each(|(key, entry)| self.record_observed_state(store, key, entry));
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

    /// Sends a write, records its result and the changed fields, and returns the object in the response. `known` is
    /// the last known state.
    pub(crate) async fn write(
        &self,
        store: &Store,
        key: &ObjectKey,
        verb: WriteVerb,
        known: Option<&Arc<Entry>>,
        request: Request<Vec<u8>>,
    ) -> kube::Result<Arc<Entry>> {
        let owners = match self.reverted_fields(store, key, verb, known) {
            fields if fields.is_empty() => Vec::new(),
            fields => Box::pin(self.field_owners(store, key, &fields)).await,
        };
        let number = self.note(store, key, Some(verb));
        let response = self.env.client.exchange(request).await;
        let entry = response.and_then(|body| self.env.store_response(store, key, body));
        match &entry {
            Ok(entry) => {
                self.record_response(number, store, key, entry);
                let fields = self.compare(store, key, verb, known, entry, owners);
                if let Some(written) = &mut self.written()[number] {
                    written.fields = fields;
                }
            }
            Err(error) if client::is_ambiguous(error) => {}
            Err(_) => self.cancel(number),
        }
        entry
    }

    /// Records the object in the response to a request.
    pub(crate) fn record_response(&self, number: usize, store: &Store, key: &ObjectKey, entry: &Arc<Entry>) {
        tracing::debug!(resource = %store.kind(), object = %key, version = entry.resource_version(), "wrote");
        self.record_effect(number, Effect::Version(entry.resource_version()), Some(entry.clone()));
    }

    /// Records that a request is about to be sent. If the reconcile ends before the result is recorded, its effect is
    /// unknown.
    pub(crate) fn note(&self, store: &Store, key: &ObjectKey, verb: Option<WriteVerb>) -> usize {
        let before = store.get(key).map_or(0, |entry| entry.resource_version());
        let write = Write { store: store.id(), object: key.clone(), before, effect: Effect::Unknown };
        let mut written = self.written();
        written.push(Some(RecordedWrite { write, entry: None, verb, fields: ChangedFields::default() }));
        written.len() - 1
    }

    /// Records the effect of a request, which also settles earlier requests for the same object whose responses were
    /// lost.
    pub(crate) fn record_effect(&self, number: usize, effect: Effect, entry: Option<Arc<Entry>>) {
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

    /// Records that a request had no effect.
    pub(crate) fn cancel(&self, number: usize) {
        self.written()[number] = None;
    }

    /// Returns the number of writes so far.
    pub(crate) fn write_count(&self) -> usize {
        self.written().iter().flatten().count()
    }

    /// Returns the writes, and the reads and writes for the ledger, at the end of the reconcile.
    pub(crate) fn end(&self) -> (Vec<Write>, Accesses) {
        let mut accesses = take(&mut *self.accesses.lock());
        let written: Vec<RecordedWrite> = take(&mut *self.written()).into_iter().flatten().collect();
        if self.ledger.is_enabled() && !written.is_empty() {
            accesses.list_mut().writes.reserve_exact(written.len().min(MAX_WRITES));
        }
        let recorded = |RecordedWrite { write, verb, fields, .. }: RecordedWrite| {
            if let Some((verb, subresource)) = verb.filter(|_| self.ledger.is_enabled()) {
                let Write { store, object, before, effect } = write.clone();
                accesses.write(|| WriteRecord { store, object, verb, subresource, before, effect, fields });
            }
            write
        };
        let writes = written.into_iter().map(recorded).collect();
        (writes, accesses)
    }

    /// Records a read of objects of a kind for the ledger.
    fn record_access(&self, kind: &Kind, namespace: Option<&str>, is_cached: bool, read: impl FnOnce(Target) -> Read) {
        if !self.ledger.is_enabled() {
            return;
        }
        let store = is_cached.then(|| self.env.caches.store_of(kind, namespace).ok()).flatten();
        let target = || store.map_or_else(|| Target::Kind(kind.clone()), |store| Target::Store(store.id()));
        self.accesses.lock().read(|| read(target()));
    }

    /// Records a list of objects of a kind for the ledger.
    pub(crate) fn record_list(&self, kind: &Kind, namespace: Option<&str>, is_cached: bool, count: usize) {
        self.record_access(kind, namespace, is_cached && namespace.is_some(), |kind| {
            Read::List(kind, namespace.map(Into::into), count)
        });
    }

    /// Counts an apply that was not sent, since it would change nothing.
    pub(crate) fn count_skipped(&self) {
        let mut accesses = self.accesses.lock();
        accesses.skipped = accesses.skipped.saturating_add(1);
    }

    pub(crate) fn event(&self, event: Event) {
        let Primary { kind, key, entry } = &self.primary;
        self.env.recorder.record(kind, key, &entry.uid(), event, Some(self.id), self.now());
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

    fn written(&self) -> MutexGuard<'_, Vec<Option<RecordedWrite>>> {
        self.written.lock()
    }
}

impl fmt::Debug for ReconcileSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconcileSession")
            .field("primary", &self.primary)
            .field("stale", &self.stale)
            .finish_non_exhaustive()
    }
}
