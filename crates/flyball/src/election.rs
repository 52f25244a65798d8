//! Leader election among the replicas of an operator, by a Lease.
//!
//! See <https://kubernetes.io/docs/concepts/architecture/leases/>. The [`Elector`], a state machine without I/O,
//! makes the decisions; this file sends requests and waits. The lease prevents other replicas from leading; the
//! [`Gate`] prevents this one from writing while it is not the leader.

mod elector;
mod metrics;
#[cfg(test)]
mod tests;

use crate::context::Environment;
use crate::events::{Event, Recorder};
pub(crate) use metrics::ElectionMetrics;

use crate::cache::{CachedPart, Change, LastError, Listener, Selection, Store, StoreId, Writer};
use crate::client::{Gate, exchange};
use crate::error::chain;
use crate::kind::Kind;
use crate::latch::Latch;
use elector::Elector;
use flyball_core::{Clock, ObjectKey, Rng};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// Settings of leader election: the replicas of an operator agree on the one that is active.
///
/// It is the protocol of client-go, on a [Lease](https://kubernetes.io/docs/concepts/architecture/leases/): replicas
/// in Go and in Rust interoperate. The defaults are client-go's as well.
///
/// ```
/// # use flyball::{LeaderElection, Operator};
/// # use std::time::Duration;
/// let election = LeaderElection { lease: Some("site-operator-v2".into()), ..LeaderElection::default() };
/// let operator = Operator::new("site-operator").namespace("sites").leader_election(election);
/// assert_eq!(operator.manifests()[1]["metadata"]["name"], "site-operator-leader-election");
/// ```
///
/// A replica fills its caches first, and takes part in the election when they are filled, or after
/// [`lease_duration`](Self::lease_duration) at the latest: the next leader continues without delay.
///
/// # Guarantees
///
/// - A follower has filled caches and serves webhooks, metrics and health, but reconciles nothing.
/// - A leader sends no write (events and status included) once [`renew_deadline`](Self::renew_deadline) has passed
///   since it *sent* its last successful renewal, while others wait for [`lease_duration`](Self::lease_duration) since
///   they *observed* it. This holds after any pause or network partition: each write checks the clock before it is
///   sent, and a write under way is canceled and its connection closed. The wall clock is written to the lease, but
///   never compared.
/// - When the lease is lost, [`Operator::run`](crate::Operator::run) returns
///   [`RunError::LeadershipLost`](crate::RunError::LeadershipLost), and [`main`](crate::Operator::main) exits with
///   code 1, to be restarted with a clean state. The events `BecameLeader` and `LostLeadership` of the lease report
///   it.
/// - A clean shutdown finishes reconciles and then releases the lease; another replica takes over within a second.
///
/// # Limits
///
/// - A write that was sent in time may reach the API server late, if the connection delays it for longer than
///   `lease_duration - renew_deadline`. Protect writes that must not be repeated by preconditions (resource version,
///   UID).
/// - Side effects other than through [`Context`](crate::Context) are not stopped.
/// - A machine that sleeps, or a suspended virtual machine, may stop the clock that leases are measured by.
/// - Editing or deleting a lease by hand may result in two leaders, until the first one observes it by its watch of the
///   lease or at its next renewal.
#[doc(alias = "LeaderElectionConfig")]
#[doc(alias = "LeaseLock")]
#[doc(alias = "peering")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "LeaderElectionReleaseOnCancel")]
pub struct LeaderElection {
    /// Name of the lease in the operator's [namespace](crate::Operator::namespace); defaults to the operator's name.
    pub lease: Option<String>,
    /// Time without a renewal after which another replica takes over: 15 seconds, rounded down to whole seconds.
    #[doc(alias = "LeaseDuration")]
    pub lease_duration: Duration,
    /// Time in which the leader tries to renew the lease before it gives up: 10 seconds.
    #[doc(alias = "RenewDeadline")]
    pub renew_deadline: Duration,
    /// Interval at which the leader renews the lease: 2 seconds. Other replicas check it at the same interval, with
    /// jitter.
    #[doc(alias = "RetryPeriod")]
    pub retry_period: Duration,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            lease: None,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Maximum jitter of a follower's retry period, as a factor added to it.
const JITTER_FACTOR: f64 = 1.2;

impl LeaderElection {
    /// Returns the reason why the settings are invalid.
    pub(crate) fn validation_error(&self) -> Option<&'static str> {
        match () {
            () if self.retry_period.is_zero() => Some("the retry period must be greater than zero"),
            () if self.renew_deadline <= self.retry_period.mul_f64(JITTER_FACTOR) => {
                Some("the renew deadline must be greater than 1.2 times the retry period")
            }
            () if Duration::from_secs(self.lease_duration.as_secs()) <= self.renew_deadline => {
                Some("the lease duration, in whole seconds, must be greater than the renew deadline")
            }
            () => None,
        }
    }
}

/// The state of an election that other modules read.
#[derive(Debug)]
pub(crate) struct LeadershipState {
    /// `namespace/name`.
    pub(crate) lease: ObjectKey,
    pub(crate) gate: Arc<Gate>,
    /// Opens when this replica becomes the leader.
    pub(crate) leads: Arc<Latch>,
    seen: Mutex<(String, Option<LastError>)>,
}

impl LeadershipState {
    pub(crate) fn new(lease: ObjectKey) -> Self {
        let gate = Arc::new(Gate::new(lease.to_string()));
        Self { lease, gate, leads: Arc::default(), seen: Mutex::default() }
    }

    /// Returns the leader, and the last error of this replica.
    pub(crate) fn observed(&self) -> (String, Option<LastError>) {
        self.seen.lock().clone()
    }

    /// Sets the leader and the last error, and returns true if one of them changed.
    pub(crate) fn observe(&self, holder: &str, last_error: Option<String>) -> bool {
        let mut seen = self.seen.lock();
        let news = seen.0 != holder || seen.1.as_ref().map(|known| &known.message) != last_error.as_ref();
        let since = seen.1.as_ref().map_or_else(Instant::now, |known| known.since);
        *seen = (holder.to_owned(), last_error.map(|message| LastError { since, message }));
        news
    }
}

/// The participation of one replica in an election.
pub(crate) struct Election {
    client: kube::Client,
    clock: Clock,
    rng: Rng,
    settings: LeaderElection,
    elector: Elector,
    leadership: Arc<LeadershipState>,
    master: Gauge,
    recorder: Arc<Recorder>,
    /// Notified when another replica changed the lease.
    notify: Arc<Notify>,
}

/// The outcome of an election for this replica.
#[derive(Debug)]
pub(crate) enum ElectionOutcome {
    Stopped,
    Lost(String),
}

impl Election {
    /// Creates the elector of a replica; its identity is `instance` and a random suffix.
    pub(crate) fn new(
        env: &Environment,
        rng: &Rng,
        settings: LeaderElection,
        instance: &str,
        leadership: Arc<LeadershipState>,
        master: Gauge,
    ) -> Self {
        let (client, clock, recorder) = (env.client.kube().clone(), env.clock.clone(), env.recorder.clone());
        let rng = rng.fork("leader election");
        let elector = Elector::new(format!("{instance}_{}", rng.uuid()), settings.clone());
        Self { client, clock, rng, settings, elector, leadership, master, recorder, notify: Arc::default() }
    }

    /// Creates a store for the lease, whose changes trigger this replica.
    pub(crate) fn watched(&self) -> Writer {
        let namespace = self.leadership.lease.namespace().map(Into::into);
        // A role can allow access to this object without allowing the others.
        let alone = CachedPart { selection: Selection::named(self.leadership.lease.name()), ..CachedPart::default() };
        let (_, mut writer) = Store::of(0, Kind::of::<Lease>(), namespace, alone.into());
        let identity = self.elector.identity().to_owned();
        writer.subscribe(Arc::new(LeaseListener { identity, notify: self.notify.clone() }));
        writer
    }

    /// Competes for the lease once `warm` completes, and leads until the shutdown, which releases the lease, or until
    /// the lease is lost.
    pub(crate) async fn run(mut self, warm: impl Future<Output = ()>, stop: Arc<Latch>) -> ElectionOutcome {
        // Replicas with filled caches are preferred. But a cache that cannot be filled must not block the election.
        tokio::select! {
            biased;
            () = stop.wait() => return ElectionOutcome::Stopped,
            _ = timeout(self.settings.lease_duration, warm) => {}
        }
        tracing::info!(lease = %self.leadership.lease, identity = self.elector.identity(), "waiting to lead");
        let outcome = self.lead(&stop).await;
        self.leadership.gate.shut();
        match outcome {
            ElectionOutcome::Stopped => self.release().await,
            ElectionOutcome::Lost(_) => self.publish_event("LostLeadership", "stopped leading"),
        }
        self.master.set(0);
        outcome
    }

    async fn lead(&mut self, stop: &Latch) -> ElectionOutcome {
        let unrenewed = || ElectionOutcome::Lost("not renewed in time".into());
        loop {
            let until = self.elector.until();
            // Half of the remaining time, so that a hanging request leaves time for another one.
            let round_timeout = self.settings.renew_deadline / 2;
            let round = tokio::select! {
                biased;
                () = stop.wait() => return ElectionOutcome::Stopped,
                () = expired(until) => return unrenewed(),
                round = timeout(round_timeout, self.round()) => round,
            };
            self.record_round(round.unwrap_or_else(|_| Err(kube::Error::Service("the request timed out".into()))));
            let leads = self.elector.until();
            if until.is_some() && leads.is_none() {
                return ElectionOutcome::Lost(format!("held by {:?}", self.elector.holder()));
            }
            let jitter = if leads.is_some() { 0.0 } else { JITTER_FACTOR * self.rng.fraction() };
            let now = Instant::now();
            let next = now + self.settings.retry_period.mul_f64(1.0 + jitter);
            let next = self.elector.expires_at().filter(|at| *at > now).map_or(next, |at| at.min(next));
            tokio::select! {
                biased;
                () = stop.wait() => return ElectionOutcome::Stopped,
                () = expired(leads) => return unrenewed(),
                () = self.notify.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Reads the lease unless its state is known, and acquires or renews it if possible.
    async fn round(&mut self) -> kube::Result<()> {
        let mut known = self.elector.is_current();
        loop {
            if !known {
                let found = self.get().await?;
                self.elector.record_lease(found, Instant::now());
            }
            let sent = Instant::now();
            let Some(lease) = self.elector.next(sent, self.clock.now()) else { return Ok(()) };
            match self.write(lease).await {
                Ok(lease) => {
                    self.elector.record_write_response(lease, sent);
                    return Ok(());
                }
                Err(error) => {
                    self.elector.failed();
                    match (std::mem::take(&mut known), &error) {
                        // The known state may be stale: read the lease again.
                        (true, _) => {}
                        // Another replica was faster. Its lease is observed at once, without waiting for the watch or
                        // the next round: the time until it expires begins with the observation.
                        (false, kube::Error::Api(status)) if status.code == 409 => {
                            let found = self.get().await?;
                            self.elector.record_lease(found, Instant::now());
                            return Ok(());
                        }
                        (false, _) => return Err(error),
                    }
                }
            }
        }
    }

    /// Handles the result of a round.
    fn record_round(&mut self, round: kube::Result<()>) {
        let failure = round.err().map(|error| {
            self.elector.failed();
            chain(&error)
        });
        let lease = &self.leadership.lease;
        if let Some(until) = self.elector.until() {
            self.leadership.gate.open_until(until);
            self.master.set(1);
            if !self.leadership.leads.is_open() {
                tracing::info!(%lease, "leading");
                self.leadership.leads.open();
                self.publish_event("BecameLeader", "became leader");
            }
        } else {
            self.leadership.gate.shut();
        }
        if self.leadership.observe(self.elector.holder(), failure.clone()) {
            match failure {
                Some(error) => tracing::warn!(%lease, error, "leader election failed, trying again"),
                None => tracing::info!(%lease, leader = self.elector.holder(), "observed the leader"),
            }
        }
    }

    /// Publishes an event about the lease, for `kubectl describe lease`.
    fn publish_event(&self, reason: &str, what: &str) {
        let event = Event::normal(reason, format!("{} {what}", self.elector.identity())).action("LeaderElection");
        let kind = Kind::of::<Lease>();
        self.recorder.record(&kind, &self.leadership.lease, self.elector.uid(), event, None, self.clock.now());
    }

    /// Releases the lease, after the last write.
    async fn release(&mut self) {
        // A write without a response may have acquired the lease.
        if self.elector.next(Instant::now(), self.clock.now()).is_none() {
            return;
        }
        let release = async {
            for attempt in 0.. {
                if !self.elector.is_current() {
                    let found = self.get().await?;
                    self.elector.record_lease(found, Instant::now());
                }
                let Some(lease) = self.elector.released(self.clock.now()) else { return Ok(false) };
                match self.write(lease).await {
                    Ok(_) => return Ok(true),
                    Err(error) if attempt > 0 => return Err(error),
                    Err(_) => self.elector.failed(),
                }
            }
            Ok(false)
        };
        let released = release.await;
        let lease = &self.leadership.lease;
        match released {
            Ok(true) => tracing::info!(%lease, "released"),
            Ok(false) => tracing::debug!(%lease, "the lease was no longer held"),
            Err(error) => {
                tracing::warn!(%lease, error = chain(&error), "cannot release the lease: other replicas wait until it expires")
            }
        }
    }

    fn path(&self) -> String {
        Kind::of::<Lease>().path(self.leadership.lease.namespace())
    }

    async fn get(&self) -> kube::Result<Option<Value>> {
        let url = format!("{}/{}", self.path(), self.leadership.lease.name());
        match self.send(Method::GET, url, &Value::Null).await {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the lease, or replaces the state that the write is based on.
    async fn write(&self, mut lease: Value) -> kube::Result<Value> {
        let name = self.leadership.lease.name();
        match lease["metadata"]["resourceVersion"].is_string() {
            true => self.send(Method::PUT, format!("{}/{name}", self.path()), &lease).await,
            false => {
                lease["apiVersion"] = "coordination.k8s.io/v1".into();
                lease["kind"] = "Lease".into();
                lease["metadata"] = json!({"name": name, "namespace": self.leadership.lease.namespace()});
                self.send(Method::POST, self.path(), &lease).await
            }
        }
    }

    async fn send(&self, method: Method, url: String, lease: &Value) -> kube::Result<Value> {
        let body = if lease.is_null() { Vec::new() } else { lease.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(url).header(CONTENT_TYPE, "application/json").body(body);
        let response = exchange(&self.client, request.map_err(kube::Error::HttpError)?).await?;
        let lease = serde_json::from_slice::<Map<String, Value>>(&response);
        lease.map(Value::Object).map_err(kube::Error::SerdeError)
    }
}

/// Waits until this replica loses leadership; never completes without an election.
async fn expired(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Triggers a replica when another one changes the lease. So a follower knows the time of the last renewal and
/// acquires a released lease immediately, and a leader detects the loss of its lease early. Polling covers events
/// that the watch misses.
#[derive(Debug)]
struct LeaseListener {
    identity: String,
    notify: Arc<Notify>,
}

impl Listener for LeaseListener {
    fn changed(&self, change: &Change<'_>) {
        let lease = change.new.and_then(|lease| lease.decode::<Lease>().ok());
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        if holder != self.identity {
            self.notify.notify_one();
        }
    }

    fn observed(&self, _: StoreId, _: u64) {}

    fn listed(&self, _: &Store, _: u64) {}
}
