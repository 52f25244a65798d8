//! Metrics of the events recorder.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counts events.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventMetrics {
    pub(super) sent: Counter,
    pub(super) dropped: Counter,
}

impl EventMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("flyball_events_sent", "Events written", self.sent.clone());
        registry.register("flyball_events_dropped", "Events dropped", self.dropped.clone());
    }
}
