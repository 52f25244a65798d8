//! Follows a kind for whoever keeps a picture of its own: by metadata, where the kind is known at run time only, or by
//! whole objects.

use super::WatchCounters;
use super::{Reachability, Watcher};
use crate::cache::{Change, Entry, Kept, Listener, Portion, Shown, Store, StoreId};
use crate::kind::{Kind, Resource};
use flyball_core::{GroupResource, GroupVersionKind, ObjectKey, Rng};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What [`follow`] and [`follow_objects`] tell: of metadata, or of whole objects.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Seen<T = ObjectMeta> {
    /// An object came or changed.
    Present(ObjectKey, Box<T>),
    /// The object with this UID went.
    Gone(ObjectKey, String),
    /// Everything that there is has been told once. Said again after each list that made up for a break.
    Synced,
}

/// Follows all objects of a kind for ever, and tells `on` what becomes of them; only their metadata is transferred.
///
/// It recovers from whatever ends the watch, as the watches of an [`Operator`](crate::Operator) do: nothing is told
/// twice, an object that went during a break is told as gone, and an object that was replaced by one of the same name is
/// told as gone first. Dropping the future ends it.
///
/// ```
/// use flyball::{GroupResource, GroupVersionKind, Rng, Seen, follow};
/// use std::collections::BTreeSet;
///
/// async fn tell_of_pods(client: kube::Client) {
///     let (kind, resource) = (GroupVersionKind::new("", "v1", "Pod"), GroupResource::new("", "pods"));
///     let mut there = BTreeSet::new();
///     let tell = move |seen| match seen {
///         Seen::Present(key, _) => drop(there.insert(key)),
///         Seen::Gone(key, _) => drop(there.remove(&key)),
///         Seen::Synced => println!("{} pods", there.len()),
///         _ => {}
///     };
///     follow(client, kind, resource, &Rng::from_os(), tell).await;
/// }
/// ```
pub async fn follow(
    client: kube::Client,
    kind: GroupVersionKind,
    resource: GroupResource,
    rng: &Rng,
    on: impl FnMut(Seen) + Send + 'static,
) {
    let decode = |entry: &Entry| entry.decode::<PartialObjectMeta>().map(|object| object.metadata);
    let metadata = Portion { kept: Kept::Metadata, ..Portion::default() };
    let (store, writer) = Store::of(0, Kind::named(kind, resource, false), None, metadata.into());
    let mut writer = writer.of_identities();
    writer.subscribe(Arc::new(Teller { decode, on: Mutex::new(Box::new(on)) }));
    drop(store);
    Watcher::new(client, Arc::<Reachability>::default(), writer, "".into(), rng, WatchCounters::default()).run().await;
}

/// Follows all objects of a kind for ever, and tells `on` what becomes of them, as [`follow`] does.
///
/// It is for controllers that need a picture of the whole at any time, such as a scheduler, and not one object after the
/// other. An object that does not decode is passed over and logged.
pub async fn follow_objects<T: Resource>(client: kube::Client, rng: &Rng, on: impl FnMut(Seen<T>) + Send + 'static) {
    let (store, writer) = Store::new(0, Kind::of::<T>(), None);
    let mut writer = writer.of_identities();
    writer.subscribe(Arc::new(Teller { decode: |entry| entry.decode::<T>(), on: Mutex::new(Box::new(on)) }));
    drop(store);
    Watcher::new(client, Arc::<Reachability>::default(), writer, "".into(), rng, WatchCounters::default()).run().await;
}

struct Teller<T> {
    decode: fn(&Entry) -> serde_json::Result<T>,
    on: Mutex<Box<dyn FnMut(Seen<T>) + Send>>,
}

impl<T> Teller<T> {
    fn tell(&self, seen: Seen<T>) {
        self.on.lock().unwrap_or_else(PoisonError::into_inner)(seen);
    }

    fn read(&self, key: &ObjectKey, entry: &Entry) -> Option<Box<T>> {
        let decoded = (self.decode)(entry);
        if let Err(error) = &decoded {
            tracing::warn!(%key, %error, "an object does not decode and is passed over");
        }
        decoded.ok().map(Box::new)
    }
}

impl<T: Send> Listener for Teller<T> {
    fn changed(&self, change: &Change<'_>) {
        let replaced = |old: &&Shown<'_>| change.new.is_none_or(|new| new.uid() != old.uid());
        if let Some(old) = change.old.filter(replaced) {
            self.tell(Seen::Gone(change.key.clone(), old.uid().into_owned()));
        }
        if let Some(new) = change.new.and_then(|new| self.read(change.key, new)) {
            self.tell(Seen::Present(change.key.clone(), new));
        }
    }

    fn seen(&self, _: StoreId, _: u64) {}

    fn listed(&self, _: &Store, _: u64) {
        self.tell(Seen::Synced);
    }
}

impl<T> fmt::Debug for Teller<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}
