//! The gate that blocks the writes of a replica while it is not the leader.

use http::{Method, Request, header::UPGRADE};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The gate for all writes of a leader.
///
/// It is closed until it is [opened](Self::open_until), and closes at a deadline. So a process that was paused, or
/// cannot reach the API server, stops writing without further action.
#[derive(Debug)]
pub(crate) struct Gate {
    lease: String,
    until: Mutex<Option<Instant>>,
}

/// A write was not sent, because this replica is not the leader.
#[derive(Debug, thiserror::Error)]
#[error("write not sent: this replica does not hold the lease {lease}")]
pub(super) struct NotLeading {
    lease: String,
}

/// The gate was closed during a write.
#[derive(Debug, thiserror::Error)]
#[error("this replica lost its lease during the request, which may have been processed")]
pub(super) struct LeaseLost;

impl Gate {
    /// Creates a closed gate for this lease.
    pub(crate) fn new(lease: String) -> Self {
        Self { lease, until: Mutex::default() }
    }

    /// Opens the gate until a deadline.
    pub(crate) fn open_until(&self, until: Instant) {
        *self.until.lock() = Some(until);
    }

    /// Closes the gate.
    pub(crate) fn shut(&self) {
        *self.until.lock() = None;
    }

    /// Returns true if the gate is open.
    pub(crate) fn is_open(&self) -> bool {
        self.until().is_some()
    }

    /// Returns the deadline of the gate; `None` if it is closed.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.lock().filter(|until| Instant::now() < *until)
    }

    /// Returns true if a request may write and must pass the gate.
    pub(super) fn stops<B>(request: &Request<B>) -> bool {
        // Upgraded requests run commands in pods and connect to them, even with GET.
        !matches!(*request.method(), Method::GET | Method::HEAD) || request.headers().contains_key(UPGRADE)
    }

    /// Returns an error for a request that may write while the gate is closed.
    pub(super) fn pass<B>(&self, request: &Request<B>) -> Result<(), NotLeading> {
        match !Self::stops(request) || self.is_open() {
            true => Ok(()),
            false => Err(NotLeading { lease: self.lease.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn gate_closes_at_the_deadline_for_writes_only() {
        let gate = Gate::new("ns/op".into());
        let passes = |method: Method, upgrade: bool| {
            let mut request = Request::builder().method(method).uri("/api/v1/namespaces/ns/pods/a/exec");
            if upgrade {
                request = request.header(UPGRADE, "websocket");
            }
            gate.pass(&request.body(()).unwrap()).is_ok()
        };
        let writes = || [(Method::POST, false), (Method::PATCH, false), (Method::DELETE, false), (Method::GET, true)];
        assert!(writes().into_iter().all(|(method, upgrade)| !passes(method, upgrade)) && passes(Method::GET, false));
        gate.open_until(Instant::now() + Duration::from_secs(10));
        assert!(writes().into_iter().all(|(method, upgrade)| passes(method, upgrade)));
        advance(Duration::from_secs(10)).await;
        assert!(writes().into_iter().all(|(method, upgrade)| !passes(method, upgrade)) && passes(Method::GET, false));
        gate.open_until(Instant::now() + Duration::from_secs(10));
        gate.shut();
        assert!(!passes(Method::PUT, false) && !gate.is_open());
    }
}
