//! Counters of operators without a ledger, from their `/metrics` in the names of controller-runtime.
//!
//! A counter counts from one poll to the next. If it has decreased, the operator was restarted, and it counts from 0.

use crate::meter::{Meter, Subject, bounded};
use crate::observation::short;
use crate::store::{OwnerRecord, Sample, Series};
use flyball_core::exposition::samples;
use std::collections::BTreeMap;

/// Path of the metrics.
pub const METRICS_PATH: &str = "/metrics";
/// Most controllers of an operator.
const MAX_CONTROLLERS: usize = 1000;
/// Names of counters, their meters, and the factor of their unit.
const COUNTERS: [(&str, Meter, f64); 4] = [
    ("rest_client_requests_total", Meter::ApiCalls, 1.0),
    ("controller_runtime_reconcile_total", Meter::Reconciles, 1.0),
    ("controller_runtime_reconcile_errors_total", Meter::ReconcileErrors, 1.0),
    ("controller_runtime_reconcile_time_seconds_sum", Meter::ReconcileTime, 1e6),
];

/// The last values of the counters of one operator, by meter and controller.
#[derive(Debug, Default)]
pub struct Counters(Option<BTreeMap<(Meter, String), f64>>);

impl Counters {
    /// Converts the metrics of a poll to samples of the interval since the last one.
    pub fn samples(&mut self, operator: &str, text: &str, since: i64, until: i64) -> Vec<Sample> {
        let current = read(text);
        let Some(last) = self.0.replace(current.clone()) else { return Vec::new() };
        let sample = |((meter, controller), value): ((Meter, String), f64)| {
            let before = last.get(&(meter, controller.clone())).copied().unwrap_or_default();
            let grown = if value >= before { value - before } else { value };
            let amount = bounded(grown.round() as i128);
            Sample { series: series(operator, &controller), meter, since, until, amount }
        };
        current.into_iter().map(sample).collect()
    }
}

/// Adds up the counters by meter and controller. Requests have no controller.
fn read(text: &str) -> BTreeMap<(Meter, String), f64> {
    let mut sums = BTreeMap::new();
    for sample in samples(text) {
        let counter = COUNTERS.iter().find(|(counter, ..)| *counter == sample.name);
        let Some((_, meter, factor)) = counter.filter(|_| sample.value.is_finite() && sample.value >= 0.0) else {
            continue;
        };
        let controller = sample.label("controller").map(|name| short(&name)).unwrap_or_default();
        let key = (*meter, controller);
        if sums.contains_key(&key) || sums.len() < COUNTERS.len() * MAX_CONTROLLERS {
            *sums.entry(key).or_default() += sample.value * factor;
        }
    }
    sums
}

/// Returns the series of a controller. Its name stands for its kind, which metrics do not contain.
fn series(operator: &str, controller: &str) -> Series {
    let mut series = Series::new(Subject::Resource, "", "", "");
    series.operator = short(operator);
    series.detail = controller.to_owned();
    series.owner = (!controller.is_empty()).then(|| OwnerRecord {
        group: String::new(),
        kind: controller.to_owned(),
        namespace: String::new(),
        name: String::new(),
        uid: String::new(),
    });
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_may_contain_commas() {
        let text = "controller_runtime_reconcile_total{cluster=\"a,controller=b\",controller=\"site, large\"} 1\n";
        let controllers: Vec<String> = read(text).into_keys().map(|(_, controller)| controller).collect();
        assert_eq!(controllers, ["site, large"]);
    }

    #[test]
    fn counters_count_from_one_poll_to_the_next() {
        let text = |reconciles: u64, seconds: f64| {
            format!(
                "# TYPE controller_runtime_reconcile counter\n\
                 controller_runtime_reconcile_total{{controller=\"site\",result=\"success\"}} {reconciles}\n\
                 controller_runtime_reconcile_total{{controller=\"site\",result=\"error\"}} 1\n\
                 controller_runtime_reconcile_time_seconds_sum{{controller=\"site\"}} {seconds}\n\
                 rest_client_requests_total{{code=\"200\",method=\"GET\",host=\"a\"}} 7\n\
                 other_total 5\n"
            )
        };
        let mut counters = Counters::default();
        let mut check = |text: &str, expected: [i64; 3]| {
            let samples = counters.samples("site-operator", text, 0, 60);
            let amount =
                |meter| samples.iter().filter(|sample| sample.meter == meter).map(|sample| sample.amount).sum();
            let found: [i64; 3] = [Meter::ApiCalls, Meter::Reconciles, Meter::ReconcileTime].map(amount);
            assert_eq!(found, expected);
        };
        check(&text(10, 1.0), [0, 0, 0]);
        check(&text(15, 1.25), [0, 5, 250_000]);
        // After a restart, all of a meter counts: three successes and one error.
        check(&text(3, 0.5), [0, 4, 500_000]);
    }
}
