//! Reachability of the API server, shared by the watches of one client: one of them probes the server, the others wait.
//!
//! [`Probes`] decide which watch probes; this module sends them. Watches are independent of each other.
//!
//! Open streams are covered as well: they are closed when a server is available again after an outage, because events
//! may have been lost although a connection looks healthy.
//!
//! A probe requests the health of the server, which kube-apiserver returns immediately, even under load ([API
//! Priority and Fairness](https://kubernetes.io/docs/concepts/cluster-administration/flow-control/) exempts it), and
//! without authentication. This detects a hanging server quickly, while a list may take much longer to start.

use super::schedule::{ProbeStep, Probes, Schedule};
use super::session::is_gateway_error;
use crate::client::{HttpService, NoRetry};
use flyball_core::Rng;
use http::Request;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// Timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Size limit of a probe's response that is read so that its connection can be reused.
const MAX_PROBE_RESPONSE_BYTES: usize = 16 << 10;

/// Reachability of the server of a client, shared by its watches.
#[derive(Debug, Default)]
pub(crate) struct Reachability {
    probes: Mutex<Probes>,
    /// Notified when the server is available again.
    back: Notify,
    /// Notified when the server becomes unavailable, and when it is available again.
    availability_changed: Notify,
}

impl Reachability {
    /// Records data from the server. Errors of a load balancer do not count.
    pub(super) fn record_response(&self) {
        let mut probes = self.probes();
        let was_away = probes.is_unavailable();
        let was_missing = probes.record_response(Instant::now());
        drop(probes);
        if was_missing {
            self.back.notify_waiters();
        }
        if was_away {
            self.availability_changed.notify_waiters();
        }
    }

    /// Waits until the server becomes unavailable or available again, and returns true if it is available.
    pub(super) async fn availability_changed(&self) -> bool {
        self.availability_changed.notified().await;
        !self.probes().is_unavailable()
    }

    /// Probes the server after a period without data. Idle streams alone do not indicate an outage: a proxy may keep
    /// their connections open after the server has stopped.
    pub(crate) async fn probe_when_quiet(&self, client: &dyn HttpService, rng: Rng) {
        let (schedule, start) = (Schedule::new(rng), Instant::now());
        loop {
            let time = schedule.quiet();
            loop {
                let due = self.probes().quiet_at(start, time);
                if due <= Instant::now() {
                    break;
                }
                sleep_until(due).await;
            }
            self.probes().suspect(Instant::now());
            self.reached(client, &schedule).await;
        }
    }

    /// Records a request without a response.
    pub(super) fn missed(&self, schedule: &Schedule) {
        schedule.missed(&mut self.probes(), Instant::now());
    }

    /// Returns true if the server has sent nothing since a request without a response.
    pub(super) fn is_missing(&self) -> bool {
        self.probes().is_missing()
    }

    /// Waits until the server responds to this watch or another one, and returns true if it had been unavailable.
    pub(super) async fn reached(&self, client: &dyn HttpService, schedule: &Schedule) -> bool {
        loop {
            let back = self.back.notified();
            let turn = schedule.turn(&mut self.probes(), Instant::now());
            match turn {
                ProbeStep::Reached { was_away } => return was_away,
                ProbeStep::Probe => tokio::select! {
                    biased;
                    () = back => {}
                    is_there = probe(client) => if is_there { self.record_response() } else { self.failed() },
                },
                ProbeStep::Wait(next) => tokio::select! {
                    biased;
                    () = back => {}
                    () = sleep_until(next) => {}
                },
            }
        }
    }

    fn failed(&self) {
        if self.probes().failed() {
            self.availability_changed.notify_waiters();
        }
    }

    fn probes(&self) -> MutexGuard<'_, Probes> {
        self.probes.lock()
    }
}

/// Returns true if the server responds.
async fn probe(client: &dyn HttpService) -> bool {
    let get = Request::get("/livez").extension(NoRetry).body(Body::empty()).expect("the request is valid");
    let response = async {
        let response = client.send(get).await.ok()?;
        let code = response.status().as_u16();
        // The status code does not matter.
        let _ = Limited::new(response.into_body(), MAX_PROBE_RESPONSE_BYTES).collect().await;
        Some(code)
    };
    matches!(timeout(PROBE_TIMEOUT, response).await, Ok(Some(code)) if !is_gateway_error(code))
}
