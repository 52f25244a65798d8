//! Contents of a queue, for the debug pages.

use super::barrier::Barrier;
use super::{Causes, Contents, Effect, Queue, Write};
use flyball_core::ObjectKey;
use tokio::time::Instant;

/// Limit of pending writes that are listed for a key.
const MAX_WRITES: usize = 8;

/// The keys of a queue by what they wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyCounts {
    pub(crate) ready: usize,
    pub(crate) running: usize,
    /// Keys that wait for the time that they requested.
    pub(crate) delayed: usize,
    pub(crate) backoff: usize,
    /// Keys whose backoff is over, and which wait for the rate limit of retries.
    pub(crate) throttled: usize,
    /// Keys that wait until the cache has observed their writes.
    pub(crate) held: usize,
}

/// A key in a queue.
#[derive(Clone, Debug)]
pub(crate) struct KeySnapshot {
    pub(crate) key: ObjectKey,
    pub(crate) state: KeyState,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// True if the key was triggered again while it is running or held.
    pub(crate) again: bool,
    /// The causes of the next reconcile.
    pub(crate) causes: Causes,
    /// Writes that the cache has not observed, with the version after them.
    pub(crate) writes: Vec<Write>,
}

/// State of a key, with the time until or since which it has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyState {
    Running(Instant),
    /// Held at most until this time.
    Held(Option<Instant>),
    Backoff(Instant),
    Throttled(Instant),
    Ready(Instant),
    Delayed(Instant),
}

impl Queue {
    /// Returns how many keys wait for what, and up to `max` of the keys: those that are running, held or failing first.
    pub(crate) fn snapshot(&self, max: usize) -> (KeyCounts, Vec<KeySnapshot>) {
        self.change(|contents, _| {
            let mut counts = KeyCounts::default();
            let mut keys: Vec<(KeyState, ObjectKey)> = Vec::new();
            for (key, place) in contents.state.places() {
                let place = with_deadline(place, key, &contents.barrier);
                *counts.of(place) += 1;
                keys.push((place, key.clone()));
            }
            keys.sort();
            keys.truncate(max);
            let keys = keys.into_iter().filter_map(|(_, key)| snapshot(contents, &key)).collect();
            (counts, keys)
        })
    }

    /// Returns what the queue holds for a key; `None` if it is idle.
    pub(crate) fn key_snapshot(&self, key: &ObjectKey) -> Option<KeySnapshot> {
        self.change(|contents, _| snapshot(contents, key))
    }
}

impl KeyCounts {
    fn of(&mut self, place: KeyState) -> &mut usize {
        match place {
            KeyState::Running(_) => &mut self.running,
            KeyState::Held(_) => &mut self.held,
            KeyState::Backoff(_) => &mut self.backoff,
            KeyState::Throttled(_) => &mut self.throttled,
            KeyState::Ready(_) => &mut self.ready,
            KeyState::Delayed(_) => &mut self.delayed,
        }
    }
}

fn with_deadline(place: KeyState, key: &ObjectKey, barrier: &Barrier) -> KeyState {
    match place {
        KeyState::Held(_) => KeyState::Held(barrier.pending(key).map(|(deadline, _)| deadline)),
        other => other,
    }
}

fn snapshot(contents: &Contents, key: &ObjectKey) -> Option<KeySnapshot> {
    let (place, failures, again, causes) = contents.state.details(key)?;
    let pending = contents.barrier.pending(key).map(|(_, writes)| writes).unwrap_or_default();
    let unseen = pending.iter().filter(|write| write.effect != Effect::Unknown);
    Some(KeySnapshot {
        key: key.clone(),
        state: with_deadline(place, key, &contents.barrier),
        failures,
        again: again || contents.meanwhile.contains_key(key),
        causes: causes.clone(),
        writes: unseen.take(MAX_WRITES).cloned().collect(),
    })
}
