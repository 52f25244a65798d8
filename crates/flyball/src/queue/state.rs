//! The work queue as a plain structure, with time as an argument: decides which key is reconciled next.
//!
//! A key is in at most one lane, with at most one worker, and has at most one delay. If a key is added during its
//! run, or while it is held, this is stored once. So the queue is bounded by the number of objects: nothing is stored
//! for a key that is idle and did not fail.
//!
//! Namespaces share the workers: a namespace takes another worker only if it has fewer than are idle. So one alone has
//! at most half of them, and its slow objects do not delay those of others. A queue that never had keys of a second
//! namespace has nothing to share, and uses all workers. A namespace that has to wait is passed over, and there are at
//! most as many of these as workers. Cluster-scoped keys have no namespace, and use all workers.

use super::bucket::{Bucket, MAX_DELAY, RetryRate};
use super::cause::{Cause, Causes};
use super::lane::Lane;
use super::snapshot::KeyState;
use super::table::Table;
use crate::backoff::Backoff;
use flyball_core::{ObjectKey, Rng};
use foldhash::fast::FixedState;
use memchr::memchr;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::mem::take;
use std::time::Duration;
use tokio::time::Instant;

/// Priority of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// A failed key, which waits for its turn among failed keys.
    Retry,
    /// Startup and resyncs, which are not urgent.
    Background,
    /// Objects that changed.
    Fresh,
}

/// One key in this number is taken from the background even if there are fresh ones.
const BACKGROUND_SHARE: u32 = 16;

/// The next step for a key after its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// No requeue until a change.
    Rest,
    /// Requeue after the backoff.
    Retry,
    /// Requeue after this time.
    After(Duration),
    /// No requeue until it is added again; failures are kept.
    Held,
}

/// The workers of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workers {
    pub(crate) count: usize,
    /// True if namespaces share them from the start, not once there are keys of a second namespace.
    pub(crate) are_shared: bool,
}

/// The number of a key while it is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u32);

/// A hasher that is unpredictable for attackers and reproducible in simulations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Salt(u64);

/// A key with the hashes by which it is found.
#[derive(Clone, Debug)]
pub(crate) struct HashedKey {
    key: ObjectKey,
    hash: u64,
    of_namespace: u64,
}

impl Salt {
    pub(crate) fn hashed(self, key: &ObjectKey) -> HashedKey {
        let (text, state) = (key.as_str(), FixedState::with_seed(self.0));
        let namespace = memchr(b'/', text.as_bytes()).map_or("", |end| &text[..end]);
        HashedKey { key: key.clone(), hash: state.hash_one(text), of_namespace: state.hash_one(namespace) }
    }
}

impl HashedKey {
    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }
}

/// A key taken by a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) ticket: Ticket,
    pub(crate) key: ObjectKey,
    /// Time for which it was ready.
    pub(crate) waited: Duration,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// The reasons for its reconcile.
    pub(crate) causes: Causes,
}

/// The queue of one controller.
#[derive(Debug)]
pub(crate) struct State {
    backoff: Backoff,
    bucket: Bucket,
    salt: Salt,
    workers: Workers,
    /// Number of workers that have a key.
    busy: usize,
    /// Hash of the first namespace.
    first_namespace: Option<u64>,
    /// True if there were keys of more than one namespace since the start. The queue has no idle objects, so it
    /// cannot determine if there are others: if this was reset, one namespace could take all workers.
    is_shared: bool,
    keys: Table<Slot>,
    namespaces: Table<Namespace>,
    /// Keys that failed and whose backoff is over, but which wait for the rate limit.
    retrying: Lane,
    background: Lane,
    fresh: Lane,
    /// Fresh keys returned since the last background key.
    streak: u32,
    delayed: BTreeSet<(Instant, u64, Ticket)>,
    /// Sequence number of delays, so that equal ones keep their order.
    sequence: u64,
    pub(crate) adds: u64,
    pub(crate) retries: u64,
}

/// The state of a key. A slot without state is reused for another key.
#[derive(Debug)]
struct Slot {
    key: ObjectKey,
    namespace: u32,
    place: Location,
    /// Requeue when the worker returns it, or when it is released.
    again: Option<Priority>,
    held: bool,
    delay: Option<Delay>,
    failures: u32,
    /// True if the current run was triggered by the backoff, and not by a change.
    retried: bool,
    /// The reasons for the next run.
    causes: Causes,
}

/// A namespace with keys in the queue.
#[derive(Debug)]
struct Namespace {
    hash: u64,
    keys: usize,
    /// Number of workers that have one of its keys.
    busy: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delay {
    until: Instant,
    sequence: u64,
    priority: Priority,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    Nowhere,
    /// In a lane since this time.
    Lane(Priority, Instant),
    /// With a worker since this time.
    Worker(Instant),
}

impl State {
    /// Creates an empty queue for a number of workers.
    pub(crate) fn new(backoff: Backoff, rate: RetryRate, workers: Workers, rng: &Rng) -> Self {
        Self {
            backoff,
            bucket: Bucket::new(rate),
            salt: Salt(rng.next()),
            workers,
            busy: 0,
            first_namespace: None,
            is_shared: false,
            keys: Table::default(),
            namespaces: Table::default(),
            retrying: Lane::default(),
            background: Lane::default(),
            fresh: Lane::default(),
            streak: 0,
            delayed: BTreeSet::new(),
            sequence: 0,
            adds: 0,
            retries: 0,
        }
    }

    pub(crate) fn salt(&self) -> Salt {
        self.salt
    }

    /// Adds a key.
    pub(crate) fn add(&mut self, key: HashedKey, priority: Priority, cause: Cause, now: Instant) {
        self.adds += 1;
        let ticket = self.ticket(key);
        self.keys[ticket.0].causes.push(cause);
        self.want(ticket, priority, now);
    }

    /// Returns the next key for an idle worker, if one is ready.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Item> {
        self.wake(now);
        let lanes = match self.streak >= BACKGROUND_SHARE - 1 {
            true => [Priority::Background, Priority::Fresh],
            false => [Priority::Fresh, Priority::Background],
        };
        let ticket = Ticket(lanes.into_iter().find_map(|priority| self.pop(priority))?);
        let slot = &mut self.keys[ticket.0];
        let since = match slot.place {
            Location::Lane(Priority::Fresh, since) => {
                self.streak += 1;
                since
            }
            Location::Lane(_, since) | Location::Worker(since) => {
                self.streak = 0;
                since
            }
            Location::Nowhere => now,
        };
        slot.place = Location::Worker(now);
        slot.retried = slot.delay.is_none();
        self.busy += 1;
        self.namespaces[slot.namespace].busy += 1;
        let (key, failures, causes) = (slot.key.clone(), slot.failures, take(&mut slot.causes));
        self.cancel_delay(ticket);
        Some(Item { ticket, key, waited: now.saturating_duration_since(since), failures, causes })
    }

    /// Returns a key from its worker. A key that is `held` stays out of the lanes until it is released.
    pub(crate) fn done(&mut self, ticket: Ticket, next: NextStep, held: bool, now: Instant) {
        let slot = &mut self.keys[ticket.0];
        slot.place = Location::Nowhere;
        slot.held = held;
        self.busy -= 1;
        self.namespaces[slot.namespace].busy -= 1;
        let again = slot.again.take();
        match next {
            NextStep::Rest => slot.failures = 0,
            NextStep::Held => {}
            NextStep::After(delay) => {
                slot.failures = 0;
                self.delay(ticket, now + delay.min(MAX_DELAY), Priority::Background);
            }
            NextStep::Retry => {
                // Runs triggered by changes do not count: ten changes in a second do not justify a long delay.
                if slot.retried || slot.failures == 0 {
                    slot.failures = slot.failures.saturating_add(1);
                }
                let failures = slot.failures;
                self.retries += 1;
                self.delay(ticket, now + self.backoff.after(failures).min(MAX_DELAY), Priority::Retry);
            }
        }
        match again {
            Some(priority) => self.want(ticket, priority, now),
            None => self.remove_if_idle(ticket),
        }
    }

    /// Releases a held key, and returns true if it was added in the meantime.
    pub(crate) fn release(&mut self, key: &ObjectKey, now: Instant) -> bool {
        let Some(ticket) = self.find(key) else { return false };
        let slot = &mut self.keys[ticket.0];
        slot.held = false;
        let added = match slot.place {
            Location::Nowhere => slot.again.take(),
            Location::Lane(..) | Location::Worker(_) => None,
        };
        if let Some(priority) = added {
            self.want(ticket, priority, now);
        }
        self.remove_if_idle(ticket);
        added.is_some()
    }

    /// Drops the state of a key whose object was deleted.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        let Some(ticket) = self.find(key) else { return };
        self.cancel_delay(ticket);
        self.leave(ticket);
        let slot = &mut self.keys[ticket.0];
        (slot.again, slot.failures, slot.held) = (None, 0, false);
        slot.causes = Causes::default();
        self.remove_if_idle(ticket);
    }

    /// Returns the time at which the next delayed key becomes ready.
    pub(crate) fn next_delay(&self, now: Instant) -> Option<Instant> {
        let delay = self.delayed.first().map(|(at, ..)| *at);
        let token = (!self.retrying.is_empty()).then(|| self.bucket.next(now));
        delay.into_iter().chain(token).min()
    }

    /// Returns true if a worker has this key.
    pub(crate) fn is_running(&self, key: &HashedKey) -> bool {
        self.find_hashed(key).is_some_and(|ticket| matches!(self.keys[ticket.0].place, Location::Worker(_)))
    }

    /// Returns how many keys are ready.
    pub(crate) fn ready(&self) -> usize {
        self.fresh.len() + self.background.len()
    }

    /// Returns true if [`next`](Self::next) would return a key, also without waking delayed ones.
    pub(crate) fn has_next(&mut self) -> bool {
        let max_busy = self.max_busy();
        let Self { namespaces, fresh, background, .. } = self;
        let is_eligible = |namespace| namespaces[namespace].busy < max_busy;
        fresh.has_eligible(is_eligible) || background.has_eligible(is_eligible)
    }

    /// Returns true if a key is ready because something changed.
    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Returns the number of keys that only wait for the rate limit.
    pub(crate) fn throttled(&self) -> usize {
        self.retrying.len()
    }

    /// Returns the keys with workers.
    pub(crate) fn running_keys(&self) -> Vec<ObjectKey> {
        let running = self.keys.iter().filter(|slot| matches!(slot.place, Location::Worker(_)));
        running.map(|slot| slot.key.clone()).collect()
    }

    /// Returns since when each running key has been running.
    pub(crate) fn running(&self) -> impl Iterator<Item = Instant> {
        self.keys.iter().filter_map(|slot| match slot.place {
            Location::Worker(since) => Some(since),
            Location::Nowhere | Location::Lane(..) => None,
        })
    }

    /// Returns the keys that run or wait, in the order of their numbers.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&ObjectKey, KeyState)> {
        self.keys.iter().filter_map(|slot| Some((&slot.key, slot.key_state()?)))
    }

    /// Returns where a key is, its failures in a row, true if it was added again meanwhile, and its next causes.
    pub(crate) fn details(&self, key: &ObjectKey) -> Option<(KeyState, u32, bool, &Causes)> {
        let slot = &self.keys[self.find(key)?.0];
        Some((slot.key_state()?, slot.failures, slot.again.is_some(), &slot.causes))
    }

    fn find(&self, key: &ObjectKey) -> Option<Ticket> {
        self.find_hashed(&self.salt.hashed(key))
    }

    fn find_hashed(&self, HashedKey { key, hash, .. }: &HashedKey) -> Option<Ticket> {
        self.keys.find(*hash, |slot| slot.key == *key).map(Ticket)
    }

    fn ticket(&mut self, key: HashedKey) -> Ticket {
        if let Some(ticket) = self.find_hashed(&key) {
            return ticket;
        }
        let HashedKey { key, hash, of_namespace } = key;
        // Two namespaces with the same hash share their turns.
        let known = self.namespaces.find(of_namespace, |namespace| namespace.hash == of_namespace);
        self.is_shared |= self.workers.are_shared && key.namespace().is_some();
        self.is_shared |= *self.first_namespace.get_or_insert(of_namespace) != of_namespace;
        let new = || Namespace { hash: of_namespace, keys: 0, busy: 0 };
        let namespace = known.unwrap_or_else(|| self.namespaces.insert(of_namespace, new()));
        self.namespaces[namespace].keys += 1;
        let slot = Slot {
            key,
            namespace,
            place: Location::Nowhere,
            again: None,
            held: false,
            delay: None,
            failures: 0,
            retried: false,
            causes: Causes::default(),
        };
        Ticket(self.keys.insert(hash, slot))
    }

    /// Frees the slot if it has no state.
    fn remove_if_idle(&mut self, ticket: Ticket) {
        let slot = &self.keys[ticket.0];
        let idle = slot.place == Location::Nowhere && slot.again.is_none() && !slot.held && slot.delay.is_none();
        if idle && slot.failures == 0 {
            let namespace = slot.namespace;
            self.keys.remove(ticket.0);
            self.namespaces[namespace].keys -= 1;
            if self.namespaces[namespace].keys == 0 {
                self.namespaces.remove(namespace);
            }
        }
    }

    fn want(&mut self, ticket: Ticket, priority: Priority, now: Instant) {
        let slot = &mut self.keys[ticket.0];
        match slot.place {
            Location::Nowhere if !slot.held => self.enter(ticket, priority, now),
            Location::Lane(current, since) if current < priority => {
                self.leave(ticket);
                self.enter(ticket, priority, if current == Priority::Retry { now } else { since });
            }
            Location::Lane(..) => {}
            Location::Nowhere | Location::Worker(_) => slot.again = slot.again.max(Some(priority)),
        }
    }

    fn enter(&mut self, ticket: Ticket, priority: Priority, since: Instant) {
        let slot = &mut self.keys[ticket.0];
        slot.place = Location::Lane(priority, since);
        let namespace = slot.namespace;
        self.lane(priority).push(ticket.0, namespace);
    }

    /// Removes a key from its lane, if it is in one.
    fn leave(&mut self, ticket: Ticket) {
        let slot = &mut self.keys[ticket.0];
        if let Location::Lane(priority, _) = slot.place {
            slot.place = Location::Nowhere;
            let namespace = slot.namespace;
            self.lane(priority).remove(ticket.0, namespace);
        }
    }

    fn lane(&mut self, priority: Priority) -> &mut Lane {
        match priority {
            Priority::Retry => &mut self.retrying,
            Priority::Background => &mut self.background,
            Priority::Fresh => &mut self.fresh,
        }
    }

    /// Removes and returns the first key of a lane whose namespace may take a worker.
    fn pop(&mut self, priority: Priority) -> Option<u32> {
        let max_busy = self.max_busy();
        let Self { namespaces, fresh, background, .. } = self;
        let lane = if priority == Priority::Fresh { fresh } else { background };
        lane.pop(|namespace| namespaces[namespace].busy < max_busy)
    }

    /// Returns the number of busy workers below which a namespace may take another one.
    fn max_busy(&self) -> usize {
        if self.is_shared { self.workers.count.saturating_sub(self.busy).max(1) } else { usize::MAX }
    }

    /// Delays a key that has no delay.
    fn delay(&mut self, ticket: Ticket, until: Instant, priority: Priority) {
        self.cancel_delay(ticket);
        self.sequence += 1;
        let sequence = self.sequence;
        self.keys[ticket.0].delay = Some(Delay { until, sequence, priority });
        self.delayed.insert((until, sequence, ticket));
    }

    fn cancel_delay(&mut self, ticket: Ticket) {
        if let Some(Delay { until, sequence, .. }) = self.keys[ticket.0].delay.take() {
            self.delayed.remove(&(until, sequence, ticket));
        }
    }

    /// Makes delayed keys ready; of failed ones, as many as the rate limit allows.
    pub(crate) fn wake(&mut self, now: Instant) {
        while let Some((at, _, ticket)) = self.delayed.first().copied().filter(|(at, ..)| *at <= now) {
            let priority = self.keys[ticket.0].delay.map_or(Priority::Background, |delay| delay.priority);
            self.cancel_delay(ticket);
            let cause = if priority == Priority::Retry { Cause::Backoff } else { Cause::RequeueAfter };
            self.keys[ticket.0].causes.push(cause);
            self.want(ticket, priority, at);
        }
        while !self.retrying.is_empty() && self.bucket.try_acquire(now) {
            if let Some(number) = self.retrying.pop(|_| true) {
                self.enter(Ticket(number), Priority::Background, now);
            }
        }
    }
}

impl Slot {
    /// Returns what the key waits for; `None` if it is idle.
    fn key_state(&self) -> Option<KeyState> {
        match (self.place, self.delay) {
            (Location::Worker(since), _) => Some(KeyState::Running(since)),
            (Location::Lane(Priority::Retry, since), _) => Some(KeyState::Throttled(since)),
            (Location::Lane(_, since), _) => Some(KeyState::Ready(since)),
            (Location::Nowhere, _) if self.held && self.again.is_some() => Some(KeyState::Held(None)),
            (Location::Nowhere, Some(Delay { until, priority: Priority::Retry, .. })) => Some(KeyState::Backoff(until)),
            (Location::Nowhere, Some(Delay { until, .. })) => Some(KeyState::Delayed(until)),
            (Location::Nowhere, None) if self.held => Some(KeyState::Held(None)),
            (Location::Nowhere, None) => None,
        }
    }
}

#[cfg(test)]
mod tests;
