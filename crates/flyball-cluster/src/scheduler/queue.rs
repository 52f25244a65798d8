//! Scheduling queue: pods by priority, failed ones after a backoff.

use flyball_core::ObjectKey;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The pods that wait for a node.
#[derive(Debug, Default)]
pub(super) struct Queue {
    sequence: u64,
    /// By priority and order of arrival.
    ready: BTreeSet<(Reverse<i32>, u64, ObjectKey)>,
    places: BTreeMap<ObjectKey, (Reverse<i32>, u64)>,
    /// Pods in backoff, by the time of the next attempt.
    later: BTreeSet<(Instant, ObjectKey)>,
    /// Unschedulable pods, which wait for a change of the cluster.
    stuck: BTreeSet<ObjectKey>,
    failures: BTreeMap<ObjectKey, Failed>,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    times: u32,
    last: Instant,
    priority: i32,
}

impl Failed {
    fn due(&self) -> Instant {
        self.last + FIRST_WAIT.saturating_mul(1 << (self.times - 1).min(8)).min(MAX_WAIT)
    }
}

impl Queue {
    /// Adds a pod, unless it is queued.
    pub(super) fn add(&mut self, key: ObjectKey, priority: i32) {
        if self.places.contains_key(&key) || self.failures.contains_key(&key) {
            return;
        }
        self.make_ready(key, priority);
    }

    fn make_ready(&mut self, key: ObjectKey, priority: i32) {
        self.sequence += 1;
        let place = (Reverse(priority), self.sequence);
        self.places.insert(key.clone(), place);
        self.ready.insert((place.0, place.1, key));
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some((priority, sequence)) = self.places.remove(key) {
            self.ready.remove(&(priority, sequence, key.clone()));
        }
        if let Some(failed) = self.failures.remove(key) {
            self.later.remove(&(failed.due(), key.clone()));
        }
        self.stuck.remove(key);
    }

    /// Removes the next pod and returns it.
    pub(super) fn next(&mut self, now: Instant) -> Option<ObjectKey> {
        while let Some((_, key)) = self.later.first().filter(|(due, _)| *due <= now).cloned() {
            self.later.pop_first();
            let priority = self.failures.get(&key).map_or(0, |failed| failed.priority);
            self.make_ready(key, priority);
        }
        let (_, _, key) = self.ready.pop_first()?;
        self.places.remove(&key);
        Some(key)
    }

    /// Returns the time at which the next failed pod is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(due, _)| *due)
    }

    /// Requeues a pod that was not scheduled. It waits for a change, or with `again` for its backoff.
    pub(super) fn failed(&mut self, key: ObjectKey, priority: i32, now: Instant, again: bool) {
        let times = self.failures.get(&key).map_or(0, |failed| failed.times) + 1;
        self.remove(&key);
        let failed = Failed { times, last: now, priority };
        self.failures.insert(key.clone(), failed);
        if again {
            self.later.insert((failed.due(), key));
        } else {
            self.stuck.insert(key);
        }
    }

    /// Requeues all pods that wait for a change, after their backoff.
    pub(super) fn something_changed(&mut self) {
        for key in std::mem::take(&mut self.stuck) {
            if let Some(failed) = self.failures.get(&key) {
                self.later.insert((failed.due(), key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn higher_priority_comes_first_and_failures_back_off() {
        let key = |name: &str| ObjectKey::new(Some("ns"), name);
        let (mut queue, began) = (Queue::default(), Instant::now());
        queue.add(key("a"), 0);
        queue.add(key("b"), 10);
        queue.add(key("c"), 0);
        queue.add(key("a"), 0);
        for expected in ["b", "a", "c"] {
            assert_eq!(queue.next(began), Some(key(expected)));
        }
        queue.failed(key("a"), 0, began, false);
        queue.failed(key("b"), 10, began, true);
        assert_eq!((queue.next(began), queue.next_due()), (None, Some(began + FIRST_WAIT)));
        queue.something_changed();
        let later = began + FIRST_WAIT;
        assert_eq!((queue.next(later), queue.next(later), queue.next(later)), (Some(key("b")), Some(key("a")), None));
        queue.failed(key("a"), 0, later, true);
        assert_eq!(queue.next_due(), Some(later + 2 * FIRST_WAIT));
        queue.remove(&key("a"));
        assert_eq!(queue.next_due(), None);
    }
}
