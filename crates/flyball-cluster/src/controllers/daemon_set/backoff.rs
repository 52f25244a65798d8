//! Exponential back-off of replacements of failed daemon pods, per node.

use flyball::Backoff;
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// As in kube-controller-manager.
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(15 * 60) };

/// A set, its generation, and a node.
type Slot = (String, Option<i64>, String);

/// The number of recent failures, and the time of the last one.
#[derive(Debug, Default)]
pub(super) struct Backoffs(Mutex<BTreeMap<Slot, (u32, Timestamp)>>);

impl Backoffs {
    /// Returns the delay before a failed pod of a node is deleted. If it is zero, the delay of the next one increases.
    pub(super) fn delay(&self, set: &DaemonSet, node: &str, now: Timestamp) -> Option<Duration> {
        let mut slots = self.0.lock();
        let since = |time: Timestamp| now.duration_since(time).max(SignedDuration::ZERO).unsigned_abs();
        slots.retain(|_, (_, last)| since(*last) <= BACKOFF.max_delay * 2);
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        let slot = (set.metadata.uid.clone().unwrap_or_default(), observed, node.to_owned());
        let failures = slots.get(&slot).map_or(0, |(failures, _)| *failures);
        if let Some((_, last)) = slots.get(&slot) {
            let rest = BACKOFF.after(failures).saturating_sub(since(*last));
            if !rest.is_zero() {
                return Some(rest);
            }
        }
        slots.insert(slot, (failures.saturating_add(1), now));
        None
    }
}
