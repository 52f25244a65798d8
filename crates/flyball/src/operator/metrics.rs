//! What an operator tells Prometheus: controller-runtime's names, so that its dashboards go on working, and our own.
//!
//! What changes with every key is not counted on the way but read from the queues and caches when somebody asks.

use crate::cache::{Caches, Store};
use crate::queue::{Figures, Queue};
use http::{Method, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Labels<const N: usize> = [(&'static str, String); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// Counters that were found before: the labels of one that counts often are not written each time.
#[derive(Debug)]
struct Known<K>(Mutex<Vec<(K, Counter)>>);

impl<K> Default for Known<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K> Known<K> {
    /// Counts up the one whose key `is` it, which is `found` the first time.
    fn count(&self, is: impl Fn(&K) -> bool, found: impl FnOnce() -> (K, Counter)) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|(key, _)| is(key)).unwrap_or_else(|| {
            known.push(found());
            known.len() - 1
        });
        known[at].1.inc();
    }
}

/// All metrics of one operator.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    host: String,
    requests: Counters<3>,
    reconciles: Counters<2>,
    errors: Counters<1>,
    terminal: Counters<1>,
    panics: Counters<1>,
    undecodable: Counters<1>,
    deadlines: Counters<1>,
    time: Histograms<1>,
    concurrency: Family<Labels<1>, Gauge>,
    waited: Histograms<2>,
    worked: Histograms<2>,
    latency: Histograms<1>,
    lists: Counters<2>,
    watch_events: Counters<2>,
    lost: Counters<2>,
    map_errors: Counters<1>,
    applies: Counters<2>,
    known_applies: Known<(String, Applied)>,
    masters: Family<Labels<1>, Gauge>,
    pub(crate) events: EventMetrics,
    pub(crate) webhooks: WebhookMetrics,
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Success,
    Requeue,
    RequeueAfter,
    Wait,
    Error,
    Terminal,
    Panic,
    Deadline,
}

impl Outcome {
    /// All that have a label of their own; the others are errors.
    const LABELLED: [Self; 5] = [Self::Success, Self::Requeue, Self::RequeueAfter, Self::Wait, Self::Error];

    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
            Self::Wait => "wait",
            Self::Error | Self::Terminal | Self::Panic | Self::Deadline => "error",
        }
    }
}

/// What became of something that was to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Applied {
    /// The cache showed that nothing would change: nothing was sent.
    Skipped,
    /// The API server changed the object.
    Changed,
    /// The API server found nothing to change.
    Unchanged,
    Failed,
}

impl Applied {
    fn label(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
        }
    }
}

fn reconcile_seconds() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
        1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ])
}

fn queue_seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 12))
}

impl Metrics {
    /// Registers everything; requests are counted as sent to `host`.
    pub(crate) fn new(host: String) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            host,
            requests: Family::default(),
            reconciles: Family::default(),
            errors: Family::default(),
            terminal: Family::default(),
            panics: Family::default(),
            undecodable: Family::default(),
            deadlines: Family::default(),
            time: Family::new_with_constructor(reconcile_seconds),
            concurrency: Family::default(),
            waited: Family::new_with_constructor(queue_seconds),
            worked: Family::new_with_constructor(queue_seconds),
            latency: Family::new_with_constructor(reconcile_seconds),
            lists: Family::default(),
            watch_events: Family::default(),
            lost: Family::default(),
            map_errors: Family::default(),
            applies: Family::default(),
            known_applies: Known::default(),
            masters: Family::default(),
            events: EventMetrics::default(),
            webhooks: WebhookMetrics::default(),
        };
        let m = &mut metrics;
        let r = &mut m.registry;
        r.register("rest_client_requests", "Requests to the API server by code, method and host", m.requests.clone());
        r.register("controller_runtime_reconcile", "Reconciles by result", m.reconciles.clone());
        r.register("controller_runtime_reconcile_errors", "Reconciles that failed", m.errors.clone());
        r.register("controller_runtime_terminal_reconcile_errors", "Reconciles given up", m.terminal.clone());
        r.register("controller_runtime_reconcile_panics", "Reconciles that panicked", m.panics.clone());
        r.register("flyball_undecodable", "Reconciles of objects that do not decode", m.undecodable.clone());
        r.register(
            "controller_runtime_reconcile_timeouts",
            "Reconciles cut off at their deadline",
            m.deadlines.clone(),
        );
        r.register("controller_runtime_reconcile_time_seconds", "Time of a reconcile", m.time.clone());
        r.register("controller_runtime_max_concurrent_reconciles", "Workers", m.concurrency.clone());
        r.register("workqueue_queue_duration_seconds", "Time that a key was ready", m.waited.clone());
        r.register("workqueue_work_duration_seconds", "Time that a worker had a key", m.worked.clone());
        r.register("flyball_latency_seconds", "Time from when a key was ready to its end", m.latency.clone());
        r.register("flyball_watch_lists", "Lists that were begun", m.lists.clone());
        r.register("flyball_watch_events", "Objects and bookmarks taken in", m.watch_events.clone());
        r.register("flyball_watch_lost", "Objects that could not be read", m.lost.clone());
        r.register("flyball_map_errors", "Changes that a mapping function failed on", m.map_errors.clone());
        r.register("flyball_apply", "Objects to be applied, by what became of it", m.applies.clone());
        r.register("leader_election_master_status", "1 if this replica holds the lease, else 0", m.masters.clone());
        r.register("flyball_events_sent", "Events written", m.events.sent.clone());
        r.register("flyball_events_dropped", "Events dropped", m.events.dropped.clone());
        let w = &m.webhooks;
        r.register("controller_runtime_webhook_requests", "Reviews by webhook and code", w.requests.clone());
        r.register("controller_runtime_webhook_latency_seconds", "Time of a review", w.latency.clone());
        r.register("controller_runtime_webhook_requests_in_flight", "Reviews under way", w.in_flight.clone());
        r.register("controller_runtime_webhook_panics", "Webhooks that panicked", w.panics.clone());
        metrics
    }

    /// Adds what is read from queues and caches when somebody asks.
    pub(crate) fn observe(&mut self, queues: Vec<(String, Arc<Queue>)>, caches: Arc<Caches>) {
        self.registry.register_collector(Box::new(Observed { queues, caches, workers: self.concurrency.clone() }));
    }

    /// Adds what an operator measures itself.
    pub(crate) fn register(&mut self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry);
    }

    /// Returns the counter of requests.
    pub(crate) fn requests(&self) -> RequestMetrics {
        RequestMetrics { requests: self.requests.clone(), host: self.host.clone(), known: Arc::default() }
    }

    /// Returns the metrics of a controller with so many workers.
    pub(crate) fn controller(&self, name: &str, workers: usize) -> ControllerMetrics {
        let controller = [("controller", name.to_owned())];
        let queue = labels(name);
        self.concurrency.get_or_create(&controller).set(workers as i64);
        let result = |outcome: Outcome| {
            let labels = [("controller", name.to_owned()), ("result", outcome.label().to_owned())];
            self.reconciles.get_or_create_owned(&labels)
        };
        ControllerMetrics {
            results: Outcome::LABELLED.map(result),
            errors: self.errors.get_or_create_owned(&controller),
            terminal: self.terminal.get_or_create_owned(&controller),
            panics: self.panics.get_or_create_owned(&controller),
            undecodable: self.undecodable.get_or_create_owned(&controller),
            deadlines: self.deadlines.get_or_create_owned(&controller),
            time: self.time.get_or_create_owned(&controller),
            waited: self.waited.get_or_create_owned(&queue),
            worked: self.worked.get_or_create_owned(&queue),
            latency: self.latency.get_or_create_owned(&controller),
        }
    }

    /// Returns the metrics of a watch.
    pub(crate) fn watch(&self, kind: &str, namespace: Option<&str>) -> WatchMetrics {
        let labels = [("kind", kind.to_owned()), ("namespace", namespace.unwrap_or_default().to_owned())];
        WatchMetrics {
            lists: self.lists.get_or_create_owned(&labels),
            events: self.watch_events.get_or_create_owned(&labels),
            lost: self.lost.get_or_create_owned(&labels),
        }
    }

    /// Returns the counter of changes that the mapping functions of a controller failed on.
    pub(crate) fn map_errors(&self, controller: &str) -> Counter {
        self.map_errors.get_or_create_owned(&[("controller", controller.to_owned())])
    }

    /// Returns what tells whether this replica holds a lease.
    pub(crate) fn master(&self, lease: &str) -> Gauge {
        self.masters.get_or_create_owned(&[("name", lease.to_owned())])
    }

    /// Counts something that was to be applied.
    pub(crate) fn applied(&self, kind: &str, result: Applied) {
        self.known_applies.count(
            |(k, r)| k == kind && *r == result,
            || {
                let labels = [("kind", kind.to_owned()), ("result", result.label().to_owned())];
                ((kind.to_owned(), result), self.applies.get_or_create_owned(&labels))
            },
        );
    }

    /// Writes all metrics in the OpenMetrics text format.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("writing to a string cannot fail");
        out
    }
}

/// Counts requests.
#[derive(Clone, Debug)]
pub(crate) struct RequestMetrics {
    requests: Counters<3>,
    host: String,
    known: Arc<Known<(Method, Option<StatusCode>)>>,
}

impl RequestMetrics {
    /// Counts a request and its answer, `None` if there was none.
    pub(crate) fn count(&self, method: &Method, code: Option<StatusCode>) {
        self.known.count(
            |(m, c)| m == method && *c == code,
            || {
                let text = code.map_or_else(|| "<error>".to_owned(), |code| code.as_str().to_owned());
                let labels = [("code", text), ("method", method.to_string()), ("host", self.host.clone())];
                ((method.clone(), code), self.requests.get_or_create_owned(&labels))
            },
        );
    }
}

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    /// In the order of [`Outcome::LABELLED`].
    results: [Counter; Outcome::LABELLED.len()],
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    undecodable: Counter,
    deadlines: Counter,
    time: Histogram,
    waited: Histogram,
    worked: Histogram,
    latency: Histogram,
}

impl ControllerMetrics {
    pub(crate) fn reconciled(&self, outcome: Outcome, time: Duration) {
        let apart = match outcome {
            Outcome::Success | Outcome::Requeue | Outcome::RequeueAfter | Outcome::Wait | Outcome::Error => None,
            Outcome::Terminal => Some(&self.terminal),
            Outcome::Panic => Some(&self.panics),
            Outcome::Deadline => Some(&self.deadlines),
        };
        apart.map(Counter::inc);
        for (labelled, counter) in Outcome::LABELLED.iter().zip(&self.results) {
            if labelled.label() == outcome.label() {
                counter.inc();
            }
        }
        if outcome.label() == Outcome::Error.label() {
            self.errors.inc();
        }
        self.time.observe(time.as_secs_f64());
    }

    /// Counts an object that does not decode.
    pub(crate) fn undecodable(&self) {
        self.undecodable.inc();
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.waited.observe(time.as_secs_f64());
    }

    /// Counts a key that a worker had for this time, after it had waited for the other.
    pub(crate) fn worked(&self, time: Duration, waited: Duration) {
        self.worked.observe(time.as_secs_f64());
        self.latency.observe((waited + time).as_secs_f64());
    }
}

/// The metrics of one watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchMetrics {
    pub(crate) lists: Counter,
    pub(crate) events: Counter,
    pub(crate) lost: Counter,
}

/// The metrics of the events recorder.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventMetrics {
    pub(crate) sent: Counter,
    pub(crate) dropped: Counter,
}

/// The metrics of the webhooks.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    requests: Counters<2>,
    latency: Histograms<1>,
    in_flight: Family<Labels<1>, Gauge>,
    panics: Counter,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            latency: Family::new_with_constructor(reconcile_seconds),
            in_flight: Family::default(),
            panics: Counter::default(),
        }
    }
}

impl WebhookMetrics {
    /// Counts a review that begins at this path.
    pub(crate) fn begin(&self, path: &str) -> WebhookCall<'_> {
        let in_flight = self.in_flight.get_or_create_owned(&[("webhook", path.to_owned())]);
        in_flight.inc();
        WebhookCall { metrics: self, path: path.to_owned(), in_flight }
    }

    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }
}

/// A review that is under way; it is over when this is dropped.
pub(crate) struct WebhookCall<'a> {
    metrics: &'a WebhookMetrics,
    path: String,
    in_flight: Gauge,
}

impl WebhookCall<'_> {
    pub(crate) fn end(self, code: StatusCode, time: Duration) {
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

#[derive(Debug)]
struct Observed {
    queues: Vec<(String, Arc<Queue>)>,
    caches: Arc<Caches>,
    workers: Family<Labels<1>, Gauge>,
}

impl Collector for Observed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        type Read<M> = fn(&Figures) -> M;
        let counters: [(&str, &str, Read<u64>); 4] = [
            ("workqueue_adds", "Keys added", |f| f.adds),
            ("workqueue_retries", "Keys that wait for their backoff", |f| f.retries),
            ("flyball_queue_echoes", "Changes passed over, as the key had made them itself", |f| f.echoes),
            ("flyball_queue_overdue", "Keys that went on before a cache had shown their writes", |f| f.overdue),
        ];
        let gauges: [(&str, &str, Read<f64>); 5] = [
            ("workqueue_depth", "Keys that are ready", |f| f.depth as f64),
            ("flyball_queue_throttled", "Keys that failed, and wait as too many others did", |f| f.throttled as f64),
            ("workqueue_unfinished_work_seconds", "Time of all running keys", |f| f.unfinished.as_secs_f64()),
            ("workqueue_longest_running_processor_seconds", "Time of the longest running key", |f| {
                f.longest.as_secs_f64()
            }),
            ("controller_runtime_active_workers", "Workers that have a key", |f| f.running as f64),
        ];
        let figures: Vec<_> = self.queues.iter().map(|(name, queue)| (labels(name), queue.figures())).collect();
        for (name, help, read) in counters {
            family(&mut encoder, name, help, figures.iter().map(|(l, f)| (l.clone(), ConstCounter::new(read(f)))))?;
        }
        let saturation = figures.iter().map(|([_, controller], f)| {
            let controller = [controller.clone()];
            let workers = self.workers.get_or_create(&controller).get().max(1);
            (controller, ConstGauge::new(f.running as f64 / workers as f64))
        });
        family(&mut encoder, "flyball_saturation", "Workers that have a key, as part of all", saturation)?;
        for (name, help, read) in gauges {
            family(&mut encoder, name, help, figures.iter().map(|(l, f)| (l.clone(), ConstGauge::new(read(f)))))?;
        }
        let by_store = |read: fn(&Store) -> f64| {
            self.caches.stores().iter().map(move |store| {
                let namespace = store.namespace().unwrap_or_default();
                let labels = [("kind", store.kind().to_string()), ("namespace", namespace.to_owned())];
                (labels, ConstGauge::new(read(store)))
            })
        };
        family(&mut encoder, "flyball_cache_objects", "Objects in a cache", by_store(|store| store.len() as f64))?;
        let failing = by_store(|store| match store.trouble() {
            Some(trouble) if !store.is_absent() => trouble.since.elapsed().as_secs_f64(),
            Some(_) | None => 0.0,
        });
        let help = "Time for which a watch has failed, 0 while it works";
        family(&mut encoder, "flyball_watch_failing_seconds", help, failing)?;
        let passed_over = ConstCounter::new(self.caches.undecodable());
        let help = "Objects read from a cache that do not decode, each time";
        family(&mut encoder, "flyball_cache_undecodable", help, [([("kind", "any")], passed_over)].into_iter())
    }
}

fn labels(name: &str) -> Labels<2> {
    [("name", name.to_owned()), ("controller", name.to_owned())]
}

fn family<L: EncodeLabelSet, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    members: impl Iterator<Item = (L, M)>,
) -> fmt::Result {
    let mut members = members.peekable();
    let Some((_, first)) = members.peek() else { return Ok(()) };
    let metric_type = first.metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
    for (labels, metric) in members {
        metric.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Backoff, Priority, RetryRate};
    use flyball_core::{ObjectKey, Rng};
    use std::collections::BTreeSet;

    #[test]
    fn dashboards_for_controller_runtime_find_what_they_look_for() {
        let mut metrics = Metrics::new("10.0.0.1:443".into());
        let queue = Arc::new(Queue::new(Backoff::default(), RetryRate::default(), Duration::ZERO, &Rng::from_seed(1)));
        queue.add(&ObjectKey::new(None, "a"), Priority::Fresh);
        let (caches, _) = Caches::new([], &BTreeSet::new());
        metrics.observe(vec![("site".into(), queue)], Arc::new(caches));
        let controller = metrics.controller("site", 4);
        metrics.master("site").set(1);
        controller.reconciled(Outcome::Success, Duration::from_millis(3));
        controller.reconciled(Outcome::Terminal, Duration::from_millis(3));
        controller.waited(Duration::from_millis(1));
        controller.worked(Duration::from_millis(1), Duration::from_millis(1));
        metrics.requests().count(&Method::GET, Some(StatusCode::OK));
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
