//! How long a daemon waits until it replaces a pod that failed: longer each time, so as not to fight with a node.

use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const FIRST: SignedDuration = SignedDuration::from_secs(1);
const LONGEST: SignedDuration = SignedDuration::from_mins(15);

/// A set, as it was last changed, and a node.
type Place = (String, Option<i64>, String);

/// The failures of late.
#[derive(Debug, Default)]
pub(super) struct Backoffs(Mutex<BTreeMap<Place, (SignedDuration, Timestamp)>>);

impl Backoffs {
    /// Returns how long a failed pod of a node stays. If it is to go at once, the next one will have to wait longer.
    pub(super) fn delay(&self, set: &DaemonSet, node: &str, now: Timestamp) -> Option<Duration> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|_, (_, since)| now.duration_since(*since) <= LONGEST * 2);
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        let place = (set.metadata.uid.clone().unwrap_or_default(), observed, node.to_owned());
        let next = match places.get(&place) {
            Some((backoff, since)) => {
                let rest = *backoff - now.duration_since(*since);
                if rest > SignedDuration::ZERO {
                    return Some(rest.unsigned_abs());
                }
                (*backoff * 2).min(LONGEST)
            }
            None => FIRST,
        };
        places.insert(place, (next, now));
        None
    }
}
