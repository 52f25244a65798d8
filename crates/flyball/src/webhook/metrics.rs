//! Metrics of webhooks.

use crate::metrics::{Counters, Gauges, Histograms, duration_histogram};
use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// The metrics of the webhooks of an operator.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    requests: Counters<2>,
    latency: Histograms<1>,
    in_flight: Gauges<1>,
    panics: Counter,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            latency: Family::new_with_constructor(duration_histogram),
            in_flight: Family::default(),
            panics: Counter::default(),
        }
    }
}

impl WebhookMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let r = registry;
        r.register("controller_runtime_webhook_requests", "Reviews by webhook and code", self.requests.clone());
        r.register("controller_runtime_webhook_latency_seconds", "Time of a review", self.latency.clone());
        r.register("controller_runtime_webhook_requests_in_flight", "Reviews in progress", self.in_flight.clone());
        r.register("controller_runtime_webhook_panics", "Webhooks that panicked", self.panics.clone());
    }

    /// Counts a review that starts at this path.
    pub(super) fn begin(&self, path: &str) -> WebhookCall<'_> {
        let in_flight = self.in_flight.get_or_create_owned(&[("webhook", path.to_owned())]);
        in_flight.inc();
        WebhookCall { metrics: self, path: path.to_owned(), in_flight }
    }

    pub(super) fn panicked(&self) {
        self.panics.inc();
    }
}

/// A review in progress; it ends when this is dropped.
pub(super) struct WebhookCall<'a> {
    metrics: &'a WebhookMetrics,
    path: String,
    in_flight: Gauge,
}

impl WebhookCall<'_> {
    pub(super) fn end(self, code: StatusCode, time: Duration) {
        let labels = [("webhook", self.path.clone()), ("code", code.as_str().to_owned())];
        self.metrics.requests.get_or_create(&labels).inc();
        self.metrics.latency.get_or_create(&[("webhook", self.path.clone())]).observe(time.as_secs_f64());
    }
}

impl Drop for WebhookCall<'_> {
    fn drop(&mut self) {
        self.in_flight.dec();
    }
}
