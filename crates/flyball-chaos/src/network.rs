//! Faults of the requests of an operator that runs as a process, decided for each request. No sockets here.

use flyball_core::{Reason, Status};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// A fault between the operator and the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NetworkFault {
    /// Nothing arrives, and connections break.
    Partition,
    /// Each request is late.
    Latency(Duration),
    /// Each n-th request fails with this code, without an effect.
    Errors {
        /// The code: 409, 429, 500, 503 or 504.
        code: u16,
        /// The n.
        every: u64,
    },
    /// The response of each n-th write is lost, and its connection breaks.
    LostResponses {
        /// The n.
        every: u64,
    },
    /// All connections break at this interval, with their watches.
    WatchCut(Duration),
}

/// Reaction of the proxy to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    Forward,
    /// Forwards it after a time.
    Delay(Duration),
    /// Responds with an error.
    Reject(u16),
    /// Forwards it, and breaks the connection.
    LoseResponse,
    /// Responds never.
    Hang,
}

/// The network of an operator; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Network(Arc<State>);

#[derive(Debug, Default)]
struct State {
    fault: Mutex<Option<NetworkFault>>,
    changed: Notify,
    cut: Notify,
    requests: AtomicU64,
    /// Requests since the fault began, and writes among them.
    matching: AtomicU64,
}

impl Network {
    /// Begins a fault.
    pub(crate) fn inject(&self, fault: NetworkFault) {
        let breaks = matches!(fault, NetworkFault::Partition | NetworkFault::WatchCut(_));
        *self.0.fault.lock() = Some(fault);
        self.0.matching.store(0, Ordering::Relaxed);
        self.0.changed.notify_waiters();
        if breaks {
            self.0.cut.notify_waiters();
        }
    }

    /// Ends the fault. Requests without a response break, as after a partition.
    pub(crate) fn clear(&self) {
        let had_fault = self.0.fault.lock().take().is_some();
        self.0.changed.notify_waiters();
        if had_fault {
            self.0.cut.notify_waiters();
        }
    }

    /// Returns the number of requests.
    pub(crate) fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Returns the reaction to the next request.
    pub(crate) fn react(&self, is_write: bool) -> Reaction {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        let fault = self.0.fault.lock();
        let is_nth = |every: u64| (self.0.matching.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every.max(1));
        match &*fault {
            None | Some(NetworkFault::WatchCut(_)) => Reaction::Forward,
            Some(NetworkFault::Partition) => Reaction::Hang,
            Some(NetworkFault::Latency(delay)) => Reaction::Delay(*delay),
            Some(NetworkFault::Errors { code, every }) if is_nth(*every) => Reaction::Reject(*code),
            Some(NetworkFault::LostResponses { every }) if is_write && is_nth(*every) => Reaction::LoseResponse,
            Some(NetworkFault::Errors { .. } | NetworkFault::LostResponses { .. }) => Reaction::Forward,
        }
    }

    /// Waits until connections break.
    pub(crate) async fn cut(&self) {
        self.0.cut.notified().await;
    }

    /// Breaks connections at the interval of a fault, forever.
    pub(crate) async fn run(&self) {
        loop {
            let changed = self.0.changed.notified();
            let interval = match &*self.0.fault.lock() {
                Some(NetworkFault::WatchCut(interval)) => Some(*interval),
                _ => None,
            };
            match interval {
                Some(interval) => {
                    tokio::time::sleep(interval).await;
                    self.0.cut.notify_waiters();
                }
                None => changed.await,
            }
        }
    }
}

/// Returns the error of a rejected request, as the API server formats it.
pub(crate) fn status(code: u16) -> Status {
    let reason = match code {
        409 => Reason::Conflict,
        429 => Reason::TooManyRequests,
        503 => Reason::ServiceUnavailable,
        504 => Reason::Timeout,
        _ => Reason::InternalError,
    };
    Status::new(code, reason, "rejected by an experiment of flyball chaos")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nth_request_is_concerned() {
        let network = Network::default();
        assert_eq!(network.react(true), Reaction::Forward);
        network.inject(NetworkFault::Errors { code: 500, every: 3 });
        let reactions: Vec<Reaction> = (0..4).map(|_| network.react(false)).collect();
        let (forward, reject) = (Reaction::Forward, Reaction::Reject(500));
        assert_eq!(reactions, [forward, forward, reject, forward]);
        network.inject(NetworkFault::LostResponses { every: 2 });
        let reactions: Vec<Reaction> = [true, false, true, true].map(|is_write| network.react(is_write)).to_vec();
        assert_eq!(reactions, [forward, forward, Reaction::LoseResponse, forward]);
        network.inject(NetworkFault::Partition);
        assert_eq!(network.react(false), Reaction::Hang);
        network.clear();
        assert_eq!((network.react(false), network.requests()), (forward, 11));
    }
}
