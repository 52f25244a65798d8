//! The metrics of an operator, assembled from those of its modules.

use crate::cache::{CacheCollector, Caches};
use crate::client::RequestMetrics;
use crate::context::ApplyMetrics;
use crate::controller::ControllerMetrics;
use crate::election::ElectionMetrics;
use crate::events::EventMetrics;
use crate::queue::{MonitoredQueue, QueueCollector};
use crate::watcher::WatchMetrics;
use crate::webhook::WebhookMetrics;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// All metrics of one operator.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    pub(super) requests: RequestMetrics,
    pub(super) watches: WatchMetrics,
    pub(super) events: EventMetrics,
    pub(super) applies: ApplyMetrics,
    pub(super) controllers: ControllerMetrics,
    pub(super) webhooks: WebhookMetrics,
    pub(super) elections: ElectionMetrics,
}

impl Metrics {
    /// Registers everything; requests are counted as sent to `host`.
    pub(super) fn new(host: String) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            requests: RequestMetrics::new(host),
            watches: WatchMetrics::default(),
            events: EventMetrics::default(),
            applies: ApplyMetrics::default(),
            controllers: ControllerMetrics::default(),
            webhooks: WebhookMetrics::default(),
            elections: ElectionMetrics::default(),
        };
        let registry = &mut metrics.registry;
        metrics.requests.register(registry);
        metrics.watches.register(registry);
        metrics.events.register(registry);
        metrics.applies.register(registry);
        metrics.controllers.register(registry);
        metrics.webhooks.register(registry);
        metrics.elections.register(registry);
        metrics
    }

    /// Adds the metrics that are read from queues and caches at each scrape.
    pub(super) fn collect(&mut self, queues: Vec<MonitoredQueue>, caches: Arc<Caches>) {
        self.registry.register_collector(Box::new(QueueCollector { queues }));
        self.registry.register_collector(Box::new(CacheCollector { caches }));
    }

    /// Adds the author's own metrics.
    pub(super) fn register(&mut self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry);
    }

    /// Writes all metrics in the OpenMetrics text format.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("writing to a string cannot fail");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Backoff;
    use crate::controller::Outcome;
    use crate::queue::{Cause, Priority, Queue, RetryRate, Workers};
    use flyball_core::{ObjectKey, Rng};
    use http::{Method, StatusCode};
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn metrics_have_the_names_of_controller_runtime() {
        let mut metrics = Metrics::new("10.0.0.1:443".into());
        let (backoff, rate, rng) = (Backoff::default(), RetryRate::default(), Rng::from_seed(1));
        let queue = Arc::new(Queue::new(backoff, rate, Duration::ZERO, Workers { count: 4, are_shared: false }, &rng));
        queue.add(&ObjectKey::new(None, "a"), Priority::Fresh, Cause::Start);
        let (caches, _) = Caches::new([], &BTreeSet::new());
        metrics.collect(vec![MonitoredQueue { controller: "site".into(), workers: 4, queue }], Arc::new(caches));
        let controller = metrics.controllers.of("site", 4);
        metrics.elections.leads("site").set(1);
        controller.reconciled(Outcome::Success, Duration::from_millis(3));
        controller.reconciled(Outcome::Terminal, Duration::from_millis(3));
        controller.waited(Duration::from_millis(1));
        controller.worked(Duration::from_millis(1), Duration::from_millis(1));
        metrics.requests.count(&Method::GET, Some(StatusCode::OK));
        let text = metrics.text();
        for line in [
            r#"controller_runtime_active_workers{name="site",controller="site"} 0.0"#,
            r#"controller_runtime_max_concurrent_reconciles{controller="site"} 4"#,
            r#"controller_runtime_reconcile_errors_total{controller="site"} 1"#,
            r#"controller_runtime_reconcile_panics_total{controller="site"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{le="0.005",controller="site"} 2"#,
            r#"controller_runtime_reconcile_total{controller="site",result="error"} 1"#,
            r#"controller_runtime_reconcile_total{controller="site",result="requeue"} 0"#,
            r#"controller_runtime_reconcile_total{controller="site",result="requeue_after"} 0"#,
            r#"controller_runtime_reconcile_total{controller="site",result="success"} 1"#,
            r#"controller_runtime_terminal_reconcile_errors_total{controller="site"} 1"#,
            r#"flyball_latency_seconds_bucket{le="0.005",controller="site"} 1"#,
            r#"flyball_saturation{controller="site"} 0.0"#,
            r#"leader_election_master_status{name="site"} 1"#,
            r#"rest_client_requests_total{code="200",method="GET",host="10.0.0.1:443"} 1"#,
            r#"workqueue_adds_total{name="site",controller="site"} 1"#,
            r#"workqueue_depth{name="site",controller="site"} 1.0"#,
            r#"workqueue_longest_running_processor_seconds{name="site",controller="site"} 0.0"#,
            r#"workqueue_queue_duration_seconds_count{name="site",controller="site"} 1"#,
            r#"workqueue_retries_total{name="site",controller="site"} 0"#,
            r#"workqueue_unfinished_work_seconds{name="site",controller="site"} 0.0"#,
            r#"workqueue_work_duration_seconds_count{name="site",controller="site"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }
}
