//! The decisions of a replica about a Lease: a state machine without I/O.
//!
//! Times of other machines are never compared with the local clock. A lease has expired when its record has not
//! changed for the duration in it, by the clock of the observer. The holder counts from the moment *before* it sent a
//! renewal, which no observer can have seen earlier, so it stops before another replica can take over.
//!
//! Invariant: a write is always based on the state that was read, so that the resource version allows only one of
//! several replicas to succeed.

use super::LeaderElection;
use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339, rfc3339_micro};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The view of one replica.
#[derive(Debug)]
pub(super) struct Elector {
    identity: String,
    settings: LeaderElection,
    /// The lease as last read, and since when its record is unchanged. A deleted lease counts for the same time.
    seen: Option<(Value, Instant)>,
    /// True while the known lease is assumed to be current.
    current: bool,
    /// True if the lease did not exist at the last read.
    is_missing: bool,
    /// The time at which the write was sent by which this replica holds the lease.
    renewed: Option<Instant>,
}

impl Elector {
    pub(super) fn new(identity: String, settings: LeaderElection) -> Self {
        Self { identity, settings, seen: None, current: false, is_missing: false, renewed: None }
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns true if the next write needs no read of the lease.
    pub(super) fn is_current(&self) -> bool {
        self.current && self.renewed.is_some()
    }

    /// Returns when this replica stops leading unless it renews the lease, `None` if it does not lead.
    pub(super) fn until(&self) -> Option<Instant> {
        self.renewed.map(|renewed| renewed + self.settings.renew_deadline)
    }

    /// Returns the last known holder of the lease; empty if there is none.
    pub(super) fn holder(&self) -> &str {
        self.seen.as_ref().and_then(|(lease, _)| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default()
    }

    /// Records the lease that was read.
    pub(super) fn record_lease(&mut self, found: Option<Value>, now: Instant) {
        self.current = found.is_some();
        self.is_missing = found.is_none();
        let Some(found) = found else { return };
        let since = match &self.seen {
            Some((lease, since)) if lease["spec"] == found["spec"] => *since,
            _ => now,
        };
        self.seen = Some((found, since));
        if self.holder() != self.identity {
            self.renewed = None;
        }
    }

    /// Returns when the lease of another holder expires unless it changes, `None` if there is none.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        let (lease, since) =
            self.seen.as_ref().filter(|_| !self.holder().is_empty() && self.holder() != self.identity)?;
        let seconds = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or_default();
        Some(*since + Duration::from_secs(seconds.min(i32::MAX as u64)))
    }

    /// Returns the lease to write in order to lead, `None` while another replica leads.
    pub(super) fn next(&self, now: Instant, time: Timestamp) -> Option<Value> {
        let text = rfc3339_micro(time);
        let mut record = json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.settings.lease_duration.as_secs(),
            "acquireTime": text,
            "renewTime": text,
            "leaseTransitions": 0,
        });
        if self.expires_at().is_some_and(|at| now < at) {
            return None;
        }
        let mut lease = match &self.seen {
            Some((lease, _)) if !self.is_missing => lease.clone(),
            _ => return Some(json!({"spec": record})),
        };
        let (spec, ours) = (&lease["spec"], self.holder() == self.identity);
        if ours && let Some(last) = spec["renewTime"].as_str().and_then(parse_rfc3339) {
            // With a clock that stands still or goes backward, two renewals would be identical.
            let next = last.checked_add(SignedDuration::from_micros(1)).unwrap_or(time);
            record["renewTime"] = rfc3339_micro(time.max(next)).into();
        }
        let transitions = spec["leaseTransitions"].as_i64().unwrap_or_default();
        record["leaseTransitions"] = transitions.saturating_add(i64::from(!ours)).min(i32::MAX.into()).into();
        if ours && !spec["acquireTime"].is_null() {
            record["acquireTime"] = spec["acquireTime"].clone();
        }
        lease["spec"] = record;
        Some(lease)
    }

    /// Returns the lease to write in order to release it, if this replica holds it.
    pub(super) fn released(&self, time: Timestamp) -> Option<Value> {
        let (mut lease, _) = self.seen.clone().filter(|_| self.holder() == self.identity && !self.is_missing)?;
        let time = rfc3339_micro(time);
        lease["spec"] = json!({
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": time,
            "renewTime": time,
            "leaseTransitions": lease["spec"]["leaseTransitions"],
        });
        Some(lease)
    }

    /// Records the response to a write that was sent at this time.
    pub(super) fn record_write_response(&mut self, lease: Value, sent: Instant) {
        // Other responses, such as those of a proxy, are not renewals.
        if lease["spec"]["holderIdentity"] != self.identity {
            return self.failed();
        }
        self.seen = Some((lease, sent));
        (self.current, self.is_missing, self.renewed) = (true, false, Some(sent));
    }

    /// Returns the UID of the lease, empty if it was never read.
    pub(super) fn uid(&self) -> &str {
        self.seen.as_ref().and_then(|(lease, _)| lease["metadata"]["uid"].as_str()).unwrap_or_default()
    }

    /// Records that a write failed, or that its response was lost.
    pub(super) fn failed(&mut self) {
        self.current = false;
    }
}
