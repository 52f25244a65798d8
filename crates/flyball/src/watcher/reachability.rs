//! What the watches of one client share while their server cannot be reached: one of them looks for it, the others
//! follow.
//!
//! The shell around [`Probes`], which decide whose turn it is. A watch asks for nothing but to go on; it knows of no
//! other watch.

use super::schedule::{Probes, Schedule, Turn};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

/// Whether the server of a client can be reached, as far as its watches know.
#[derive(Debug, Default)]
pub(crate) struct Reachability {
    probes: Mutex<Probes>,
    /// Rings when the server is back.
    back: Notify,
}

impl Reachability {
    /// Takes in that the server answered, whatever it said.
    pub(super) fn answered(&self) {
        if self.probes().answered() {
            self.back.notify_waiters();
        }
    }

    /// Takes in that a request got no answer.
    pub(super) fn missed(&self, schedule: &mut Schedule) {
        schedule.missed(&mut self.probes(), Instant::now());
    }

    /// Waits until this watch is to send its next request: because another one reached the server, or to look for it.
    pub(super) async fn wait(&self, schedule: &Schedule) {
        loop {
            let back = self.back.notified();
            let turn = schedule.turn(&mut self.probes(), Instant::now());
            match turn {
                Turn::Reached => return sleep(schedule.follow()).await,
                Turn::Probe => return,
                Turn::Wait(next) => tokio::select! {
                    biased;
                    () = back => {}
                    () = sleep_until(next) => {}
                },
            }
        }
    }

    fn probes(&self) -> MutexGuard<'_, Probes> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
