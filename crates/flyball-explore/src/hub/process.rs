//! The processes of the operator in a run: their starts and crashes, and the faults that last for a time.

use super::{FREEZE, Hub, RESTART};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// A process of the operator.
#[derive(Debug)]
pub(super) struct Process {
    generation: u32,
    /// Number of starts.
    pub(super) starts: u64,
    /// Notified when the process crashes.
    crash: Arc<Notify>,
    /// Notified when the process receives SIGTERM.
    stop: Arc<Notify>,
    downtime: Duration,
    /// Number of crashes still to come, each at the next write.
    pub(super) crashes: u32,
    /// The process is served by a replica that shows this revision, until a time.
    frozen: Option<(u64, Instant)>,
    /// Time until which the API server is unreachable.
    partition: Option<Instant>,
    /// Time until which watches deliver nothing.
    silence: Option<Instant>,
    /// Resources of which the process has an incomplete list.
    pub(super) truncated: BTreeSet<String>,
    /// Time until which writes of the lease fail.
    lease_block: Option<Instant>,
    /// Offset of the wall clock in seconds.
    pub(super) skew: i64,
    /// UIDs of the objects that the process has observed, by kind and key.
    pub(super) observed: BTreeMap<String, BTreeSet<String>>,
}

impl Process {
    pub(super) fn new() -> Self {
        Self {
            generation: 0,
            starts: 0,
            crash: Arc::default(),
            stop: Arc::default(),
            downtime: RESTART,
            crashes: 0,
            frozen: None,
            partition: None,
            silence: None,
            truncated: BTreeSet::new(),
            lease_block: None,
            skew: 0,
            observed: BTreeMap::new(),
        }
    }
}

impl Hub {
    /// Records the start of a process; returns its generation, and the signals that end it.
    pub(crate) fn start(&self, process: u8) -> (u32, Arc<Notify>, Arc<Notify>) {
        self.with(process, |process| {
            process.generation += 1;
            process.starts += 1;
            (process.crash, process.stop) = Default::default();
            process.downtime = RESTART;
            process.observed.clear();
            (process.generation, process.crash.clone(), process.stop.clone())
        })
    }

    /// Returns true if a process still runs.
    pub(crate) fn is_alive(&self, process: u8, generation: u32) -> bool {
        self.with(process, |process| process.generation == generation)
    }

    /// Ends a process at once. It starts again after the downtime.
    pub(crate) fn crash(&self, process: u8, downtime: Duration) {
        self.lasts(downtime);
        let downtime = self.pace.of(downtime);
        self.with(process, |process| {
            process.generation += 1;
            process.downtime = downtime;
            process.crash.notify_one();
        });
    }

    /// Sends SIGTERM to a process.
    pub(crate) fn terminate(&self, process: u8) {
        self.lasts(Duration::from_secs(30));
        self.with(process, |process| process.stop.notify_one());
    }

    pub(crate) fn downtime(&self, process: u8) -> Duration {
        self.with(process, |process| process.downtime)
    }

    /// Schedules crashes at the next writes.
    pub(crate) fn schedule_crashes(&self, process: u8, crashes: u32) {
        self.with(process, |process| process.crashes = crashes);
    }

    /// Returns true if the process crashes at this write.
    pub(crate) fn takes_crash(&self, process: u8) -> bool {
        self.with(process, |process| {
            let crashes = process.crashes > 0;
            process.crashes = process.crashes.saturating_sub(1);
            crashes
        })
    }

    /// Serves a process by a replica that is frozen at a revision.
    pub(crate) fn freeze(&self, process: u8, revision: u64) {
        let until = self.lasts(FREEZE);
        self.with(process, |process| process.frozen = Some((revision, until)));
    }

    /// Returns the revision that lists and watches of a process show, if it is not the current one.
    pub(crate) fn frozen(&self, process: u8) -> Option<u64> {
        self.with(process, |process| process.frozen.filter(|(_, until)| *until > Instant::now()).map(|(at, _)| at))
    }

    pub(crate) fn partition(&self, process: u8, time: Duration) {
        let until = self.lasts(time);
        self.with(process, |process| process.partition = Some(until));
    }

    pub(crate) fn silence_watches(&self, process: u8, time: Duration) {
        let until = self.lasts(time);
        self.with(process, |process| process.silence = Some(until));
    }

    pub(crate) fn block_lease(&self, process: u8, time: Duration) {
        let until = self.lasts(time);
        self.with(process, |process| process.lease_block = Some(until));
    }

    pub(crate) fn skew(&self, process: u8, seconds: i32) {
        self.with(process, |process| process.skew += i64::from(seconds));
    }

    /// Closes all connections, and rejects requests for this time.
    pub(crate) fn restart_server(&self, time: Duration) {
        let until = self.lasts(time);
        let mut state = self.state();
        state.restarting = Some(until);
        state.restarts += 1;
        drop(state);
        self.released.notify_waiters();
    }

    pub(crate) fn silence_webhooks(&self, time: Duration) {
        let until = self.lasts(time);
        self.state().webhooks_silent = Some(until);
    }

    pub(crate) fn has_webhooks(&self) -> bool {
        self.state().webhooks_silent.is_none_or(|until| until <= Instant::now())
    }

    pub(crate) fn is_partitioned(&self, process: u8) -> bool {
        self.with(process, |process| process.partition.is_some_and(|until| until > Instant::now()))
    }

    pub(crate) fn blocks_lease(&self, process: u8) -> bool {
        self.with(process, |process| process.lease_block.is_some_and(|until| until > Instant::now()))
    }

    pub(crate) fn is_server_restarting(&self) -> bool {
        self.state().restarting.is_some_and(|until| until > Instant::now())
    }

    /// Returns the number of restarts of the API server.
    pub(crate) fn server_restarts(&self) -> u32 {
        self.state().restarts
    }

    /// Waits until the API server restarts.
    pub(crate) async fn server_restarted(&self, restarts: u32) {
        loop {
            let released = self.released.notified();
            if self.server_restarts() != restarts {
                return;
            }
            released.await;
        }
    }

    /// Waits until an event of this revision can reach a process.
    pub(crate) async fn until_visible(&self, process: u8, revision: u64) {
        loop {
            let block = self.with(process, |process| {
                let frozen = process.frozen.filter(|(at, _)| revision > *at).map(|(_, until)| until);
                let blocks = [frozen, process.silence, process.partition];
                blocks.into_iter().flatten().filter(|until| *until > Instant::now()).max()
            });
            match block {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }
}
