//! Watches of a cluster that feed the collector, and the loop that stores its gauges.

use super::{Collector, Event};
use crate::meter::Subject;
use crate::observation::{Observation, OwnerReference, short};
use crate::store::{self, Gauge, STATE, Store};
use flyball::{Client, Clock, Kind, Resource, Rng, WatchEvent};
use futures_util::future::join_all;
use http::Request;
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::discovery::{Scope, pinned_kind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Interval at which gauges are stored.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time between two attempts to store gauges.
const MAX_FLUSH_BACKOFF: Duration = Duration::from_secs(60);
/// Gauges that wait while they cannot be stored. With more, the watch fails: at the next start, all objects are listed.
const MAX_PENDING_GAUGES: usize = 500_000;
/// Seconds after which the time of completeness is stored, if nothing else changes.
const PROGRESS_SECONDS: i64 = 10;
/// Timeout of reading an owner.
const OWNER_TIMEOUT: Duration = Duration::from_secs(5);
/// Owners that are read at a time.
const MAX_OWNER_READS: usize = 16;
/// Times that owners are read between two flushes.
const MAX_OWNER_ROUNDS: usize = 64;
/// Kinds of owners that are remembered.
const MAX_KINDS: usize = 1000;
/// Kinds of workloads between custom resources and pods.
pub(super) const WORKLOADS: [(&str, &str, &str); 6] = [
    ("apps", "v1", "ReplicaSet"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "DaemonSet"),
    ("batch", "v1", "Job"),
    ("batch", "v1", "CronJob"),
];

/// The owners that may be read, to find their own owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadableOwners {
    /// All that the rights of the client allow.
    All,
    /// Resources of these kinds, as `etcdclusters.example.com`. Others count as roots.
    Resources(Vec<String>),
}

/// Discovered kinds of owners by API version and kind, and whether they may be read.
type OwnerKinds = BTreeMap<(String, String), (ApiResource, bool)>;

impl ReadableOwners {
    fn contains(&self, resource: &ApiResource) -> bool {
        match self {
            Self::All => true,
            Self::Resources(names) => names.contains(&format!("{}.{}", resource.plural, resource.group)),
        }
    }
}

/// A collector that watches a cluster. Clones share it.
#[derive(Clone)]
pub struct Collection {
    /// The state.
    pub collector: Arc<Mutex<Collector>>,
    clock: Clock,
    readable: Arc<ReadableOwners>,
    /// Workload kinds whose objects are all known.
    workloads: Arc<AtomicUsize>,
    /// Time up to which the store was last complete.
    stored_until: Arc<AtomicI64>,
    /// Gauges that could not be stored yet.
    pending: Arc<Mutex<Vec<Gauge>>>,
    /// Discovered kinds of owners, by API version and kind.
    kinds: Arc<Mutex<OwnerKinds>>,
}

impl Collection {
    /// Creates a collection.
    pub fn new(collector: Collector, clock: Clock, readable: ReadableOwners) -> Self {
        let (collector, readable) = (Arc::new(Mutex::new(collector)), Arc::new(readable));
        Self {
            collector,
            clock,
            readable,
            workloads: Arc::default(),
            stored_until: Arc::default(),
            pending: Arc::default(),
            kinds: Arc::default(),
        }
    }

    /// Restores the state of a store.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub fn restore(&self, store: &Store) -> store::Result<()> {
        let (open, ended, complete) = (store.open_gauges()?, store.ends_of_pods()?, store.progress(STATE)?);
        self.collector.lock().restore(open, ended, complete);
        Ok(())
    }

    /// Returns true if all existing objects are known.
    pub fn is_synced(&self) -> bool {
        self.has_owners() && self.collector.lock().is_synced()
    }

    /// Returns true if all existing workloads are known.
    fn has_owners(&self) -> bool {
        self.workloads.load(Ordering::Acquire) >= WORKLOADS.len()
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    /// Returns the callback of a watch of objects.
    fn on_event<T: Resource>(
        &self,
        subject: Subject,
        observe: fn(&T, i64) -> Observation,
    ) -> impl FnMut(WatchEvent<T>) + Send + 'static {
        let this = self.clone();
        move |event| {
            let now = this.now();
            let mut collector = this.collector.lock();
            match event {
                WatchEvent::Applied(_, object) => {
                    let observed = observe(&object, now);
                    let uid = observed.uid.clone();
                    collector.add(subject, &uid, now, Event::Observed(Box::new(observed)));
                }
                WatchEvent::Deleted { uid, .. } => collector.add(subject, &uid, now, Event::Deleted),
                WatchEvent::Synced => collector.synced(subject),
                _ => {}
            }
        }
    }

    /// Returns the callback of a watch of owners.
    fn on_owner(&self) -> impl FnMut(WatchEvent) + Send + 'static {
        let this = self.clone();
        let mut is_synced = false;
        move |event| match event {
            WatchEvent::Applied(_, metadata) => {
                let uid = metadata.uid.clone().unwrap_or_default();
                this.collector.lock().owners.insert(&uid, controller(&metadata));
            }
            WatchEvent::Deleted { uid, .. } => this.collector.lock().owners.remove(&uid),
            WatchEvent::Synced if !is_synced => {
                is_synced = true;
                this.workloads.fetch_add(1, Ordering::AcqRel);
            }
            _ => {}
        }
    }

    /// Stores what was collected until now. [`watch`] does so for the last time some seconds before it is dropped.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub fn store_last(&self, store: &Store) -> store::Result<()> {
        self.stored_until.store(0, Ordering::Relaxed);
        self.flush(store)
    }

    /// Stores what was collected, and up to which time it is complete. If it fails, the gauges remain pending.
    fn flush(&self, store: &Store) -> store::Result<()> {
        let (now, has_owners) = (self.now(), self.has_owners());
        let mut pending = self.pending.lock();
        let complete = {
            let mut collector = self.collector.lock();
            pending.append(&mut collector.drain(now, has_owners));
            collector.complete_until(now).filter(|_| has_owners)
        };
        store.set_gauges(&pending)?;
        let gauges = std::mem::take(&mut *pending);
        let stored = self.stored_until.load(Ordering::Relaxed);
        let is_due = |complete: &i64| !gauges.is_empty() || *complete >= stored + PROGRESS_SECONDS;
        if let Some(complete) = complete.filter(is_due) {
            store.set_progress(STATE, complete)?;
            self.stored_until.store(complete, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads some unknown owners, and returns true if there were any. One that cannot be read is a root.
    pub(super) async fn read_owners(&self, client: &Client) -> bool {
        let unknown = self.collector.lock().unknown_owners();
        // Workloads arrive by their watches.
        let custom = unknown.into_iter().filter(|(_, owner)| super::is_custom(&owner.group)).take(MAX_OWNER_READS);
        let reads = custom.map(|(namespace, owner)| async move {
            let read = timeout(OWNER_TIMEOUT, self.read_owner(client, &namespace, &owner)).await;
            let found = read.unwrap_or(None).and_then(|metadata| controller(&metadata));
            (owner.uid, found)
        });
        let found = join_all(reads).await;
        for (uid, found) in &found {
            self.collector.lock().owners.insert(uid, found.clone());
        }
        !found.is_empty()
    }

    /// Returns the resource of a kind, and true if it is namespaced.
    async fn kind(&self, client: &Client, owner: &OwnerReference) -> Option<(ApiResource, bool)> {
        let key = (owner.api_version.clone(), owner.kind.clone());
        if let Some(known) = self.kinds.lock().get(&key) {
            return Some(known.clone());
        }
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let (resource, capabilities) =
            pinned_kind(client, &GroupVersionKind::gvk(group, version, &owner.kind)).await.ok()?;
        let is_namespaced = matches!(capabilities.scope, Scope::Namespaced);
        if !is_namespaced {
            self.collector.lock().owners.set_cluster_scoped(group, &owner.kind);
        }
        let mut kinds = self.kinds.lock();
        if kinds.len() >= MAX_KINDS {
            kinds.clear();
        }
        kinds.insert(key, (resource.clone(), is_namespaced));
        Some((resource, is_namespaced))
    }

    /// Reads the metadata of an owner, none if it does not exist or may not be read.
    async fn read_owner(&self, client: &Client, namespace: &str, owner: &OwnerReference) -> Option<ObjectMeta> {
        let (resource, is_namespaced) = self.kind(client, owner).await?;
        if !self.readable.contains(&resource) {
            return None;
        }
        let path = <DynamicObject as kube::Resource>::url_path(&resource, is_namespaced.then_some(namespace));
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let is_valid = flyball_core::names::is_path_segment(&owner.name);
        let request = Request::get(format!("{path}/{}", owner.name)).header(ACCEPT, accept).body(Vec::new());
        let object: PartialObjectMeta = client.request(request.ok().filter(|_| is_valid)?).await.ok()?;
        (object.metadata.uid.as_deref() == Some(&owner.uid)).then_some(object.metadata)
    }
}

impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collection")
    }
}

/// Watches a cluster until it is dropped, and stores gauges. `on_flush` is called after each time they were stored.
///
/// # Errors
///
/// If the store still fails when `on_flush` returns false, or when too much waits for it.
pub async fn watch(
    client: Client,
    rng: &Rng,
    collection: &Collection,
    store: Option<&Store>,
    mut on_flush: impl FnMut() -> bool,
) -> store::Result<()> {
    let workloads = WORKLOADS.map(|(group, version, kind)| Kind::new(group, version, kind));
    let owners =
        join_all(workloads.iter().map(|kind| flyball::watch(client.clone(), kind, rng, collection.on_owner())));
    let store_gauges = async {
        let mut interval = FLUSH_INTERVAL;
        loop {
            sleep(interval).await;
            for _ in 0..MAX_OWNER_ROUNDS {
                if !collection.read_owners(&client).await {
                    break;
                }
            }
            let flushed = match store {
                Some(store) => collection.flush(store),
                None => {
                    drop(collection.collector.lock().drain(collection.now(), collection.has_owners()));
                    Ok(())
                }
            };
            let goes_on = on_flush();
            match flushed {
                Ok(()) if goes_on => interval = FLUSH_INTERVAL,
                Err(error) if goes_on && collection.pending.lock().len() <= MAX_PENDING_GAUGES => {
                    interval = (interval * 2).min(MAX_FLUSH_BACKOFF);
                    let cause = error.source().map(ToString::to_string);
                    tracing::warn!(%error, cause, "cannot store what was collected: it is tried again");
                }
                done => return done,
            }
        }
    };
    let pods = collection.on_event::<Pod>(Subject::Pod, Observation::of_pod);
    let claims = collection.on_event::<PersistentVolumeClaim>(Subject::Claim, Observation::of_claim);
    let nodes = collection.on_event::<Node>(Subject::Node, Observation::of_node);
    tokio::select! {
        biased;
        done = store_gauges => done,
        () = flyball::watch_objects(client.clone(), rng, pods) => Ok(()),
        () = flyball::watch_objects(client.clone(), rng, claims) => Ok(()),
        () = flyball::watch_objects(client.clone(), rng, nodes) => Ok(()),
        _ = owners => Ok(()),
    }
}

/// Returns the controller of an object.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<OwnerReference> {
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    Some(OwnerReference {
        group: short(owner.api_version.split_once('/').map_or("", |(group, _)| group)),
        api_version: short(&owner.api_version),
        kind: short(&owner.kind),
        name: short(&owner.name),
        uid: short(&owner.uid),
        is_controller: true,
    })
}
