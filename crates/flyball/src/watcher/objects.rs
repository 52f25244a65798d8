//! Watches of all objects of a kind for a callback, without a cache: of metadata, or of whole objects.

use super::WatchCounters;
use super::{Reachability, Watcher};
use crate::cache::{CachedPart, Change, DecodedEntry, Entry, KeptFields, Listener, Store, StoreId};
use crate::kind::{Kind, Resource};
use flyball_core::{ObjectKey, Rng};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// An event of [`watch`] or [`watch_objects`], with the metadata of an object or the whole object.
#[doc(alias = "Event")]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WatchEvent<T = ObjectMeta> {
    /// An object was created or updated, or exists when the watch starts.
    Applied(ObjectKey, Box<T>),
    /// The object was deleted.
    Deleted {
        /// Namespace and name of the object.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// All existing objects have been delivered. Sent again after each further list.
    Synced,
}

/// Watches the metadata of all objects of a kind and calls `on` for each event. Never returns.
/// Whole objects are not transferred.
///
/// It recovers from every error, as the watches of an [`Operator`](crate::Operator) do: no event is delivered twice,
/// an object that was deleted during an interruption is delivered as deleted, and so is an object that was replaced by
/// one of the same name. Dropping the future ends the watch.
///
/// ```
/// use flyball::{Kind, Rng, WatchEvent, watch};
/// use std::collections::BTreeSet;
///
/// async fn count_pods(client: kube::Client) {
///     let mut pods = BTreeSet::new();
///     let on = move |event| match event {
///         WatchEvent::Applied(key, _) => drop(pods.insert(key)),
///         WatchEvent::Deleted { key, .. } => drop(pods.remove(&key)),
///         WatchEvent::Synced => println!("{} pods", pods.len()),
///         _ => {}
///     };
///     watch(client, &Kind::new("", "v1", "Pod"), &Rng::from_os(), on).await;
/// }
/// ```
#[doc(alias = "metadata_watcher")]
pub async fn watch(client: kube::Client, kind: &Kind, rng: &Rng, on: impl FnMut(WatchEvent) + Send + 'static) {
    let decode = |entry: &Entry| entry.decode::<PartialObjectMeta>().map(|object| object.metadata);
    let metadata = CachedPart { kept: KeptFields::Metadata, ..CachedPart::default() };
    let (store, writer) = Store::of(0, kind.clone(), None, metadata.into());
    let mut writer = writer.of_identities();
    writer.subscribe(Arc::new(EventListener { decode, on: Mutex::new(Box::new(on)) }));
    drop(store);
    Watcher::new(client, Arc::<Reachability>::default(), writer, "".into(), rng, WatchCounters::default()).run().await;
}

/// Watches all objects of a kind and calls `on` for each event, as [`watch`] does for metadata. Never returns.
///
/// Intended for programs that need all objects at any time, such as a scheduler, instead of individual objects.
/// Objects that do not decode are skipped and logged.
#[doc(alias = "watcher")]
pub async fn watch_objects<T: Resource>(
    client: kube::Client,
    rng: &Rng,
    on: impl FnMut(WatchEvent<T>) + Send + 'static,
) {
    let (store, writer) = Store::new(0, Kind::of::<T>(), None);
    let mut writer = writer.of_identities();
    writer.subscribe(Arc::new(EventListener { decode: |entry| entry.decode::<T>(), on: Mutex::new(Box::new(on)) }));
    drop(store);
    Watcher::new(client, Arc::<Reachability>::default(), writer, "".into(), rng, WatchCounters::default()).run().await;
}

struct EventListener<T> {
    decode: fn(&Entry) -> serde_json::Result<T>,
    on: Mutex<Box<dyn FnMut(WatchEvent<T>) + Send>>,
}

impl<T> EventListener<T> {
    fn emit(&self, event: WatchEvent<T>) {
        self.on.lock()(event);
    }

    fn read(&self, key: &ObjectKey, entry: &Entry) -> Option<Box<T>> {
        let decoded = (self.decode)(entry);
        if let Err(error) = &decoded {
            tracing::warn!(%key, %error, "cannot decode object; skipping it");
        }
        decoded.ok().map(Box::new)
    }
}

impl<T: Send> Listener for EventListener<T> {
    fn changed(&self, change: &Change<'_>) {
        let replaced = |old: &&DecodedEntry<'_>| change.new.is_none_or(|new| new.uid() != old.uid());
        if let Some(old) = change.old.filter(replaced) {
            self.emit(WatchEvent::Deleted { key: change.key.clone(), uid: old.uid().into_owned() });
        }
        if let Some(new) = change.new.and_then(|new| self.read(change.key, new)) {
            self.emit(WatchEvent::Applied(change.key.clone(), new));
        }
    }

    fn observed(&self, _: StoreId, _: u64) {}

    fn listed(&self, _: &Store, _: u64) {
        self.emit(WatchEvent::Synced);
    }
}

impl<T> fmt::Debug for EventListener<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventListener")
    }
}
