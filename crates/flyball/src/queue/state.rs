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
use super::lane::Lane;
use super::table::Table;
use crate::backoff::Backoff;
use flyball_core::{ObjectKey, Rng};
use foldhash::fast::FixedState;
use memchr::memchr;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::time::Duration;
use tokio::time::Instant;

/// Priority of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// It failed, and waits for its turn among failed keys.
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
pub(crate) enum Next {
    /// No requeue until a change.
    Rest,
    /// Requeue after the backoff.
    Retry,
    /// Requeue after this time.
    After(Duration),
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
pub(crate) struct Hashed {
    key: ObjectKey,
    hash: u64,
    of_namespace: u64,
}

impl Salt {
    pub(crate) fn hashed(self, key: &ObjectKey) -> Hashed {
        let (text, state) = (key.as_str(), FixedState::with_seed(self.0));
        let namespace = memchr(b'/', text.as_bytes()).map_or("", |end| &text[..end]);
        Hashed { key: key.clone(), hash: state.hash_one(text), of_namespace: state.hash_one(namespace) }
    }
}

impl Hashed {
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
    /// True if there were keys of more than one namespace since the start. The queue does not know idle objects, so it
    /// cannot tell whether there are others: if it forgot them, one namespace could take all workers meanwhile.
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
    pub(crate) fn add(&mut self, key: Hashed, priority: Priority, now: Instant) {
        self.adds += 1;
        let ticket = self.ticket(key);
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
        let (key, failures) = (slot.key.clone(), slot.failures);
        self.undelay(ticket);
        Some(Item { ticket, key, waited: now.saturating_duration_since(since), failures })
    }

    /// Returns a key from its worker. A key that is `held` stays out of the lanes until it is released.
    pub(crate) fn done(&mut self, ticket: Ticket, next: Next, held: bool, now: Instant) {
        let slot = &mut self.keys[ticket.0];
        slot.place = Location::Nowhere;
        slot.held = held;
        self.busy -= 1;
        self.namespaces[slot.namespace].busy -= 1;
        let again = slot.again.take();
        match next {
            Next::Rest => slot.failures = 0,
            Next::After(delay) => {
                slot.failures = 0;
                self.delay(ticket, now + delay.min(MAX_DELAY), Priority::Background);
            }
            Next::Retry => {
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
            None => self.forget_if_idle(ticket),
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
        self.forget_if_idle(ticket);
        added.is_some()
    }

    /// Drops the state of a key whose object was deleted.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        let Some(ticket) = self.find(key) else { return };
        self.undelay(ticket);
        self.leave(ticket);
        let slot = &mut self.keys[ticket.0];
        (slot.again, slot.failures, slot.held) = (None, 0, false);
        self.forget_if_idle(ticket);
    }

    /// Returns the time at which the next delayed key becomes ready.
    pub(crate) fn next_delay(&self, now: Instant) -> Option<Instant> {
        let delay = self.delayed.first().map(|(at, ..)| *at);
        let token = (!self.retrying.is_empty()).then(|| self.bucket.next(now));
        delay.into_iter().chain(token).min()
    }

    /// Returns true if a worker has this key.
    pub(crate) fn is_running(&self, key: &Hashed) -> bool {
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

    fn find(&self, key: &ObjectKey) -> Option<Ticket> {
        self.find_hashed(&self.salt.hashed(key))
    }

    fn find_hashed(&self, Hashed { key, hash, .. }: &Hashed) -> Option<Ticket> {
        self.keys.find(*hash, |slot| slot.key == *key).map(Ticket)
    }

    fn ticket(&mut self, key: Hashed) -> Ticket {
        if let Some(ticket) = self.find_hashed(&key) {
            return ticket;
        }
        let Hashed { key, hash, of_namespace } = key;
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
        };
        Ticket(self.keys.insert(hash, slot))
    }

    /// Frees the slot if it has no state.
    fn forget_if_idle(&mut self, ticket: Ticket) {
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
        self.undelay(ticket);
        self.sequence += 1;
        let sequence = self.sequence;
        self.keys[ticket.0].delay = Some(Delay { until, sequence, priority });
        self.delayed.insert((until, sequence, ticket));
    }

    fn undelay(&mut self, ticket: Ticket) {
        if let Some(Delay { until, sequence, .. }) = self.keys[ticket.0].delay.take() {
            self.delayed.remove(&(until, sequence, ticket));
        }
    }

    /// Makes delayed keys ready; of failed ones, as many as the rate limit allows.
    pub(crate) fn wake(&mut self, now: Instant) {
        while let Some((at, _, ticket)) = self.delayed.first().copied().filter(|(at, ..)| *at <= now) {
            let priority = self.keys[ticket.0].delay.map_or(Priority::Background, |delay| delay.priority);
            self.undelay(ticket);
            self.want(ticket, priority, at);
        }
        while !self.retrying.is_empty() && self.bucket.try_acquire(now) {
            if let Some(number) = self.retrying.pop(|_| true) {
                self.enter(Ticket(number), Priority::Background, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::Rng;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(name: impl ToString) -> ObjectKey {
        ObjectKey::new(None, &name.to_string())
    }

    impl State {
        fn add_key(&mut self, key: &ObjectKey, priority: Priority, now: Instant) {
            self.add(self.salt.hashed(key), priority, now);
        }
    }

    fn queue() -> State {
        of_workers(usize::MAX, false)
    }

    fn of_workers(count: usize, are_shared: bool) -> State {
        let (workers, rng) = (Workers { count, are_shared }, Rng::from_seed(1));
        State::new(Backoff::default(), RetryRate::default(), workers, &rng)
    }

    /// Pops all ready keys and marks them as done.
    fn drain(queue: &mut State, now: Instant) -> String {
        let mut order = String::new();
        while let Some(item) = queue.next(now) {
            order.push_str(item.key.name());
            queue.done(item.ticket, Next::Rest, false, now);
        }
        order
    }

    #[test]
    fn fresh_keys_precede_background_keys() {
        let (mut queue, now) = (queue(), Instant::now());
        for name in ["a", "b", "c"] {
            queue.add_key(&key(name), Priority::Background, now);
        }
        for name in 10..30 {
            queue.add_key(&key(name), Priority::Fresh, now);
        }
        queue.add_key(&key("c"), Priority::Fresh, now);
        assert_eq!(drain(&mut queue, now), "101112131415161718192021222324a2526272829cb");
    }

    #[test]
    fn backoff_grows_with_failures_and_resets_on_success() {
        let (mut queue, mut now) = (queue(), Instant::now());
        queue.add_key(&key("a"), Priority::Fresh, now);
        let mut fail = |next| {
            let item = queue.next(now).unwrap();
            queue.done(item.ticket, next, false, now);
            let wait = queue.next_delay(now).map(|at| at - now);
            now += wait.unwrap_or_default();
            wait.map(|wait| wait.as_millis())
        };
        let waits: Vec<_> = (0..20).map(|_| fail(Next::Retry).unwrap()).collect();
        assert_eq!(waits[..5], [5, 10, 20, 40, 80]);
        assert_eq!(waits[17..], [655_360, 1_000_000, 1_000_000]);
        assert_eq!(fail(Next::After(Duration::from_secs(1))), Some(1000));
        assert_eq!(fail(Next::Retry), Some(5));
    }

    #[test]
    fn delay_is_capped() {
        let (mut queue, now) = (queue(), Instant::now());
        queue.add_key(&key("a"), Priority::Fresh, now);
        let item = queue.next(now).unwrap();
        queue.done(item.ticket, Next::After(Duration::MAX), false, now);
        assert_eq!(queue.next_delay(now), Some(now + MAX_DELAY));
    }

    #[test]
    fn forgotten_keys_release_memory() {
        let (mut queue, now) = (queue(), Instant::now());
        for name in 0..10_000 {
            queue.add_key(&key(name), Priority::Background, now);
            queue.add_key(&key(name), Priority::Fresh, now);
            queue.forget(&key(name));
        }
        assert_eq!((queue.keys.size(), queue.namespaces.size(), queue.ready()), ((0, 1), (0, 1), 0));
        assert_eq!(queue.next(now), None);
    }

    #[test]
    fn retries_are_rate_limited_and_namespaces_take_turns() {
        let (mut queue, mut now) = (queue(), Instant::now());
        let names =
            |namespace: &'static str, n: u32| (0..n).map(move |i| ObjectKey::new(Some(namespace), &i.to_string()));
        for key in names("many", 1000).chain(names("few", 2)) {
            queue.add_key(&key, Priority::Fresh, now);
        }
        let fail_all = |queue: &mut State, now| {
            let mut order = Vec::new();
            while let Some(item) = queue.next(now) {
                order.push(item.key.to_string());
                queue.done(item.ticket, Next::Retry, false, now);
            }
            order
        };
        assert_eq!(fail_all(&mut queue, now).len(), 1002, "first attempts are not rate-limited");
        now += Duration::from_millis(5);
        let order = fail_all(&mut queue, now);
        assert_eq!(order.len(), 100);
        assert!(order[..4].iter().filter(|key| key.starts_with("few")).count() == 2, "{:?}", &order[..4]);
        assert_eq!(queue.throttled(), 902);
        for _ in 0..10 {
            assert!(queue.next_delay(now) <= Some(now + Duration::from_millis(100)));
            now += Duration::from_millis(100);
            assert_eq!(fail_all(&mut queue, now).len(), 1);
        }
        queue.add_key(&ObjectKey::new(Some("many"), "999"), Priority::Fresh, now);
        assert_eq!(fail_all(&mut queue, now), ["many/999"], "a change is not rate-limited");
    }

    #[test]
    fn large_namespace_does_not_starve_a_small_one() {
        for priority in [Priority::Fresh, Priority::Background] {
            let (mut queue, now) = (queue(), Instant::now());
            for name in 0..10_000 {
                queue.add_key(&ObjectKey::new(Some("many"), &name.to_string()), priority, now);
            }
            for name in 0..10 {
                queue.add_key(&ObjectKey::new(Some("few"), &name.to_string()), priority, now);
            }
            let taken: Vec<_> = (0..20).map(|_| queue.next(now).unwrap().key).collect();
            assert_eq!(taken.iter().filter(|key| key.namespace() == Some("few")).count(), 10, "{taken:?}");
        }
    }

    fn in_namespace(namespace: &str, name: u32) -> ObjectKey {
        ObjectKey::new(Some(namespace), &name.to_string())
    }

    #[test]
    fn namespaces_share_the_workers() {
        let (mut queue, now) = (of_workers(8, false), Instant::now());
        for name in 0..10 {
            queue.add_key(&in_namespace("many", name), Priority::Fresh, now);
        }
        let mut running: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        assert_eq!(running.len(), 10, "one namespace alone has all workers");
        queue.add_key(&in_namespace("few", 0), Priority::Background, now);
        for item in running.drain(..) {
            queue.done(item.ticket, Next::Rest, false, now);
        }
        for name in 0..100 {
            queue.add_key(&in_namespace("many", name), Priority::Fresh, now);
        }
        let take = |queue: &mut State| {
            let taken: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
            let names: Vec<_> = taken.iter().map(|item| item.key.to_string()).collect();
            (taken, names)
        };
        let (first, names) = take(&mut queue);
        // A key of lower priority is taken as well, since others must wait.
        assert_eq!(names, ["many/0", "many/1", "many/2", "many/3", "few/0"]);
        queue.add_key(&in_namespace("third", 0), Priority::Fresh, now);
        assert_eq!(take(&mut queue).1, ["third/0"]);
        assert!(!queue.has_next(), "the others have two idle workers left");
        for item in first {
            queue.done(item.ticket, Next::Rest, false, now);
        }
        assert!(queue.has_next());
        assert_eq!(take(&mut queue).1, ["many/4", "many/5", "many/6", "many/7"], "in order");
    }

    #[test]
    fn workers_remain_shared_while_a_namespace_is_idle() {
        let (mut queue, now) = (of_workers(4, false), Instant::now());
        queue.add_key(&in_namespace("few", 0), Priority::Fresh, now);
        assert_eq!(drain(&mut queue, now), "0");
        for name in 0..10 {
            queue.add_key(&in_namespace("many", name), Priority::Fresh, now);
        }
        assert_eq!(std::iter::from_fn(|| queue.next(now)).count(), 2, "others would have to wait for slow objects");
    }

    #[test]
    fn workers_may_be_shared_from_the_start() {
        let (mut queue, now) = (of_workers(4, true), Instant::now());
        for name in 0..10 {
            queue.add_key(&key(name), Priority::Fresh, now);
        }
        let cluster_scoped: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        assert_eq!(cluster_scoped.len(), 10);
        cluster_scoped.into_iter().for_each(|item| queue.done(item.ticket, Next::Rest, false, now));
        for name in 0..10 {
            queue.add_key(&in_namespace("a", name), Priority::Fresh, now);
        }
        assert_eq!(std::iter::from_fn(|| queue.next(now)).count(), 2);
    }

    proptest! {
        #[test]
        fn namespace_takes_a_worker_only_if_it_has_fewer_than_are_idle(
            workers in 1..9usize,
            steps in prop::collection::vec((0..4u8, 0..4usize, 0..50u32, any::<bool>()), 0..300),
        ) {
            let (mut queue, now) = (of_workers(workers, false), Instant::now());
            let names = ["a", "b", "c", "d"];
            let mut running: Vec<Item> = Vec::new();
            for name in names {
                queue.add_key(&in_namespace(name, 0), Priority::Fresh, now);
            }
            let of = |running: &[Item], name: &str| {
                running.iter().filter(|item| item.key.namespace() == Some(name)).count()
            };
            for (step, namespace, name, is_fresh) in steps {
                match step {
                    0 | 1 => {
                        let priority = if is_fresh { Priority::Fresh } else { Priority::Background };
                        queue.add_key(&in_namespace(names[namespace], name), priority, now);
                    }
                    2 if !running.is_empty() => {
                        let item = running.remove(name as usize % running.len());
                        queue.done(item.ticket, Next::Rest, false, now);
                    }
                    _ if running.len() < workers => {
                        let (idle, has_next) = (workers - running.len(), queue.has_next());
                        let ready: Vec<_> = queue.keys.iter()
                            .filter(|slot| matches!(slot.place, Location::Lane(..)))
                            .map(|slot| slot.key.namespace().unwrap().to_owned())
                            .collect();
                        match queue.next(now) {
                            Some(item) => {
                                prop_assert!(has_next && of(&running, item.key.namespace().unwrap()) < idle);
                                running.push(item);
                            }
                            None => {
                                prop_assert!(!has_next && ready.iter().all(|name| of(&running, name) >= idle));
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// The state of a key in the simplest form.
    #[derive(Clone, Debug, Default)]
    struct Model {
        ready: bool,
        throttled: bool,
        running: Option<Ticket>,
        again: Option<Priority>,
        held: bool,
        due: Option<(Instant, Priority)>,
    }

    impl Model {
        fn want(&mut self, priority: Priority) {
            match priority {
                _ if self.running.is_some() || self.held => self.again = self.again.max(Some(priority)),
                Priority::Retry => self.throttled = !self.ready,
                Priority::Background | Priority::Fresh => (self.ready, self.throttled) = (true, false),
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8, bool),
        Next,
        Done(u8, Option<u64>, bool),
        Fail(u8, bool),
        Release(u8),
        Forget(u8),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = 0..6u8;
        prop_oneof![
            4 => (key.clone(), any::<bool>()).prop_map(|(key, fresh)| Step::Add(key, fresh)),
            5 => Just(Step::Next),
            3 => (key.clone(), proptest::option::of(0..50u64), any::<bool>()).prop_map(|(k, a, h)| Step::Done(k, a, h)),
            2 => (key.clone(), any::<bool>()).prop_map(|(key, held)| Step::Fail(key, held)),
            1 => key.clone().prop_map(Step::Release),
            1 => key.prop_map(Step::Forget),
            2 => (0..20u64).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn queue_matches_model(steps in prop::collection::vec(step(), 0..80)) {
            const EVERY: u64 = 7;
            const BURST: u64 = 2;
            let rate = RetryRate { interval: Duration::from_millis(EVERY), burst: BURST as u32 };
            let workers = Workers { count: usize::MAX, are_shared: true };
            let mut queue = State::new(Backoff::default(), rate, workers, &Rng::from_seed(1));
            let key = |k: u8| ObjectKey::new([None, Some("a"), Some("b")][usize::from(k % 3)], &k.to_string());
            let mut now = Instant::now();
            let mut model: BTreeMap<u8, Model> = (0..6).map(|key| (key, Model::default())).collect();
            // The tokens of the bucket, in parts.
            let mut parts = EVERY * BURST;
            // At the end, all held keys are released and all delays expire.
            let end = (0..6).map(Step::Release).chain([Step::Pass(2_000_000)]);
            let end = end.chain((0..6).flat_map(|_| [Step::Next, Step::Pass(EVERY)]));
            for step in steps.into_iter().chain(end) {
                match step {
                    Step::Add(k, fresh) => {
                        let priority = if fresh { Priority::Fresh } else { Priority::Background };
                        queue.add_key(&key(k), priority, now);
                        model.get_mut(&k).unwrap().want(priority);
                    }
                    Step::Next => {
                        queue.wake(now);
                        for key in model.values_mut() {
                            if let Some((_, priority)) = key.due.take_if(|(due, _)| *due <= now) {
                                key.want(priority);
                            }
                        }
                        let allowed = model.values().filter(|key| key.throttled).count().min((parts / EVERY) as usize);
                        let mut freed = 0;
                        for (k, model) in model.iter_mut().filter(|(_, key)| key.throttled) {
                            let ticket = queue.find(&key(*k)).unwrap();
                            if matches!(queue.keys[ticket.0].place, Location::Lane(Priority::Background, _)) {
                                (model.throttled, model.ready) = (false, true);
                                freed += 1;
                            }
                        }
                        prop_assert_eq!(freed, allowed);
                        parts -= freed as u64 * EVERY;
                        match queue.next(now) {
                            Some(item) => {
                                let key = model.get_mut(&item.key.name().parse().unwrap()).unwrap();
                                prop_assert!(key.ready && key.running.is_none() && !key.held, "{item:?}");
                                (key.ready, key.running, key.due) = (false, Some(item.ticket), None);
                            }
                            None => prop_assert!(model.values().all(|key| !key.ready)),
                        }
                    }
                    Step::Done(k, after, held) => {
                        let key = model.get_mut(&k).unwrap();
                        let Some(ticket) = key.running.take() else { continue };
                        let after = after.map(Duration::from_millis);
                        queue.done(ticket, after.map_or(Next::Rest, Next::After), held, now);
                        (key.due, key.held) = (after.map(|after| (now + after, Priority::Background)), held);
                        if let Some(priority) = key.again.take() {
                            key.want(priority);
                        }
                    }
                    Step::Fail(k, held) => {
                        let key = model.get_mut(&k).unwrap();
                        let Some(ticket) = key.running.take() else { continue };
                        queue.done(ticket, Next::Retry, held, now);
                        // Another test checks the exact time; here it must be positive and finite.
                        let due = queue.keys[ticket.0].delay.unwrap().until;
                        prop_assert!(due > now && queue.next_delay(now) <= Some(due));
                        (key.due, key.held) = (Some((due, Priority::Retry)), held);
                        if let Some(priority) = key.again.take() {
                            key.want(priority);
                        }
                    }
                    Step::Release(k) => {
                        let model = model.get_mut(&k).unwrap();
                        let added = if model.running.is_none() { model.again.take() } else { None };
                        prop_assert_eq!(queue.release(&key(k), now), added.is_some());
                        model.held = false;
                        if let Some(priority) = added {
                            model.want(priority);
                        }
                    }
                    Step::Forget(k) => {
                        queue.forget(&key(k));
                        let key = model.get_mut(&k).unwrap();
                        *key = Model { running: key.running, ..Model::default() };
                    }
                    Step::Pass(time) => {
                        now += Duration::from_millis(time);
                        parts = (parts + time).min(EVERY * BURST);
                    }
                }
                prop_assert_eq!(queue.ready(), model.values().filter(|key| key.ready).count());
                prop_assert_eq!(queue.throttled(), model.values().filter(|key| key.throttled).count());
                prop_assert_eq!(queue.running().count(), model.values().filter(|key| key.running.is_some()).count());
            }
            prop_assert!(model.values().all(|key| !key.ready && !key.throttled && key.due.is_none() && !key.held));
            for k in 0..6 {
                if let Some(ticket) = model[&k].running {
                    queue.done(ticket, Next::Rest, false, now);
                }
                queue.forget(&key(k));
            }
            prop_assert_eq!((queue.keys.size().0, queue.namespaces.size().0), (0, 0), "no state is left");
        }
    }
}
