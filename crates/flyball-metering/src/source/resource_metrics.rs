//! Usage from `metrics.k8s.io`, which metrics-server serves.
//!
//! A value is the average of a window that ends at its time. It counts from the previous value of the same pod, or from
//! the begin of its window after a gap. Time without a value is missing, and counts as such.

use crate::meter::{Meter, Subject};
use crate::store::{MAX_SAMPLE_SECONDS, Sample, Series};
use flyball_core::Quantity;
use flyball_core::time::{parse_duration, parse_rfc3339};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

/// Path of the metrics of all pods.
pub const PATH: &str = "/apis/metrics.k8s.io/v1beta1/pods";
/// Longest time between two values that counts as observed.
const MAX_GAP_SECONDS: i64 = 300;

/// The metrics of pods.
#[derive(Debug, Deserialize)]
pub struct PodMetricsList {
    items: Vec<PodMetrics>,
}

#[derive(Debug, Deserialize)]
struct PodMetrics {
    metadata: Metadata,
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct ContainerMetrics {
    #[serde(default)]
    usage: BTreeMap<String, String>,
}

/// The usage of a pod at a time: CPU in billionths of a core, memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// CPU.
    pub nano_cores: i128,
    /// Memory.
    pub bytes: i128,
}

/// The times of the last values.
#[derive(Debug, Default)]
pub struct Sampler {
    last: HashMap<String, i64>,
}

impl Sampler {
    /// Converts metrics to samples. `find` returns the series of a pod and the begin of its gauges.
    pub fn samples(
        &mut self,
        list: &PodMetricsList,
        now: i64,
        find: impl Fn(&str, &str) -> Option<(Series, i64)>,
    ) -> Vec<Sample> {
        let (mut samples, mut last) = (Vec::new(), HashMap::new());
        for pod in &list.items {
            let Some((series, began)) = find(&pod.metadata.namespace, &pod.metadata.name) else { continue };
            // A time in the future is that of a clock ahead of ours.
            let Some(until) = parse_rfc3339(&pod.timestamp).map(|time| time.as_second().min(now)) else { continue };
            let window = parse_duration(&pod.window).unwrap_or(0) / 1_000_000_000;
            let previous = self.last.get(&series.uid).copied();
            let since = match previous {
                Some(previous) if until - previous <= MAX_GAP_SECONDS => previous,
                _ => until - window.clamp(0, MAX_SAMPLE_SECONDS),
            };
            let since = since.max(began);
            last.insert(series.uid.clone(), until.max(previous.unwrap_or(until)));
            if until > since {
                let usage = pod.usage();
                samples.extend(usage_samples(&series, usage, since, until));
            }
        }
        self.last = last;
        samples
    }
}

impl PodMetricsList {
    /// Returns the current usage of each pod by namespace and name.
    pub fn usage(&self) -> BTreeMap<(String, String), Usage> {
        let usage = |pod: &PodMetrics| ((pod.metadata.namespace.clone(), pod.metadata.name.clone()), pod.usage());
        self.items.iter().map(usage).collect()
    }
}

impl PodMetrics {
    fn usage(&self) -> Usage {
        let mut usage = Usage { nano_cores: 0, bytes: 0 };
        for container in &self.containers {
            usage.nano_cores += container.usage.get("cpu").map_or(0, |cpu| nano(cpu));
            usage.bytes += container.usage.get("memory").map_or(0, |memory| amount(memory).value().max(0).into());
        }
        usage
    }
}

/// Returns billionths. Quantities are exact to billionths, but have no accessor for them.
fn nano(text: &str) -> i128 {
    if let Some(nano) = text.strip_suffix('n').and_then(|digits| digits.parse::<u64>().ok()) {
        return nano.into();
    }
    if let Some(micro) = text.strip_suffix('u').and_then(|digits| digits.parse::<u64>().ok()) {
        return i128::from(micro) * 1000;
    }
    i128::from(amount(text).milli_value().max(0)) * 1_000_000
}

fn amount(text: &str) -> Quantity {
    text.parse().unwrap_or(Quantity::ZERO)
}

/// Returns the samples of CPU and memory of an interval.
fn usage_samples(series: &Series, usage: Usage, since: i64, until: i64) -> [Sample; 2] {
    let seconds = i128::from(until - since);
    let sample = |meter, amount: i128| Sample {
        series: series.clone(),
        meter,
        since,
        until,
        amount: i64::try_from(amount).unwrap_or(i64::MAX),
    };
    [
        sample(Meter::PodCpuUsage, usage.nano_cores * seconds / 1000),
        sample(Meter::PodMemoryUsage, usage.bytes * seconds),
    ]
}

/// Returns the series of a pod that is not known: by its name, without an owner.
pub fn unknown_pod(namespace: &str, name: &str, node: &str) -> Series {
    let mut series = Series::new(Subject::Pod, "", namespace, name);
    node.clone_into(&mut series.node);
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(timestamp: &str, cpu: &str) -> PodMetricsList {
        let usage = json!({"cpu": cpu, "memory": "1Ki"});
        serde_json::from_value(json!({"items": [{"metadata": {"namespace": "shop", "name": "web"},
            "timestamp": timestamp, "window": "15s", "containers": [{"usage": usage}]}]}))
        .unwrap()
    }

    #[test]
    fn values_count_from_the_previous_one_unless_there_is_a_gap() {
        let mut sampler = Sampler::default();
        let mut check = |timestamp: &str, now: i64, expected: &[(i64, i64, i64)]| {
            let find = |namespace: &str, name: &str| Some((Series::new(Subject::Pod, "u", namespace, name), 0));
            let samples = sampler.samples(&list(timestamp, "500000000n"), now, find);
            let found: Vec<_> = samples
                .iter()
                .filter(|sample| sample.meter == Meter::PodCpuUsage)
                .map(|sample| (sample.since, sample.until, sample.amount))
                .collect();
            assert_eq!(found, expected, "{timestamp}");
        };
        check("1970-01-01T00:10:00Z", 610, &[(585, 600, 7_500_000)]);
        check("1970-01-01T00:11:00Z", 670, &[(600, 660, 30_000_000)]);
        // The same value again.
        check("1970-01-01T00:11:00Z", 680, &[]);
        // After a gap of an hour, only the window is known.
        check("1970-01-01T01:11:00Z", 4270, &[(4245, 4260, 7_500_000)]);
        // A clock that is ahead.
        check("1970-01-01T03:00:00Z", 4300, &[(4260, 4300, 20_000_000)]);
    }

    #[test]
    fn quantities_of_cpu_are_exact_to_billionths() {
        for (text, expected) in
            [("1", 1_000_000_000), ("250m", 250_000_000), ("7n", 7), ("3u", 3000), ("x", 0), ("-1", 0)]
        {
            assert_eq!(nano(text), expected, "{text}");
        }
    }
}
