//! Types and helpers for the metrics of the modules.
//!
//! Each module registers its own metrics, under the names that controller-runtime and client-go use where they have
//! one. This module names no metric.

use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::fmt;

/// Label names with their values.
pub(crate) type Labels<const N: usize> = [(&'static str, String); N];
/// Counters by labels.
pub(crate) type Counters<const N: usize> = Family<Labels<N>, Counter>;
/// Gauges by labels.
pub(crate) type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
/// Histograms by labels.
pub(crate) type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// Counters by a key that is cheap to compare: their labels are encoded once, not at each increment.
#[derive(Debug)]
pub(crate) struct CounterCache<K>(Mutex<Vec<(K, Counter)>>);

impl<K> Default for CounterCache<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K> CounterCache<K> {
    /// Increments the counter with this key; `create` creates it at the first increment.
    pub(crate) fn increment(&self, matches: impl Fn(&K) -> bool, create: impl FnOnce() -> (K, Counter)) {
        let mut counters = self.0.lock();
        let at = counters.iter().position(|(key, _)| matches(key)).unwrap_or_else(|| {
            counters.push(create());
            counters.len() - 1
        });
        counters[at].1.inc();
    }
}

/// Creates a histogram of seconds with the buckets of controller-runtime.
pub(crate) fn duration_histogram() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
        1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ])
}

/// Encodes a family of metrics that are read at each scrape; a family without members is omitted.
pub(crate) fn encode_family<L: EncodeLabelSet, M: EncodeMetric>(
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
