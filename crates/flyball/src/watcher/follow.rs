//! Follows a kind that is known at run time only, by the metadata of its objects.

use super::Watcher;
use crate::cache::{Change, Listener, Shown, Store, StoreId};
use crate::kind::Kind;
use crate::operator::metrics::WatchMetrics;
use flyball_core::{GroupResource, GroupVersionKind, ObjectKey, Rng};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What [`follow`] tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Seen {
    /// An object came or changed.
    Present(ObjectKey, Box<ObjectMeta>),
    /// An object went; this was its last known metadata.
    Gone(ObjectKey, Box<ObjectMeta>),
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
    let (store, mut writer) = Store::new(0, Kind::new(kind, resource, false), None);
    writer.subscribe(Arc::new(Teller(Mutex::new(Box::new(on)))));
    drop(store);
    Watcher::new(client, writer, "".into(), rng, WatchMetrics::default()).metadata_only().run().await;
}

struct Teller(Mutex<Box<dyn FnMut(Seen) + Send>>);

impl Teller {
    fn tell(&self, seen: Seen) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)(seen);
    }
}

impl Listener for Teller {
    fn changed(&self, change: &Change<'_>) {
        let meta = |entry: &crate::cache::Entry| match entry.decode::<PartialObjectMeta>() {
            Ok(object) => Some(Box::new(object.metadata)),
            Err(error) => {
                tracing::warn!(key = %change.key, %error, "metadata does not decode and is passed over");
                None
            }
        };
        let replaced = |old: &&Shown<'_>| change.new.is_none_or(|new| new.uid() != old.uid());
        if let Some(old) = change.old.filter(replaced).and_then(|old| meta(old)) {
            self.tell(Seen::Gone(change.key.clone(), old));
        }
        if let Some(new) = change.new.and_then(|new| meta(new)) {
            self.tell(Seen::Present(change.key.clone(), new));
        }
    }

    fn seen(&self, _: StoreId, _: u64) {}

    fn listed(&self, _: &Store, _: u64) {
        self.tell(Seen::Synced);
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}
