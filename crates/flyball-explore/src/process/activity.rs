//! The activity of a process: the time since which it sends nothing new.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::time::Instant;

/// The activity of a process, which shows when it has started up.
///
/// A process is busy while it sends requests that it has not sent before, such as those that fill its caches. A process
/// that polls sends the same requests again and again.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    state: Mutex<State>,
    exits: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    sent: BTreeSet<String>,
    /// `None` before the first request.
    last_new: Option<Instant>,
}

impl Activity {
    /// Starts again, for a new process.
    pub(crate) fn reset(&self) {
        *self.state.lock() = State::default();
    }

    /// Records a request.
    pub(crate) fn record(&self, request: String) {
        let mut state = self.state.lock();
        if state.sent.insert(request) {
            state.last_new = Some(Instant::now());
        }
    }

    /// Returns the time of the last new request; `None` if the process has not sent any.
    pub(crate) fn last_new(&self) -> Option<Instant> {
        self.state.lock().last_new
    }

    /// Records that a process ended by itself.
    pub(crate) fn record_exit(&self) {
        self.exits.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of processes that ended by themselves.
    pub(crate) fn exits(&self) -> u32 {
        self.exits.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn repeated_requests_are_no_activity() {
        let activity = Activity::default();
        assert_eq!(activity.last_new(), None);
        activity.record("GET /a".to_owned());
        let first = activity.last_new();
        sleep(Duration::from_secs(1)).await;
        activity.record("GET /a".to_owned());
        assert_eq!(activity.last_new(), first);
        activity.record("GET /b".to_owned());
        assert!(activity.last_new() > first);
        activity.reset();
        assert_eq!(activity.last_new(), None);
    }
}
