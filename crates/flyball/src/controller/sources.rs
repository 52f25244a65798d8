//! The mapping from changes of objects to keys.

use super::admission::Admission;
use super::predicate::Filter;
use super::unconfirmed::Unconfirmed;
use crate::cache::{Caches, Change, DecodedEntry, Entry, IndexId, Listener, Origin, Store, StoreId};
use crate::error::Result;
use crate::kind::{AnyResource, Kind};
use crate::ledger::{FilteredChange, Ledger};
use crate::panics::guarded;
use crate::queue::{Cause, Priority, Queue, Trigger};
use flyball_core::{Clock, ObjectKey, Rng};
use prometheus_client::metrics::counter::Counter;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// A mapping from an object to keys.
#[derive(Clone)]
pub(crate) enum Map {
    /// The object itself.
    Primary,
    /// Its owner.
    Owner,
    /// The result of a function of the old and of the new state.
    Custom(Arc<MapFn>),
    /// The result of a function of the key.
    ByKey(Arc<KeyFn>),
    /// The result of a function of the change.
    Changed(Arc<ChangeFn>),
    /// The objects that refer to it, by an index.
    Referrers(IndexId),
}

type MapFn = dyn Fn(&DecodedEntry<'_>, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync;
type KeyFn = dyn Fn(&ObjectKey, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync;
type ChangeFn =
    dyn Fn(Option<&DecodedEntry<'_>>, Option<&DecodedEntry<'_>>, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync;

/// The change of an object that a cache observed; see
/// [`Controller::watches_changes`](crate::Controller::watches_changes).
///
/// After an interruption, a cache observes several updates as one, and an object that was deleted and created again as
/// an update with another UID.
#[doc(alias = "CreateEvent")]
#[doc(alias = "UpdateEvent")]
#[doc(alias = "DeleteEvent")]
#[doc(alias = "EventHandler")]
#[derive(Debug)]
pub enum ObjectChange<'a, T> {
    /// The object was created, or existed when the cache was filled.
    Created(&'a T),
    /// The object was updated.
    Updated {
        /// The previous state.
        old: &'a T,
        /// The new state.
        new: &'a T,
    },
    /// The object was deleted; this is its last known state.
    Deleted(&'a T),
}

impl<T: AnyResource> ObjectChange<'_, T> {
    /// Calls `look` with the old and new state of an object; `None` if there is neither.
    pub(super) fn show<R>(
        old: Option<&DecodedEntry<'_>>,
        new: Option<&DecodedEntry<'_>>,
        look: impl FnOnce(ObjectChange<'_, T>) -> R,
    ) -> Result<Option<R>> {
        Ok(match (old, new) {
            (None, None) => None,
            (None, Some(new)) => Some(new.decoded(|new| look(ObjectChange::Created(new)))?),
            (Some(old), None) => Some(old.decoded(|old| look(ObjectChange::Deleted(old)))?),
            (Some(old), Some(new)) => {
                Some(old.decoded(|old| new.decoded(|new| look(ObjectChange::Updated { old, new })))??)
            }
        })
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "Primary",
            Self::Owner => "Owner",
            Self::Custom(_) => "Custom",
            Self::ByKey(_) => "ByKey",
            Self::Changed(_) => "Changed",
            Self::Referrers(_) => "Referrers",
        })
    }
}

/// A listener that maps changes in caches to keys in the queue of a controller.
#[derive(Debug)]
pub(crate) struct Sources {
    controller: String,
    queue: Arc<Queue>,
    caches: Arc<Caches>,
    primary: Kind,
    primaries: Vec<Arc<Store>>,
    maps: BTreeMap<StoreId, Vec<Map>>,
    filters: BTreeMap<StoreId, Vec<Filter>>,
    unmapped: UnmappedChanges,
    /// The keys that wait for memory.
    pub(super) admission: Option<Arc<Admission>>,
    pub(super) unconfirmed: Arc<Unconfirmed>,
    /// The ledger, with the clock for its times.
    pub(super) ledger: Option<(Arc<Ledger>, Clock)>,
}

/// Changes that could not be mapped.
#[derive(Debug)]
struct UnmappedChanges {
    errors: Counter,
    /// Notified of such changes; several notifications before the listener runs count as one.
    notify: Notify,
}

/// Interval at which all objects are triggered after changes that could not be mapped.
const UNMAPPED_PERIOD: Duration = Duration::from_secs(60);

impl Sources {
    /// Connects the caches with a queue; each map and filter belongs to a kind.
    pub(crate) fn new(
        controller: String,
        queue: Arc<Queue>,
        caches: Arc<Caches>,
        primary: Kind,
        maps: &[(Kind, Map)],
        filters: &[(Kind, Filter)],
        map_errors: Counter,
    ) -> Self {
        let by_store = |store: &Arc<Store>, kind: &Kind| store.kind() == kind;
        let mut sources = Self {
            primaries: caches.stores().iter().filter(|store| by_store(store, &primary)).cloned().collect(),
            controller,
            queue,
            caches: caches.clone(),
            primary,
            maps: BTreeMap::new(),
            filters: BTreeMap::new(),
            unmapped: UnmappedChanges { errors: map_errors, notify: Notify::new() },
            admission: None,
            unconfirmed: Arc::default(),
            ledger: None,
        };
        for store in caches.stores() {
            for (_, map) in maps.iter().filter(|(kind, _)| by_store(store, kind)) {
                sources.maps.entry(store.id()).or_default().push(map.clone());
            }
            for (_, filter) in filters.iter().filter(|(kind, _)| by_store(store, kind)) {
                sources.filters.entry(store.id()).or_default().push(filter.clone());
            }
        }
        sources
    }

    /// Triggers objects that exist.
    pub(super) fn wake(&self, keys: Vec<ObjectKey>, priority: Priority, cause: Cause) {
        for key in keys.iter().filter(|key| self.exists(key)) {
            tracing::debug!(controller = self.controller, %key, "enqueued");
            self.queue.add(key, priority, cause.clone());
        }
    }

    /// Returns true if there are mapping functions, which may fail.
    pub(super) fn may_fail(&self) -> bool {
        let may_fail = |map: &Map| matches!(map, Map::Custom(_) | Map::ByKey(_) | Map::Changed(_));
        self.maps.values().flatten().any(may_fail)
    }

    /// Triggers all objects in the background after a change that could not be mapped, at most once per interval.
    pub(super) async fn wake_for_unmapped(&self, rng: &Rng) {
        loop {
            self.unmapped.notify.notified().await;
            self.wake(self.keys_of_all(), Priority::Background, Cause::UnmappedChange);
            sleep(UNMAPPED_PERIOD.mul_f64(0.9 + rng.fraction() / 5.0)).await;
        }
    }

    /// Returns the keys of all objects that are reconciled.
    pub(super) fn keys_of_all(&self) -> Vec<ObjectKey> {
        self.primaries.iter().flat_map(|store| store.keys(None)).collect()
    }

    fn exists(&self, key: &ObjectKey) -> bool {
        self.primaries.iter().any(|store| store.holds(key))
    }

    /// Returns the keys that a change triggers.
    fn keys(&self, map: &Map, change: &Change<'_>) -> BTreeSet<ObjectKey> {
        let states = || [change.old, change.new].into_iter().flatten();
        let found = |map: &dyn Fn() -> Result<Vec<ObjectKey>>| {
            let (controller, key) = (&self.controller, change.key);
            let mapped = guarded(format_args!("a mapping function of controller {controller}, change of {key}"), map);
            mapped.and_then(|keys| keys).unwrap_or_else(|error| {
                tracing::warn!(controller, %key, %error, "cannot map a change, reconciling all objects");
                self.unmapped.errors.inc();
                self.unmapped.notify.notify_one();
                Vec::new()
            })
        };
        let mut keys: BTreeSet<ObjectKey> = match map {
            Map::Primary => return [change.key.clone()].into(),
            Map::Owner => states().filter_map(|state| self.owner(change.key, state)).collect(),
            Map::Referrers(index) => {
                self.primaries.iter().flat_map(|store| store.keys_by(index, change.key).unwrap_or_default()).collect()
            }
            Map::ByKey(map) => found(&|| map(change.key, &self.caches)).into_iter().collect(),
            Map::Custom(map) => states().flat_map(|state| found(&|| map(state, &self.caches))).collect(),
            Map::Changed(map) => found(&|| map(change.old, change.new, &self.caches)).into_iter().collect(),
        };
        // Only keys of existing objects enter the queue, so that it is bounded by the cache. Objects that are created
        // later are reconciled because of their creation.
        keys.retain(|key| self.exists(key));
        keys
    }

    /// Records a change that does not pass the filters.
    fn record_filtered(&self, change: &Change<'_>) {
        let Some((ledger, clock)) = &self.ledger else { return };
        let version = |entry: Option<&DecodedEntry<'_>>| entry.map_or(0, |entry| entry.resource_version());
        let (before, after, object) = (version(change.old), version(change.new), change.key.clone());
        ledger.record_filtered(FilteredChange { store: change.store, object, before, after, at: clock.now() });
    }

    fn owner(&self, key: &ObjectKey, entry: &Entry) -> Option<ObjectKey> {
        let owner = entry.controller()?;
        let gvk = self.primary.gvk();
        let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let namespace = key.namespace().filter(|_| self.primary.is_namespaced());
        (*owner.kind == *gvk.kind && *group == *gvk.group).then(|| ObjectKey::new(namespace, &owner.name))
    }
}

impl Listener for Sources {
    fn changed(&self, change: &Change<'_>) {
        let (old, new) = (change.old, change.new);
        let going = new.is_none_or(|new| new.is_deleting());
        if let (true, Some(entry)) = (going, new.or(old)) {
            self.queue.deleted(change.store, change.key, &entry.uid());
        }
        let Some(maps) = self.maps.get(&change.store) else { return };
        let passes = self.filters.get(&change.store).into_iter().flatten().all(|filter| filter.passes(old, new));
        if !passes {
            self.record_filtered(change);
        }
        // Changes during a pause may not have been reconciled.
        let goes_on = || old.is_some_and(|old| old.is_paused()) && new.is_some_and(|new| !new.is_paused());
        for map in maps {
            if let (Map::Primary, None) = (map, new) {
                self.queue.forget(change.key);
                self.unconfirmed.forget(change.key);
                if let Some(admission) = &self.admission {
                    admission.forget(change.key);
                }
                continue;
            }
            if let (Map::Owner, None) = (map, new) {
                self.keys(map, change).iter().for_each(|key| self.unconfirmed.insert(key));
            }
            let triggers = passes || (matches!(map, Map::Primary) && goes_on());
            if !triggers {
                continue;
            }
            let keys = self.keys(map, change);
            let priority = if change.origin == Origin::FirstList { Priority::Background } else { Priority::Fresh };
            for key in keys {
                tracing::debug!(
                    controller = self.controller,
                    %key,
                    resource = %self.caches.stores()[change.store].kind(),
                    object = %change.key,
                    before = old.map(|old| old.resource_version()),
                    version = new.map(|new| new.resource_version()),
                    "changed",
                );
                let version = |entry: &Entry| entry.resource_version();
                let trigger = Trigger {
                    store: change.store,
                    object: change.key.clone(),
                    before: old.map_or(0, |old| version(old)),
                    version: new.map_or(0, |new| version(new)),
                };
                match (change.origin, new) {
                    (Origin::Watch, Some(_)) => self.queue.trigger(&key, trigger, priority),
                    (Origin::FirstList, _) => self.queue.add(&key, priority, Cause::Start),
                    // A deletion is never an echo, even if it was requested, since it may have been delayed. And a
                    // list may combine several changes, own and foreign ones.
                    _ => self.queue.add(&key, priority, Cause::Change(trigger)),
                }
            }
        }
    }

    fn observed(&self, store: StoreId, revision: u64) {
        self.queue.observed(store, revision);
    }

    fn listed(&self, store: &Store, revision: u64) {
        if store.kind() == &self.primary {
            self.unconfirmed.listed(store.id(), revision);
        }
        self.queue.listed(store.id(), revision, |object, uid| store.is_gone(object, uid));
    }
}
