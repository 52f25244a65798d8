//! Metrics of controllers, under the names of controller-runtime.

use crate::external::ExternalCalls;
use crate::ledger;
use crate::metrics::{Counters, Gauges, Histograms, Labels, duration_histogram};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The outcome of a reconcile.
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
    /// Returns the outcome as the ledger records it.
    pub(super) fn recorded(self) -> ledger::Outcome {
        match self {
            Self::Success => ledger::Outcome::Success,
            Self::Requeue => ledger::Outcome::Requeue,
            Self::RequeueAfter => ledger::Outcome::RequeueAfter,
            Self::Wait => ledger::Outcome::Wait,
            Self::Error => ledger::Outcome::Error,
            Self::Terminal => ledger::Outcome::Terminal,
            Self::Panic => ledger::Outcome::Panic,
            Self::Deadline => ledger::Outcome::Deadline,
        }
    }

    /// Outcomes with their own label; the others are errors.
    const LABELED: [Self; 5] = [Self::Success, Self::Requeue, Self::RequeueAfter, Self::Wait, Self::Error];

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

/// The metrics of all controllers.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    reconciles: Counters<2>,
    errors: Counters<1>,
    terminal: Counters<1>,
    panics: Counters<1>,
    undecodable: Counters<1>,
    deadlines: Counters<1>,
    time: Histograms<1>,
    concurrency: Gauges<1>,
    waited: Histograms<2>,
    worked: Histograms<2>,
    latency: Histograms<1>,
    map_errors: Counters<1>,
    flaps: Counters<1>,
    external: ExternalMetrics,
}

/// Calls to external systems, and their time.
#[derive(Clone, Debug, Default)]
struct ExternalMetrics {
    calls: Counters<3>,
    seconds: Family<Labels<2>, Counter<f64, AtomicU64>>,
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            errors: Family::default(),
            terminal: Family::default(),
            panics: Family::default(),
            undecodable: Family::default(),
            deadlines: Family::default(),
            time: Family::new_with_constructor(duration_histogram),
            concurrency: Family::default(),
            waited: Family::new_with_constructor(queue_histogram),
            worked: Family::new_with_constructor(queue_histogram),
            latency: Family::new_with_constructor(duration_histogram),
            map_errors: Family::default(),
            flaps: Family::default(),
            external: ExternalMetrics::default(),
        }
    }
}

/// Creates a histogram of seconds with the buckets of client-go's work queues.
fn queue_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 12))
}

impl ControllerMetrics {
    pub(crate) fn register(&self, r: &mut Registry) {
        r.register("controller_runtime_reconcile", "Reconciles by result", self.reconciles.clone());
        r.register("controller_runtime_reconcile_errors", "Reconciles that failed", self.errors.clone());
        r.register(
            "controller_runtime_terminal_reconcile_errors",
            "Reconciles that failed permanently",
            self.terminal.clone(),
        );
        r.register("controller_runtime_reconcile_panics", "Reconciles that panicked", self.panics.clone());
        r.register("flyball_undecodable", "Reconciles of objects that do not decode", self.undecodable.clone());
        let help = "Reconciles that exceeded their deadline";
        r.register("controller_runtime_reconcile_timeouts", help, self.deadlines.clone());
        r.register("controller_runtime_reconcile_time_seconds", "Time of a reconcile", self.time.clone());
        r.register("controller_runtime_max_concurrent_reconciles", "Workers", self.concurrency.clone());
        r.register(
            "workqueue_queue_duration_seconds",
            "Time for which a key was ready before a worker took it",
            self.waited.clone(),
        );
        r.register("workqueue_work_duration_seconds", "Time for which a worker processed a key", self.worked.clone());
        r.register(
            "flyball_latency_seconds",
            "Time from a key being ready to the end of its reconcile",
            self.latency.clone(),
        );
        r.register("flyball_map_errors", "Changes that a mapping function failed on", self.map_errors.clone());
        r.register("flyball_flaps", "Writes of fields that alternate between two values", self.flaps.clone());
        let ExternalMetrics { calls, seconds } = &self.external;
        r.register("flyball_external_calls", "Calls to external systems, by result", calls.clone());
        r.register("flyball_external_call_seconds", "Time of calls to external systems", seconds.clone());
    }

    /// Returns the metrics of a controller with this number of workers.
    pub(crate) fn of(&self, name: &str, workers: usize) -> ReconcileMetrics {
        let controller = [("controller", name.to_owned())];
        let queue: Labels<2> = [("name", name.to_owned()), ("controller", name.to_owned())];
        self.concurrency.get_or_create(&controller).set(workers as i64);
        let result = |outcome: Outcome| {
            let labels = [("controller", name.to_owned()), ("result", outcome.label().to_owned())];
            self.reconciles.get_or_create_owned(&labels)
        };
        ReconcileMetrics {
            results: Outcome::LABELED.map(result),
            errors: self.errors.get_or_create_owned(&controller),
            terminal: self.terminal.get_or_create_owned(&controller),
            panics: self.panics.get_or_create_owned(&controller),
            undecodable: self.undecodable.get_or_create_owned(&controller),
            deadlines: self.deadlines.get_or_create_owned(&controller),
            time: self.time.get_or_create_owned(&controller),
            waited: self.waited.get_or_create_owned(&queue),
            worked: self.worked.get_or_create_owned(&queue),
            latency: self.latency.get_or_create_owned(&controller),
            controller: name.to_owned(),
            external: self.external.clone(),
        }
    }

    /// Returns the counter of fields of a controller that alternate.
    pub(crate) fn flaps(&self, controller: &str) -> Counter {
        self.flaps.get_or_create_owned(&[("controller", controller.to_owned())])
    }

    /// Returns the counter of changes that the mapping functions of a controller failed on.
    pub(super) fn map_errors(&self, controller: &str) -> Counter {
        self.map_errors.get_or_create_owned(&[("controller", controller.to_owned())])
    }
}

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ReconcileMetrics {
    /// In the order of [`Outcome::LABELED`].
    results: [Counter; Outcome::LABELED.len()],
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    undecodable: Counter,
    deadlines: Counter,
    time: Histogram,
    waited: Histogram,
    worked: Histogram,
    latency: Histogram,
    controller: String,
    external: ExternalMetrics,
}

impl ReconcileMetrics {
    pub(crate) fn reconciled(&self, outcome: Outcome, time: Duration) {
        let apart = match outcome {
            Outcome::Success | Outcome::Requeue | Outcome::RequeueAfter | Outcome::Wait | Outcome::Error => None,
            Outcome::Terminal => Some(&self.terminal),
            Outcome::Panic => Some(&self.panics),
            Outcome::Deadline => Some(&self.deadlines),
        };
        apart.map(Counter::inc);
        for (labeled, counter) in Outcome::LABELED.iter().zip(&self.results) {
            if labeled.label() == outcome.label() {
                counter.inc();
            }
        }
        if outcome.label() == Outcome::Error.label() {
            self.errors.inc();
        }
        self.time.observe(time.as_secs_f64());
    }

    /// Counts an object that cannot be decoded.
    pub(crate) fn undecodable(&self) {
        self.undecodable.inc();
    }

    /// Counts the calls of a reconcile to external systems.
    pub(crate) fn called(&self, external: &[ExternalCalls]) {
        for calls in external {
            let labels = || [("controller", self.controller.clone()), ("system", calls.system.to_owned())];
            self.external.seconds.get_or_create(&labels()).inc_by(calls.took.as_secs_f64());
            for (result, count) in [("success", calls.calls - calls.failures), ("error", calls.failures)] {
                let [controller, system] = labels();
                self.external
                    .calls
                    .get_or_create(&[controller, system, ("result", result.to_owned())])
                    .inc_by(count.into());
            }
        }
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.waited.observe(time.as_secs_f64());
    }

    /// Counts a key with the time that it was processed, and the time that it waited before.
    pub(crate) fn worked(&self, time: Duration, waited: Duration) {
        self.worked.observe(time.as_secs_f64());
        self.latency.observe((waited + time).as_secs_f64());
    }
}
