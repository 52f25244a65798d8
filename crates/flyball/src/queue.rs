//! Hands the keys of one controller to its workers.
//!
//! Takes keys from the caches' listeners and from the clock, gives each to one worker at a time. The order is decided by
//! [`State`], what waits for the controller's own writes by [`Barrier`]: plain structures that know of no task and no clock.
//! This file puts a lock around them and wakes whoever has to act.
//!
//! A reader could break: both structures change under one lock, so that the end of a run and the echo of its write cannot
//! miss one another; what comes in is sorted in before anything that follows on it, so that all happens in the order in
//! which it was said; a key that is ready passes no timer; and nobody is woken who does not wait, nor a lock taken for each
//! key, which is most of the time that a busy queue takes.

mod backoff;
mod barrier;
mod bucket;
mod lane;
mod measured;
mod metrics;
mod state;
mod table;

pub use backoff::Backoff;
pub(crate) use barrier::{Behind, Effect, Trigger, Write};
pub use bucket::RetryRate;
pub use measured::MeasuredQueue;
pub(crate) use metrics::{MonitoredQueue, QueueCollector};
use state::{Hashed, Salt};
pub(crate) use state::{Item, Next, Priority};

use crate::cache::StoreId;
use barrier::Barrier;
use flyball_core::{ObjectKey, Rng};
use state::State;
use std::collections::BTreeMap;
use std::mem;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The queue of one controller, and the barrier behind which its keys wait for their own writes.
#[derive(Debug)]
pub(crate) struct Queue {
    /// What came in and is not sorted in yet. Whoever tells of changes does not wait for those who take keys.
    intake: Mutex<Intake>,
    inner: Mutex<Inner>,
    salt: Salt,
    /// Wakes one worker for each key that became ready, the one that waited longest first.
    ready: Notify,
    /// Wakes whoever watches the clock, when there is something earlier to wait for.
    timer: Notify,
    /// Wakes whoever waits for the queue to be closed.
    closing: Notify,
}

#[derive(Debug, Default)]
struct Intake {
    wanted: Vec<Wanted>,
    /// Whether a worker waits for what comes in.
    awaited: bool,
}

/// A key that is wanted.
#[derive(Debug)]
struct Wanted {
    key: Hashed,
    priority: Priority,
    /// The change because of which it is wanted, if it may be one that the key made itself.
    trigger: Option<Trigger>,
    since: Instant,
}

/// So many runs may end before what came in is sorted in, while there are fresh keys to go on with.
const UNSORTED: u32 = 16;
/// So many keys that came in are sorted in by who brings the next one.
const INTAKE: usize = 512;
/// Room for more than this is given back when there is nothing to do.
const KEPT: usize = 32;

#[derive(Debug)]
struct Inner {
    state: State,
    barrier: Barrier,
    /// What changed while a worker had the key: at the end it is known which of it the worker did itself.
    meanwhile: BTreeMap<ObjectKey, Vec<(Trigger, Priority)>>,
    /// How many workers wait for a key, or will find out that they need not.
    waiting: usize,
    /// Until when whoever watches the clock will sleep.
    alarm: Option<Instant>,
    closed: bool,
    figures: Figures,
    /// How many runs ended since what came in was sorted in.
    unsorted: u32,
    /// The room of what is being sorted in, kept for the next time.
    sorting: Vec<Wanted>,
}

/// More changes than this while a worker has a key are not looked at one by one.
const MEANWHILE: usize = 100;

/// A key to work on.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) item: Item,
    pub(crate) since: Instant,
    /// What the key wrote that the caches do not show: to be read past them.
    pub(crate) behind: Behind,
}

/// What the metrics tell of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) adds: u64,
    pub(crate) retries: u64,
    pub(crate) depth: usize,
    /// Keys that failed and wait because so many others did.
    pub(crate) throttled: usize,
    pub(crate) running: usize,
    /// How long all running keys together have been running.
    pub(crate) unfinished: Duration,
    pub(crate) longest: Duration,
    /// Changes that caused no reconcile, since the key itself had made them.
    pub(crate) echoes: u64,
    /// Keys that went on before a cache had shown their writes.
    pub(crate) overdue: u64,
}

impl Queue {
    /// Makes an empty queue, whose keys wait no longer than `patience` for their own writes.
    pub(crate) fn new(backoff: Backoff, rate: RetryRate, patience: Duration, rng: &Rng) -> Self {
        let inner = Inner {
            state: State::new(backoff, rate, rng),
            barrier: Barrier::new(patience),
            meanwhile: BTreeMap::new(),
            waiting: 0,
            alarm: None,
            closed: false,
            figures: Figures::default(),
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

    /// Wants a key to be reconciled.
    pub(crate) fn add(&self, key: &ObjectKey, priority: Priority) {
        self.want(key, None, priority);
    }

    /// Wants a key to be reconciled because of a change, unless the key made that change itself.
    pub(crate) fn trigger(&self, key: &ObjectKey, trigger: Trigger, priority: Priority) {
        self.want(key, Some(trigger), priority);
    }

    fn want(&self, key: &ObjectKey, trigger: Option<Trigger>, priority: Priority) {
        let wanted = Wanted { key: self.salt.hashed(key), priority, trigger, since: Instant::now() };
        let mut intake = lock(&self.intake);
        intake.wanted.push(wanted);
        let sort = intake.awaited || intake.wanted.len() >= INTAKE;
        drop(intake);
        if sort {
            self.change(|_, _| ());
        }
    }

    /// Waits for the next key; `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<Work> {
        loop {
            if let Some(found) = self.take(false) {
                return found;
            }
            // Whoever found nothing stands in line before looking again, so that no key comes in between unnoticed.
            let mut ready = pin!(self.ready.notified());
            ready.as_mut().enable();
            if let Some(found) = self.take(true) {
                return found;
            }
            ready.await;
        }
    }

    /// Takes the next key, or says that there will be none; `None` if one has to be waited for.
    fn take(&self, in_line: bool) -> Option<Option<Work>> {
        self.change(|inner, now| {
            if inner.closed {
                return Some(None);
            }
            let work = inner.next(now);
            inner.waiting += usize::from(in_line && work.is_none());
            work.map(Some)
        })
    }

    /// Takes a key back from its worker, which wrote these objects, and hands out another if one is ready. `is_gone` tells
    /// that a cache shows an object as gone or going.
    pub(crate) fn done(
        &self,
        item: &Item,
        next: Next,
        writes: Vec<Write>,
        is_gone: impl Fn(StoreId, &ObjectKey, &str) -> bool,
    ) -> Option<Work> {
        // A change of this key that came in during the run and is sorted in later is known for an echo by the barrier.
        self.change_after(Inner::has_to_sort, |inner, now| {
            for (trigger, priority) in inner.meanwhile.remove(&item.key).unwrap_or_default() {
                if inner.barrier.is_echo(&item.key, &trigger, &writes) {
                    inner.figures.echoes += 1;
                } else {
                    inner.state.add(self.salt.hashed(&item.key), priority, now);
                }
            }
            let held = inner.barrier.wrote(&item.key, writes, now, is_gone);
            inner.state.done(item.ticket, next, held, now);
            if inner.closed { None } else { inner.next(now) }
        })
    }

    /// Takes in how far a cache has come.
    pub(crate) fn seen(&self, store: StoreId, revision: u64) {
        self.change(|inner, now| {
            for key in inner.barrier.seen(store, revision) {
                inner.state.release(&key, now);
            }
        });
    }

    /// Takes in that a list made a cache as of this revision, where `is_gone` tells that an object is gone or going.
    ///
    /// What a key wrote may have been changed or deleted before the list was made, without the cache ever showing it: so
    /// these keys look again.
    pub(crate) fn listed(&self, store: StoreId, revision: u64, is_gone: impl Fn(&ObjectKey, &str) -> bool) {
        self.change(|inner, now| {
            let (unsure, free) = inner.barrier.listed(store, revision, is_gone);
            for key in inner.state.running_keys().into_iter().chain(unsure) {
                inner.state.add(self.salt.hashed(&key), Priority::Fresh, now);
            }
            for key in free {
                inner.state.release(&key, now);
            }
        });
    }

    /// Takes in that an object is gone or going.
    pub(crate) fn deleted(&self, store: StoreId, object: &ObjectKey, uid: &str) {
        self.change(|inner, now| {
            for key in inner.barrier.deleted(store, object, uid) {
                inner.state.release(&key, now);
            }
        });
    }

    /// Drops a key whose object is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.change(|inner, _| {
            inner.state.forget(key);
            inner.barrier.forget(key);
            inner.meanwhile.remove(key);
        });
    }

    /// Gives out no more keys; workers finish what they have.
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

    /// Watches the clock for the keys that wait for a time.
    pub(crate) async fn watch_clock(&self) {
        loop {
            let earlier = self.timer.notified();
            let next = self.change(|inner, now| {
                inner.state.wake(now);
                for key in inner.barrier.overdue(now) {
                    if inner.state.release(&key, now) {
                        inner.figures.overdue += 1;
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

    /// Returns what the metrics tell.
    pub(crate) fn figures(&self) -> Figures {
        self.change(|inner, now| {
            let mut figures = inner.figures;
            figures.adds = inner.state.adds;
            figures.retries = inner.state.retries;
            figures.depth = inner.state.ready();
            figures.throttled = inner.state.throttled();
            for since in inner.state.running() {
                figures.running += 1;
                figures.unfinished += now.saturating_duration_since(since);
                figures.longest = figures.longest.max(now.saturating_duration_since(since));
            }
            figures
        })
    }

    /// Changes the queue as it is after all that came in, and wakes whoever has to act on it.
    fn change<T>(&self, change: impl FnOnce(&mut Inner, Instant) -> T) -> T {
        self.change_after(|_| true, change)
    }

    /// Changes the queue, after what came in if `sort` says so.
    fn change_after<T>(
        &self,
        sort: impl FnOnce(&mut Inner) -> bool,
        change: impl FnOnce(&mut Inner, Instant) -> T,
    ) -> T {
        // Asked before the lock is taken, which many want.
        let now = Instant::now();
        let mut inner = lock(&self.inner);
        let ready = inner.state.ready();
        if sort(&mut inner) {
            self.sort_in(&mut inner);
        }
        let result = change(&mut inner, now);
        if inner.waiting > 0 {
            // Whoever waits from now on has not seen what came in meanwhile.
            self.sort_in(&mut inner);
        }
        let woken = inner.state.ready().saturating_sub(ready).min(inner.waiting);
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

    /// Sorts in what came in, and says whether somebody waits for more.
    fn sort_in(&self, inner: &mut Inner) {
        inner.unsorted = 0;
        let mut intake = lock(&self.intake);
        // From now on, whoever brings something sorts it in if it is awaited.
        intake.awaited = inner.waiting > 0;
        if intake.wanted.is_empty() {
            if intake.awaited {
                intake.wanted.shrink_to(KEPT);
                inner.sorting.shrink_to(KEPT);
            }
            return;
        }
        let mut wanted = mem::replace(&mut intake.wanted, mem::take(&mut inner.sorting));
        drop(intake);
        for wanted in wanted.drain(..) {
            inner.sort_in(wanted);
        }
        inner.sorting = wanted;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while the structures are half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Tells whether it is time for what came in, when a run ends.
    fn has_to_sort(&mut self) -> bool {
        self.unsorted += 1;
        !self.state.has_fresh() || self.unsorted >= UNSORTED
    }

    fn sort_in(&mut self, Wanted { key, priority, trigger, since }: Wanted) {
        if let Some(trigger) = trigger {
            if self.barrier.is_echo(key.key(), &trigger, &[]) {
                self.figures.echoes += 1;
                return;
            }
            if self.state.is_running(&key) {
                let meanwhile = self.meanwhile.entry(key.key().clone()).or_default();
                if meanwhile.len() < MEANWHILE {
                    return meanwhile.push((trigger, priority));
                }
            }
        }
        self.state.add(key, priority, since);
    }

    fn next(&mut self, now: Instant) -> Option<Work> {
        let item = self.state.next(now)?;
        Some(Work { behind: self.barrier.behind(&item.key), since: now, item })
    }

    fn next_time(&self, now: Instant) -> Option<Instant> {
        self.state.next_delay(now).into_iter().chain(self.barrier.next_deadline()).min()
    }
}
