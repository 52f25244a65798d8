//! The work queue of one controller.
//!
//! Listeners of caches and timers add keys; each key is passed to one worker at a time. [`State`] decides the order,
//! [`Barrier`] which keys wait for their own writes: plain structures without tasks and clock. This file adds a lock
//! and wakes workers.
//!
//! Invariants: both structures change under one lock, so that the end of a run and the event of its write cannot miss
//! each other; added keys are processed before later changes, so that the order is preserved; ready keys need no
//! timer. Workers are only woken if needed and the lock is not taken for each key, which would dominate the cost of a
//! busy queue.

mod barrier;
mod bucket;
mod cause;
mod lane;
#[cfg(feature = "bench")]
mod measured;
mod metrics;
mod snapshot;
mod state;
mod table;

pub(crate) use barrier::{Effect, StaleReads, Trigger, Write};
pub use bucket::RetryRate;
pub(crate) use cause::{Cause, Causes};
#[cfg(feature = "bench")]
pub use measured::MeasuredQueue;
pub(crate) use metrics::{MonitoredQueue, QueueCollector};
pub(crate) use snapshot::{KeySnapshot, KeyState};
use state::{HashedKey, Salt};
pub(crate) use state::{Item, NextStep, Priority, Workers};

use crate::backoff::Backoff;
use crate::cache::StoreId;
use barrier::Barrier;
use flyball_core::{ObjectKey, Rng};
use parking_lot::{Mutex, MutexGuard};
use state::State;
use std::collections::BTreeMap;
use std::mem;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The queue of one controller, with the barrier that holds keys until their own writes are observed.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Keys that were added and are not processed yet, so that adding a key does not wait for workers.
    intake: Mutex<Intake>,
    inner: Mutex<Contents>,
    salt: Salt,
    /// Wakes one worker for each key that became ready, in the order of waiting.
    ready: Notify,
    /// Wakes the timer task when the next deadline moves forward.
    timer: Notify,
    /// Notified when the queue is closed.
    closing: Notify,
}

#[derive(Debug, Default)]
struct Intake {
    incoming: Vec<IncomingKey>,
    /// True if a worker waits for a key.
    awaited: bool,
}

/// A key that was added.
#[derive(Debug)]
struct IncomingKey {
    key: HashedKey,
    priority: Priority,
    cause: Cause,
    /// True if the cause is a change that the key may have made itself.
    may_be_echo: bool,
    since: Instant,
}

/// Limit of runs that may end before the intake is processed, while there are other keys.
const MAX_UNSORTED_RUNS: u32 = 16;
/// Limit of keys in the intake; beyond it, adding a key processes the intake.
const MAX_INTAKE: usize = 512;
/// Capacity that an idle queue keeps.
const MAX_IDLE_CAPACITY: usize = 32;

#[derive(Debug)]
struct Contents {
    state: State,
    barrier: Barrier,
    /// Changes during a run of a key; at the end of the run its own writes are known.
    meanwhile: BTreeMap<ObjectKey, Vec<(Trigger, Priority)>>,
    /// Number of workers that wait for a key, or are about to.
    waiting: usize,
    /// The time until which the timer task sleeps.
    alarm: Option<Instant>,
    closed: bool,
    /// True if another worker can take a key, since its namespace returned one.
    has_share: bool,
    stats: QueueStats,
    /// Number of runs that ended since the intake was processed.
    unsorted: u32,
    /// Buffer for processing the intake, which is reused.
    sorting: Vec<IncomingKey>,
}

/// Limit of stored changes during a run; more of them cause another run in any case.
const MAX_CONCURRENT_CHANGES: usize = 100;

/// A key to reconcile.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) item: Item,
    pub(crate) since: Instant,
    /// Caches that have not caught up with the writes of the key.
    pub(crate) stale: StaleReads,
}

/// Statistics of a queue, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct QueueStats {
    pub(crate) adds: u64,
    pub(crate) retries: u64,
    pub(crate) depth: usize,
    /// Keys that failed and wait because of the rate limit.
    pub(crate) throttled: usize,
    pub(crate) running: usize,
    /// Total time of all running keys.
    pub(crate) unfinished: Duration,
    pub(crate) longest: Duration,
    /// Changes that caused no reconcile, since they were the key's own writes.
    pub(crate) echoes: u64,
    /// Keys that were released before a cache had observed their writes.
    pub(crate) overdue: u64,
}

impl Queue {
    /// Creates an empty queue for these workers. Keys wait for their own writes up to `own_write_timeout`.
    pub(crate) fn new(
        backoff: Backoff,
        rate: RetryRate,
        own_write_timeout: Duration,
        workers: Workers,
        rng: &Rng,
    ) -> Self {
        let inner = Contents {
            state: State::new(backoff, rate, workers, rng),
            barrier: Barrier::new(own_write_timeout),
            meanwhile: BTreeMap::new(),
            waiting: 0,
            alarm: None,
            closed: false,
            has_share: false,
            stats: QueueStats::default(),
            unsorted: 0,
            sorting: Vec::new(),
        };
        Self {
            salt: inner.state.salt(),
            intake: Mutex::default(),
            inner: Mutex::new(inner),
            ready: Notify::new(),
            timer: Notify::new(),
            closing: Notify::new(),
        }
    }

    /// Adds a key.
    pub(crate) fn add(&self, key: &ObjectKey, priority: Priority, cause: Cause) {
        self.want(key, cause, false, priority);
    }

    /// Adds a key because of a change, unless the key made that change itself.
    pub(crate) fn trigger(&self, key: &ObjectKey, trigger: Trigger, priority: Priority) {
        self.want(key, Cause::Change(trigger), true, priority);
    }

    fn want(&self, key: &ObjectKey, cause: Cause, may_be_echo: bool, priority: Priority) {
        let incoming = IncomingKey { key: self.salt.hashed(key), priority, cause, may_be_echo, since: Instant::now() };
        let mut intake = lock(&self.intake);
        intake.incoming.push(incoming);
        let sort = intake.awaited || intake.incoming.len() >= MAX_INTAKE;
        drop(intake);
        if sort {
            self.change(|_, _| ());
        }
    }

    /// Waits for the next key; `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<Work> {
        loop {
            if let Some(found) = self.try_next(false) {
                return found;
            }
            // Registered before the second attempt, so that no key is missed in between.
            let mut ready = pin!(self.ready.notified());
            ready.as_mut().enable();
            if let Some(found) = self.try_next(true) {
                return found;
            }
            ready.await;
        }
    }

    /// Returns the next key, or `Some(None)` if the queue is closed; `None` if the caller has to wait.
    fn try_next(&self, in_line: bool) -> Option<Option<Work>> {
        self.change(|inner, now| {
            if inner.closed {
                return Some(None);
            }
            let work = inner.next(now);
            inner.waiting += usize::from(in_line && work.is_none());
            work.map(Some)
        })
    }

    /// Ends the run of a key, which wrote these objects, and returns another key if one is ready. `is_gone` returns
    /// true if a cache shows an object as deleted or being deleted.
    pub(crate) fn done(
        &self,
        item: &Item,
        next: NextStep,
        writes: Vec<Write>,
        is_gone: impl Fn(StoreId, &ObjectKey, &str) -> bool,
    ) -> Option<Work> {
        // The barrier recognizes later changes of this run as echoes.
        self.change_after(Contents::has_to_sort, |inner, now| {
            for (trigger, priority) in inner.meanwhile.remove(&item.key).unwrap_or_default() {
                if inner.barrier.is_echo(&item.key, &trigger, &writes) {
                    inner.stats.echoes += 1;
                } else {
                    inner.state.add(self.salt.hashed(&item.key), priority, Cause::Change(trigger), now);
                }
            }
            let held = inner.barrier.record_writes(&item.key, writes, now, is_gone);
            inner.state.done(item.ticket, next, held, now);
            if inner.closed {
                return None;
            }
            let work = inner.next(now);
            // A worker may have waited for the share of this namespace, while this one continues with another.
            inner.has_share = inner.waiting > 0 && inner.state.has_next();
            work
        })
    }

    /// Handles that a cache has reached a revision.
    pub(crate) fn observed(&self, store: StoreId, revision: u64) {
        self.change(|inner, now| {
            for key in inner.barrier.observed(store, revision) {
                inner.state.release(&key, now);
            }
        });
    }

    /// Handles that a list replaced a cache as of this revision; `is_gone` returns true for deleted objects.
    ///
    /// Objects may have been changed or deleted before the list without an event in the cache: so keys that wrote
    /// them are reconciled again.
    pub(crate) fn listed(&self, store: StoreId, revision: u64, is_gone: impl Fn(&ObjectKey, &str) -> bool) {
        self.change(|inner, now| {
            let (uncertain, free) = inner.barrier.listed(store, revision, is_gone);
            for key in inner.state.running_keys().into_iter().chain(uncertain) {
                inner.state.add(self.salt.hashed(&key), Priority::Fresh, Cause::Relist, now);
            }
            for key in free {
                inner.state.release(&key, now);
            }
        });
    }

    /// Handles that an object is deleted or being deleted.
    pub(crate) fn deleted(&self, store: StoreId, object: &ObjectKey, uid: &str) {
        self.change(|inner, now| {
            for key in inner.barrier.deleted(store, object, uid) {
                inner.state.release(&key, now);
            }
        });
    }

    /// Drops a key whose object does not exist any more.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.change(|inner, _| {
            inner.state.forget(key);
            inner.barrier.forget(key);
            inner.meanwhile.remove(key);
        });
    }

    /// Closes the queue: it hands out no more keys, and workers finish the reconciles under way.
    pub(crate) fn close(&self) {
        lock(&self.inner).closed = true;
        self.ready.notify_waiters();
        self.closing.notify_waiters();
    }

    /// Waits until the queue is closed.
    pub(crate) async fn closed(&self) {
        let closing = self.closing.notified();
        if !lock(&self.inner).closed {
            closing.await;
        }
    }

    /// Runs the timer of delayed keys.
    pub(crate) async fn watch_clock(&self) {
        loop {
            let earlier = self.timer.notified();
            let next = self.change(|inner, now| {
                inner.state.wake(now);
                for key in inner.barrier.overdue(now) {
                    if inner.state.release(&key, now) {
                        inner.stats.overdue += 1;
                    }
                }
                inner.alarm = inner.next_time(now);
                inner.alarm
            });
            let elapsed = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = earlier => {}
                () = elapsed => {}
            }
        }
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> QueueStats {
        self.change(|inner, now| {
            let mut stats = inner.stats;
            stats.adds = inner.state.adds;
            stats.retries = inner.state.retries;
            stats.depth = inner.state.ready();
            stats.throttled = inner.state.throttled();
            for since in inner.state.running() {
                stats.running += 1;
                stats.unfinished += now.saturating_duration_since(since);
                stats.longest = stats.longest.max(now.saturating_duration_since(since));
            }
            stats
        })
    }

    /// Changes the queue after processing the intake, and wakes the required tasks.
    fn change<T>(&self, change: impl FnOnce(&mut Contents, Instant) -> T) -> T {
        self.change_after(|_| true, change)
    }

    /// Changes the queue, after processing the intake if `sort` is set.
    fn change_after<T>(
        &self,
        sort: impl FnOnce(&mut Contents) -> bool,
        change: impl FnOnce(&mut Contents, Instant) -> T,
    ) -> T {
        // Checked before the lock is taken, which is contended.
        let now = Instant::now();
        let mut inner = lock(&self.inner);
        let ready = inner.state.ready();
        if sort(&mut inner) {
            self.sort_in(&mut inner);
        }
        let result = change(&mut inner, now);
        if inner.waiting > 0 {
            // Workers that start to wait from now on have not seen the intake.
            self.sort_in(&mut inner);
        }
        let has_share = usize::from(mem::take(&mut inner.has_share));
        let woken = inner.state.ready().saturating_sub(ready).max(has_share).min(inner.waiting);
        inner.waiting -= woken;
        let next = inner.next_time(now);
        let earlier = next.is_some_and(|next| inner.alarm.is_none_or(|alarm| next < alarm));
        if earlier {
            inner.alarm = next;
        }
        drop(inner);
        for _ in 0..woken {
            self.ready.notify_one();
        }
        if earlier {
            self.timer.notify_one();
        }
        result
    }

    /// Moves the keys of the intake into the lanes.
    fn sort_in(&self, inner: &mut Contents) {
        inner.unsorted = 0;
        let mut intake = lock(&self.intake);
        // From now on, adding a key processes the intake if a worker waits.
        intake.awaited = inner.waiting > 0;
        if intake.incoming.is_empty() {
            if intake.awaited {
                intake.incoming.shrink_to(MAX_IDLE_CAPACITY);
                inner.sorting.shrink_to(MAX_IDLE_CAPACITY);
            }
            return;
        }
        let mut incoming = mem::replace(&mut intake.incoming, mem::take(&mut inner.sorting));
        drop(intake);
        for key in incoming.drain(..) {
            inner.sort_in(key);
        }
        inner.sorting = incoming;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Code that holds the lock does not panic while the structures are inconsistent.
    mutex.lock()
}

impl Contents {
    /// Returns true if the intake is to be processed at the end of a run.
    fn has_to_sort(&mut self) -> bool {
        self.unsorted += 1;
        !self.state.has_fresh() || self.unsorted >= MAX_UNSORTED_RUNS
    }

    fn sort_in(&mut self, IncomingKey { key, priority, cause, may_be_echo, since }: IncomingKey) {
        if let (Cause::Change(trigger), true) = (&cause, may_be_echo) {
            if self.barrier.is_echo(key.key(), trigger, &[]) {
                self.stats.echoes += 1;
                return;
            }
            if self.state.is_running(&key) {
                let meanwhile = self.meanwhile.entry(key.key().clone()).or_default();
                if meanwhile.len() < MAX_CONCURRENT_CHANGES {
                    return meanwhile.push((trigger.clone(), priority));
                }
            }
        }
        self.state.add(key, priority, cause, since);
    }

    fn next(&mut self, now: Instant) -> Option<Work> {
        let item = self.state.next(now)?;
        Some(Work { stale: self.barrier.stale_reads(&item.key), since: now, item })
    }

    fn next_time(&self, now: Instant) -> Option<Instant> {
        self.state.next_delay(now).into_iter().chain(self.barrier.next_deadline()).min()
    }
}
