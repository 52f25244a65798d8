//! Exponential back-off of replacements of failed daemon pods, per node.

use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

const INITIAL_BACKOFF: SignedDuration = SignedDuration::from_secs(1);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(15);

/// A set, its generation, and a node.
type Slot = (String, Option<i64>, String);

/// The recent failures.
#[derive(Debug, Default)]
pub(super) struct Backoffs(Mutex<BTreeMap<Slot, (SignedDuration, Timestamp)>>);

impl Backoffs {
    /// Returns the delay before a failed pod of a node is deleted. If it is zero, the delay of the next one increases.
    pub(super) fn delay(&self, set: &DaemonSet, node: &str, now: Timestamp) -> Option<Duration> {
        let mut places = self.0.lock();
        places.retain(|_, (_, since)| now.duration_since(*since) <= MAX_BACKOFF * 2);
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        let place = (set.metadata.uid.clone().unwrap_or_default(), observed, node.to_owned());
        let next = match places.get(&place) {
            Some((backoff, since)) => {
                let rest = *backoff - now.duration_since(*since);
                if rest > SignedDuration::ZERO {
                    return Some(rest.unsigned_abs());
                }
                (*backoff * 2).min(MAX_BACKOFF)
            }
            None => INITIAL_BACKOFF,
        };
        places.insert(place, (next, now));
        None
    }
}
