//! Scheduling queue: pods by priority, failed ones after a backoff.
//!
//! Namespaces take turns, so that many pods of one do not delay the few of another with the same priority.

use flyball::Backoff;
use flyball_core::ObjectKey;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Backoff of unschedulable pods, as in kube-scheduler.
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(10) };

/// The pods that wait for a node.
#[derive(Debug, Default)]
pub(super) struct Queue {
    sequence: u64,
    ready: BTreeSet<(Position, ObjectKey)>,
    positions: BTreeMap<ObjectKey, Position>,
    /// Rounds by priority, since no pod was ready.
    rounds: BTreeMap<Reverse<i32>, Rounds>,
    /// Pods in backoff, by the time of the next attempt.
    later: BTreeSet<(Instant, ObjectKey)>,
    /// Unschedulable pods, which wait for a change of the cluster.
    stuck: BTreeSet<ObjectKey>,
    failures: BTreeMap<ObjectKey, FailedAttempts>,
}

/// Position in the order of ready pods: by priority, by round, and by arrival. A round has one pod of each namespace.
type Position = (Reverse<i32>, u64, u64);

/// Rounds of one priority.
#[derive(Debug, Default)]
struct Rounds {
    current: u64,
    /// Next round of each namespace.
    next: BTreeMap<String, u64>,
}

impl Rounds {
    /// Returns the round of the next pod of a namespace.
    fn assign(&mut self, namespace: &str) -> u64 {
        let next = self.next.entry(namespace.to_owned()).or_default();
        let round = self.current.max(*next);
        *next = round + 1;
        round
    }
}

#[derive(Clone, Copy, Debug)]
struct FailedAttempts {
    times: u32,
    last: Instant,
    priority: i32,
}

impl FailedAttempts {
    fn due(&self) -> Instant {
        self.last + BACKOFF.after(self.times)
    }
}

impl Queue {
    /// Adds a pod, unless it is queued.
    pub(super) fn add(&mut self, key: ObjectKey, priority: i32) {
        if self.positions.contains_key(&key) || self.failures.contains_key(&key) {
            return;
        }
        self.make_ready(key, priority);
    }

    fn make_ready(&mut self, key: ObjectKey, priority: i32) {
        self.sequence += 1;
        if self.ready.is_empty() {
            self.rounds.clear();
        }
        let priority = Reverse(priority);
        let round = self.rounds.entry(priority).or_default().assign(key.namespace().unwrap_or_default());
        let position = (priority, round, self.sequence);
        self.positions.insert(key.clone(), position);
        self.ready.insert((position, key));
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(position) = self.positions.remove(key) {
            self.ready.remove(&(position, key.clone()));
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
        let ((priority, round, _), key) = self.ready.pop_first()?;
        self.rounds.entry(priority).or_default().current = round;
        self.positions.remove(&key);
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
        let failed = FailedAttempts { times, last: now, priority };
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
    async fn namespaces_take_turns() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let add = |queue: &mut Queue, names: &[&str]| {
            for name in names {
                let (namespace, name) = name.split_once('/').unwrap();
                queue.add(ObjectKey::new(Some(namespace), name), 0);
            }
        };
        add(&mut queue, &["many/a", "many/b", "many/c", "many/d", "few/a", "few/b"]);
        let next = |queue: &mut Queue| queue.next(now).map(|key| key.to_string()).unwrap_or_default();
        assert_eq!([next(&mut queue), next(&mut queue)], ["many/a", "few/a"]);
        // A namespace that comes later has the next turn, and no turns for the time before.
        add(&mut queue, &["new/a", "new/b"]);
        let rest: Vec<String> = (0..6).map(|_| next(&mut queue)).collect();
        assert_eq!(rest, ["new/a", "many/b", "few/b", "new/b", "many/c", "many/d"]);
        assert_eq!(next(&mut queue), "");
    }

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
        assert_eq!((queue.next(began), queue.next_due()), (None, Some(began + BACKOFF.base_delay)));
        queue.something_changed();
        let later = began + BACKOFF.base_delay;
        assert_eq!((queue.next(later), queue.next(later), queue.next(later)), (Some(key("b")), Some(key("a")), None));
        queue.failed(key("a"), 0, later, true);
        assert_eq!(queue.next_due(), Some(later + 2 * BACKOFF.base_delay));
        queue.remove(&key("a"));
        assert_eq!(queue.next_due(), None);
    }
}
