//! Metrics that tasks define with the module `osdk_metric`, beside those of the operator.
//!
//! See <https://github.com/operator-framework/operator-sdk-ansible-util>. A metric has no labels, and its name is
//! literal in a task, so that users cannot add series. Invariant: no series of a metric is one of another metric.

use super::BUCKETS;
use crate::value::{Map, Value};
use crate::yaml::{to_text, truth, type_name};
use flyball_core::time::Timestamp;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Limit of metrics of an operator.
const MAX_METRICS: usize = 1000;
/// Length limits of a name and of a description.
const MAX_NAME_BYTES: usize = 200;
const MAX_HELP_CHARS: usize = 1024;

/// Prefixes of the metrics of all operators.
const RESERVED_PREFIXES: [&str; 9] = [
    "ansible_operator_",
    "certwatcher_",
    "controller_runtime_",
    "flyball_",
    "go_",
    "leader_election_",
    "process_",
    "rest_client_",
    "workqueue_",
];

/// The types of metrics, as arguments of the module, each with its operations.
const OPERATIONS: [(&str, &[&str]); 4] = [
    ("counter", &["increment", "add"]),
    ("gauge", &["set", "increment", "decrement", "add", "subtract", "set_to_current_time"]),
    ("histogram", &["observe"]),
    ("summary", &["observe"]),
];

/// The operations that are booleans; the others are numbers.
const FLAGS: [&str; 3] = ["increment", "decrement", "set_to_current_time"];

/// The metrics of the roles of an operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoleMetrics(Arc<Mutex<BTreeMap<String, RoleMetric>>>);

#[derive(Debug)]
struct RoleMetric {
    help: String,
    value: MetricValue,
}

#[derive(Debug)]
enum MetricValue {
    Counter(f64),
    Gauge(f64),
    Histogram(Histogram),
    /// Without quantiles, as in operator-sdk.
    Summary {
        sum: f64,
        count: u64,
    },
}

/// A change of a metric, which creates it if it does not exist.
#[derive(Debug)]
pub(crate) struct Update {
    name: String,
    help: String,
    change: Change,
}

/// The operation for a type of metrics, if there is one.
#[derive(Debug)]
enum Change {
    Counter(Option<f64>),
    Gauge(Option<GaugeChange>),
    Histogram(Option<f64>),
    Summary(Option<f64>),
}

#[derive(Debug)]
enum GaugeChange {
    Set(f64),
    Add(f64),
    SetToCurrentTime,
}

impl RoleMetrics {
    /// Changes a metric.
    ///
    /// # Errors
    /// If there is a metric of another type with this name, or if the change is impossible.
    pub(crate) fn apply(&self, update: Update, now: Timestamp) -> Result<(), String> {
        let mut metrics = self.0.lock();
        if !metrics.contains_key(&update.name) {
            let metric = RoleMetric { help: update.help.clone(), value: update.change.initial() };
            check_new(&metrics, &update.name, &metric.value)?;
            metrics.insert(update.name.clone(), metric);
        }
        let metric = metrics.get_mut(&update.name).expect("it exists or was inserted");
        metric.value.change(&update.change, now).map_err(|problem| format!("{}: {problem}", update.name))
    }
}

/// Rejects a new metric beyond the limit, or with series of another one.
fn check_new(metrics: &BTreeMap<String, RoleMetric>, name: &str, value: &MetricValue) -> Result<(), String> {
    if metrics.len() >= MAX_METRICS {
        return Err(format!("{name}: the roles have more than {MAX_METRICS} metrics"));
    }
    let own = value.series(name);
    let other = metrics.iter().find(|(other, metric)| metric.value.series(other).iter().any(|one| own.contains(one)));
    other
        .map_or(Ok(()), |(other, _)| Err(format!("{name}: the metric {other} has a series with this name: rename one")))
}

/// Returns the reason why a metric of a role must not have this name.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    let is_name = name.starts_with(is_start) && name.chars().all(|c| is_start(c) || c.is_ascii_digit());
    if !is_name || name.len() > MAX_NAME_BYTES {
        return Err(format!(
            "name: {name:?} must consist of up to {MAX_NAME_BYTES} letters, digits, underscores and colons, and not \
             start with a digit"
        ));
    }
    match RESERVED_PREFIXES.iter().find(|prefix| name.starts_with(*prefix)) {
        Some(prefix) => Err(format!("name: {name}: the prefix {prefix} is reserved for metrics of the operator")),
        None => Ok(()),
    }
}

impl Update {
    /// Parses the arguments of the module, as in a task or in the body of a request. A `null` counts as missing.
    pub(crate) fn parse(arguments: &Map) -> Result<Self, String> {
        let argument = |name: &str| arguments.get(name).filter(|value| !value.is_null());
        let name = argument("name").map(to_text).ok_or("name: required")?;
        check_name(&name)?;
        let help = argument("description").map(to_text).ok_or("description: required")?;
        let mut found = OPERATIONS.iter().filter_map(|(kind, known)| Some((*kind, *known, argument(kind)?)));
        let (kind, known, operations) =
            found.next().ok_or("one of counter, gauge, histogram and summary is required")?;
        if let Some((other, ..)) = found.next() {
            return Err(format!("a task changes one metric: remove {kind} or {other}"));
        }
        let change = Change::parse(kind, operation(kind, known, operations)?)?;
        Ok(Self { name, help: line(&help), change })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the operation among those of a type, if there is one.
fn operation<'v>(kind: &str, known: &[&str], operations: &'v Value) -> Result<Option<(&'v str, &'v Value)>, String> {
    let Value::Object(operations) = operations else {
        return Err(format!("{kind}: must be a map, not {}", type_name(operations)));
    };
    if let Some(other) = operations.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("{kind}: unknown operation {other}: use {}", known.join(", ")));
    }
    let given = operations.iter().map(|(name, value)| (name.as_str(), value)).filter(|(name, value)| {
        let is_unset = FLAGS.contains(name) && truth(value) == Some(false);
        !value.is_null() && !is_unset
    });
    let mut given = given.fuse();
    let first = given.next();
    match (first, given.next()) {
        (Some((name, _)), Some((other, _))) => Err(format!("{kind}: use either {name} or {other}")),
        (first, _) => Ok(first),
    }
}

impl Change {
    fn parse(kind: &str, operation: Option<(&str, &Value)>) -> Result<Self, String> {
        let Some((name, value)) = operation else {
            return Ok(match kind {
                "counter" => Self::Counter(None),
                "gauge" => Self::Gauge(None),
                "histogram" => Self::Histogram(None),
                _ => Self::Summary(None),
            });
        };
        let amount = match FLAGS.contains(&name) {
            true if truth(value) == Some(true) => 1.0,
            true => return Err(format!("{kind}: {name}: must be true or false, not {value}")),
            false => number(value).ok_or_else(|| format!("{kind}: {name}: must be a finite number, not {value}"))?,
        };
        Ok(match (kind, name) {
            ("counter", _) if amount < 0.0 => return Err("counter metrics cannot decrease in value".to_owned()),
            ("counter", _) => Self::Counter(Some(amount)),
            ("gauge", "set") => Self::Gauge(Some(GaugeChange::Set(amount))),
            ("gauge", "set_to_current_time") => Self::Gauge(Some(GaugeChange::SetToCurrentTime)),
            ("gauge", "decrement" | "subtract") => Self::Gauge(Some(GaugeChange::Add(-amount))),
            ("gauge", _) => Self::Gauge(Some(GaugeChange::Add(amount))),
            ("histogram", _) => Self::Histogram(Some(amount)),
            _ => Self::Summary(Some(amount)),
        })
    }

    fn initial(&self) -> MetricValue {
        match self {
            Self::Counter(_) => MetricValue::Counter(0.0),
            Self::Gauge(_) => MetricValue::Gauge(0.0),
            Self::Histogram(_) => MetricValue::Histogram(Histogram::new(BUCKETS)),
            Self::Summary(_) => MetricValue::Summary { sum: 0.0, count: 0 },
        }
    }
}

fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    number.filter(|number| number.is_finite())
}

/// Returns a description as one line with escapes, since the encoder writes it as it is.
fn line(help: &str) -> String {
    let cut: String = help.chars().take(MAX_HELP_CHARS).collect();
    cut.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace(char::is_control, " ")
}

impl MetricValue {
    fn type_name(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
            Self::Summary { .. } => "summary",
        }
    }

    fn change(&mut self, change: &Change, now: Timestamp) -> Result<(), String> {
        match (&mut *self, change) {
            (Self::Counter(value), Change::Counter(amount)) => *value += amount.unwrap_or(0.0),
            (Self::Gauge(value), Change::Gauge(change)) => match change {
                Some(GaugeChange::Set(to)) => *value = *to,
                Some(GaugeChange::Add(amount)) => *value += amount,
                Some(GaugeChange::SetToCurrentTime) => *value = now.as_millisecond() as f64 / 1000.0,
                None => {}
            },
            (Self::Histogram(histogram), Change::Histogram(observed)) => {
                observed.iter().for_each(|observed| histogram.observe(*observed));
            }
            (Self::Summary { sum, count }, Change::Summary(observed)) => {
                *sum += observed.unwrap_or(0.0);
                *count += u64::from(observed.is_some());
            }
            _ => return Err(format!("cannot change metric type, which is a {}", self.type_name())),
        }
        Ok(())
    }

    /// Returns the names of the families and of the series of a metric.
    fn series(&self, name: &str) -> Vec<String> {
        match self {
            Self::Counter(_) => vec![name.to_owned(), name.strip_suffix("_total").unwrap_or(name).to_owned()],
            Self::Gauge(_) => vec![name.to_owned()],
            Self::Histogram(_) | Self::Summary { .. } => {
                ["", "_bucket", "_count", "_sum"].map(|suffix| format!("{name}{suffix}")).into()
            }
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result {
        let mut plain = |name: &str, value: f64, kind: MetricType| {
            encoder.encode_descriptor(name, help, None, kind)?.encode_gauge(&value)
        };
        match self {
            // In this format, only names with this suffix are counters.
            Self::Counter(value) => match name.strip_suffix("_total") {
                Some(base) => {
                    let counter = ConstCounter::new(*value);
                    counter.encode(encoder.encode_descriptor(base, help, None, MetricType::Counter)?)
                }
                None => plain(name, *value, MetricType::Unknown),
            },
            Self::Gauge(value) => plain(name, *value, MetricType::Gauge),
            Self::Histogram(histogram) => {
                histogram.encode(encoder.encode_descriptor(name, help, None, MetricType::Histogram)?)
            }
            // The encoder has no summaries.
            Self::Summary { sum, count } => {
                plain(&format!("{name}_sum"), *sum, MetricType::Unknown)?;
                plain(&format!("{name}_count"), *count as f64, MetricType::Unknown)
            }
        }
    }
}

impl Collector for RoleMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = self.0.lock();
        metrics.iter().try_for_each(|(name, metric)| metric.value.encode(&mut encoder, name, &metric.help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json;
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    fn apply(metrics: &RoleMetrics, arguments: Value) -> Result<(), String> {
        let mut all = json!({"description": "things"}).as_object().unwrap().clone();
        all.extend(arguments.as_object().unwrap().clone());
        metrics.apply(Update::parse(&all)?, Timestamp::from_millisecond(1_500).unwrap())
    }

    fn text_of(metrics: &RoleMetrics) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        let mut found = String::new();
        text::encode(&mut found, &registry).unwrap();
        found
    }

    #[test]
    fn operations_change_metrics_as_in_operator_sdk() {
        let metrics = RoleMetrics::default();
        for update in [
            json!({"name": "things", "counter": {}}),
            json!({"name": "things", "counter": {"increment": "yes", "add": null}}),
            json!({"name": "things", "counter": {"increment": false, "add": "3.5"}}),
            json!({"name": "all_total", "counter": {"add": 2}}),
            json!({"name": "size", "gauge": {"set": 7}}),
            json!({"name": "size", "gauge": {"increment": true}}),
            json!({"name": "size", "gauge": {"decrement": true}}),
            json!({"name": "size", "gauge": {"add": 2}}),
            json!({"name": "size", "gauge": {"subtract": 0.5}}),
            json!({"name": "none", "gauge": {"set": 1}}),
            json!({"name": "none", "gauge": {"set": "0"}}),
            json!({"name": "last", "gauge": {"set_to_current_time": true}}),
            json!({"name": "times", "histogram": {"observe": 0.3}}),
            json!({"name": "sizes", "summary": {"observe": 2}}),
            json!({"name": "sizes", "summary": {"observe": 3}}),
        ] {
            assert_eq!(apply(&metrics, update.clone()), Ok(()), "{update}");
        }
        let text = text_of(&metrics);
        for line in [
            "# HELP things things",
            "# TYPE things unknown",
            "things 4.5",
            "# TYPE all counter",
            "all_total 2.0",
            "# TYPE size gauge",
            "size 8.5",
            "none 0.0",
            "last 1.5",
            "# TYPE times histogram",
            "times_sum 0.3",
            "times_count 1",
            "times_bucket{le=\"0.25\"} 0",
            "times_bucket{le=\"0.5\"} 1",
            "sizes_sum 5.0",
            "sizes_count 2.0",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn impossible_updates_are_rejected() {
        let metrics = RoleMetrics::default();
        apply(&metrics, json!({"name": "things", "counter": {}})).unwrap();
        apply(&metrics, json!({"name": "times", "histogram": {}})).unwrap();
        for (update, problem) in [
            (json!({"name": "things", "gauge": {"set": 1}}), "things: cannot change metric type, which is a counter"),
            (json!({"name": "things", "counter": {"add": -1}}), "cannot decrease"),
            (json!({"name": "things", "counter": {"add": "NaN"}}), "must be a finite number"),
            (json!({"name": "things", "counter": {"add": [1]}}), "must be a finite number"),
            (json!({"name": "things", "counter": {"increment": "maybe"}}), "must be true or false"),
            (json!({"name": "things", "counter": {"increment": true, "add": 1}}), "use either"),
            (json!({"name": "things", "counter": {"set": 1}}), "unknown operation set: use increment, add"),
            (json!({"name": "things", "counter": 3}), "must be a map, not"),
            (json!({"name": "things"}), "one of counter, gauge"),
            (json!({"name": "things", "counter": {}, "gauge": {}}), "remove counter or gauge"),
            (json!({"counter": {}}), "name: required"),
            (json!({"name": "things_total", "counter": {}}), "the metric things has a series"),
            (json!({"name": "times_sum", "gauge": {}}), "the metric times has a series"),
            (json!({"name": "a b", "gauge": {}}), "letters, digits"),
            (json!({"name": "1a", "gauge": {}}), "not start with a digit"),
            (json!({"name": "a".repeat(201), "gauge": {}}), "up to 200"),
            (json!({"name": "workqueue_depth", "gauge": {}}), "the prefix workqueue_ is reserved"),
        ] {
            let found = apply(&metrics, update.clone()).unwrap_err();
            assert!(found.contains(problem), "{update}: {found}");
        }
        assert_eq!(metrics.0.lock().len(), 2);
    }

    #[test]
    fn number_of_metrics_and_length_of_descriptions_are_limited() {
        let metrics = RoleMetrics::default();
        let help = format!("a\n# TYPE b counter\"\\{}", "x".repeat(2 * MAX_HELP_CHARS));
        for number in 0..MAX_METRICS {
            apply(&metrics, json!({"name": format!("m{number}"), "description": help, "gauge": {}})).unwrap();
        }
        assert!(apply(&metrics, json!({"name": "more", "gauge": {}})).unwrap_err().contains("more than 1000 metrics"));
        let text = text_of(&metrics);
        assert_eq!(text.lines().count(), 3 * MAX_METRICS + 1, "a description is one line");
        assert!(text.lines().all(|line| line.len() < MAX_HELP_CHARS + 100));
        assert!(text.starts_with("# HELP m0 a\\n# TYPE b counter\\\"\\\\x"));
    }
}
