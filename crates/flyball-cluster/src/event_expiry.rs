//! Deletes events an hour after their last write, as kube-apiserver does by its `--event-ttl`.
//!
//! Takes the time from the clock of the cluster, so that events of a fork expire when its time is stepped. An update of
//! an event starts its hour again. Deletions pass admission, unlike the expiry of leases in etcd: an event whose
//! deletion is denied stays, and the others are deleted. Invariant: while nothing expires, it sends at most one list an
//! hour.

use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp, saturating_add};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::sleep;

/// Lifetime of an event after its last write.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Shortest time between two lists.
const MIN_INTERVAL: Duration = Duration::from_secs(60);
/// Number of events in one response.
const PAGE_SIZE: u32 = 500;

/// Deletes expired events until the future is dropped.
pub(crate) async fn run(client: Client, clock: Clock) {
    let mut interval = MIN_INTERVAL;
    loop {
        sleep(interval).await;
        interval = match delete_expired(&client, &clock).await {
            Ok(next) => time_until(next, clock.now()),
            Err(error) => {
                tracing::warn!(%error, "failed to delete expired events; the next attempt is in a minute");
                MIN_INTERVAL
            }
        };
    }
}

/// Returns the time to wait until an event may expire. A new one does not expire earlier than in an hour.
fn time_until(next: Option<Timestamp>, now: Timestamp) -> Duration {
    let rest = next.map_or(LIFETIME, |next| next.duration_since(now));
    rest.clamp(SignedDuration::ZERO, LIFETIME).unsigned_abs().max(MIN_INTERVAL)
}

/// Deletes the expired events, and returns the time at which the next one expires.
///
/// # Errors
///
/// The first error of a deletion, after the other events were deleted, or that of a list.
async fn delete_expired(client: &Client, clock: &Clock) -> kube::Result<Option<Timestamp>> {
    let events = Api::<Event>::all(client.clone());
    let mut page = ListParams::default().limit(PAGE_SIZE);
    let (mut next, mut failure): (Option<Timestamp>, _) = (None, None);
    loop {
        let list = events.list_metadata(&page).await?;
        for event in &list.items {
            match expiry(&event.metadata, clock.now()) {
                Some(at) if at <= clock.now() => failure = failure.or(delete(client, &event.metadata).await.err()),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return failure.map_or(Ok(next), Err),
        }
    }
}

/// Returns the time at which an event expires: an hour after its last write, which is that of its newest manager.
/// Clients may set the times of managers, so those in the future do not count.
fn expiry(metadata: &ObjectMeta, now: Timestamp) -> Option<Timestamp> {
    let written = metadata.managed_fields.iter().flatten().filter_map(|entry| entry.time.as_ref());
    let times = metadata.creation_timestamp.iter().chain(written).map(|time| time.0);
    let last = times.filter(|time| *time <= now).max()?;
    Some(saturating_add(last, LIFETIME))
}

/// Deletes an event, unless it was written again or deleted meanwhile.
async fn delete(client: &Client, metadata: &ObjectMeta) -> kube::Result<()> {
    let ObjectMeta { name, namespace, uid, resource_version, .. } = metadata.clone();
    let preconditions = Some(Preconditions { uid, resource_version });
    let events = Api::<Event>::namespaced(client.clone(), namespace.as_deref().unwrap_or_default());
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match events.delete(name.as_deref().unwrap_or_default(), &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        deleted => deleted.map(drop),
    }
}
