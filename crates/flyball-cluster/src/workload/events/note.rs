//! Events in `events.k8s.io` form, and their rate limit.

use crate::workload::MANAGER;
use flyball::Resource;
use flyball_core::{Clock, Rng};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Burst of events that are sent.
const BURST: u32 = 50;
/// Interval after which the burst grows by one.
const INTERVAL: Duration = Duration::from_millis(100);

/// An event of a controller that does not implement [`Reconcile`](flyball::Reconcile), with reporter and action.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    kind: &'static str,
    reason: &'static str,
    text: String,
    action: &'static str,
    by: &'static str,
}

impl Note {
    pub(crate) fn normal(reason: &'static str, text: String) -> Self {
        Self { kind: "Normal", reason, text, action: reason, by: MANAGER }
    }

    pub(crate) fn warning(reason: &'static str, text: String) -> Self {
        Self { kind: "Warning", ..Self::normal(reason, text) }
    }

    pub(crate) fn action(mut self, action: &'static str) -> Self {
        self.action = action;
        self
    }

    pub(crate) fn by(mut self, component: &'static str) -> Self {
        self.by = component;
        self
    }

    /// Publishes the event about an object. Errors are ignored.
    pub(crate) async fn publish<K: Resource>(self, client: &kube::Client, about: &K, clock: &Clock, rng: &Rng) {
        let meta = about.meta();
        let namespace = meta.namespace.clone().unwrap_or_else(|| "default".into());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:016x}", about.name_any(), rng.next())),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(K::api_version(&()).into_owned()),
                kind: Some(K::kind(&()).into_owned()),
                name: meta.name.clone(),
                namespace: meta.namespace.clone(),
                resource_version: meta.resource_version.clone(),
                uid: meta.uid.clone(),
                ..ObjectReference::default()
            },
            reason: Some(self.reason.into()),
            message: Some(self.text.chars().take(1024).collect()),
            type_: Some(self.kind.into()),
            action: Some(self.action.into()),
            event_time: Some(MicroTime(clock.now())),
            reporting_component: Some(self.by.into()),
            reporting_instance: Some(self.by.into()),
            ..Event::default()
        };
        if let Err(error) = Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &event).await {
            tracing::debug!(%error, reason = self.reason, "event was not published");
        }
    }
}

/// Token bucket of events, which must not cost more than their subject.
#[derive(Debug, Default)]
pub(crate) struct Allowance(Mutex<Option<(u32, Instant)>>);

impl Allowance {
    /// Acquires a token; returns false if there is none.
    pub(crate) fn try_acquire(&self) -> bool {
        let now = Instant::now();
        let mut tokens = self.0.lock();
        let (remaining, since) = tokens.unwrap_or((BURST, now));
        let more = u32::try_from(now.duration_since(since).as_nanos() / INTERVAL.as_nanos()).unwrap_or(u32::MAX);
        let remaining = remaining.saturating_add(more).min(BURST);
        *tokens = Some((remaining.saturating_sub(1), since + INTERVAL.saturating_mul(more)));
        remaining > 0
    }
}
