//! Range queries of Prometheus. See <https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries>.
//!
//! A value at a time counts for the step before it. A step without a value is missing.

use crate::meter::{Meter, Subject};
use crate::observation::short;
use crate::store::{Sample, Series};
use bytes::Bytes;
use flyball::web::Client;
use http::{Request, StatusCode};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// Largest response.
const MAX_RESPONSE_BYTES: usize = 256 << 20;
/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Most labels of a series, and longest text of one.
const MAX_LABELS: usize = 64;

/// The reason why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is invalid.
    #[error("{url:?} is not the URL of a Prometheus server")]
    Url {
        /// The URL.
        url: String,
    },
    /// There is no response.
    #[error("the Prometheus server does not respond")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server took too long.
    #[error("the Prometheus server did not respond within {} seconds", TIMEOUT.as_secs())]
    Timeout,
    /// The server rejects the query.
    #[error("the Prometheus server rejects the query with status {status}: {message}")]
    Rejected {
        /// Status code.
        status: u16,
        /// Message of the server.
        message: String,
    },
    /// The response has another format.
    #[error("the response of the Prometheus server is not that of a range query")]
    Format(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    error: String,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data {
    #[serde(default)]
    result: Vec<Matrix>,
}

/// A series of a response: labels, and values as pairs of seconds and text.
#[derive(Deserialize)]
struct Matrix {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

/// A range of time with a step, in seconds. The first value is that of the first step's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Begin.
    pub since: i64,
    /// End.
    pub until: i64,
    /// Step.
    pub step: i64,
}

/// A series with values of steps: its labels, and the end and value of each step.
pub type Values = (BTreeMap<String, String>, Vec<(i64, f64)>);

/// Queries a range.
///
/// # Errors
///
/// If the server does not respond, or rejects the query.
pub async fn query_range(client: &Client, url: &str, query: &str, range: Range) -> Result<Vec<Values>, Error> {
    let invalid = || Error::Url { url: short(url) };
    let mut address = url::Url::parse(url).map_err(|_| invalid())?;
    if !matches!(address.scheme(), "http" | "https") {
        return Err(invalid());
    }
    address.path_segments_mut().map_err(|()| invalid())?.pop_if_empty().extend(["api", "v1", "query_range"]);
    let times = [("start", range.since + range.step), ("end", range.until), ("step", range.step)];
    address.query_pairs_mut().append_pair("query", query);
    for (name, value) in times {
        address.query_pairs_mut().append_pair(name, &value.to_string());
    }
    let request = Request::get(address.as_str()).body(Bytes::new()).map_err(|_| invalid())?;
    let response = timeout(TIMEOUT, client.fetch(request, MAX_RESPONSE_BYTES)).await.map_err(|_| Error::Timeout)?;
    let response = response.map_err(Error::Unreachable)?;
    let parsed: Result<Response, _> = serde_json::from_slice(response.body());
    if response.status() != StatusCode::OK {
        let message = parsed.map(|response| short(&response.error)).unwrap_or_default();
        return Err(Error::Rejected { status: response.status().as_u16(), message });
    }
    let series = parsed.map_err(Error::Format)?.data.result.into_iter().map(|series| {
        let values = series.values.into_iter().filter_map(|(time, text)| Some((time as i64, text.parse().ok()?)));
        (series.metric, values.collect())
    });
    Ok(series.collect())
}

/// The meter that the source of a name feeds.
pub fn meter_of(source: &str) -> Meter {
    match source {
        "pod-usage-cpu-cores" => Meter::PodCpuUsage,
        "pod-usage-memory-bytes" => Meter::PodMemoryUsage,
        "persistentvolumeclaim-usage-bytes" => Meter::ClaimUsage,
        _ => Meter::Value,
    }
}

/// Converts values to samples. `find` returns the series of a pod or claim with this name at a time.
pub fn samples(
    (namespace, source): (&str, &str),
    values: &[Values],
    step: i64,
    find: impl Fn(Subject, &str, &str) -> Option<Series>,
) -> Vec<Sample> {
    let meter = meter_of(source);
    let unit = if matches!(meter, Meter::PodCpuUsage | Meter::Value) { 1e6 } else { 1.0 };
    let mut samples = Vec::new();
    for (labels, values) in values {
        let Some(series) = series_of(namespace, source, meter, labels, &find) else { continue };
        for (until, value) in values {
            let amount = value * unit * step as f64;
            // Infinite and negative values are errors of the query.
            if amount.is_finite() && (0.0..i64::MAX as f64).contains(&amount) {
                let amount = amount.round() as i64;
                samples.push(Sample { series: series.clone(), meter, since: until - step, until: *until, amount });
            }
        }
    }
    samples.sort_by_key(|sample| sample.since);
    samples
}

fn series_of(
    namespace: &str,
    source: &str,
    meter: Meter,
    labels: &BTreeMap<String, String>,
    find: &impl Fn(Subject, &str, &str) -> Option<Series>,
) -> Option<Series> {
    let label = |name: &str| labels.get(name).map(|value| short(value));
    match meter {
        Meter::PodCpuUsage | Meter::PodMemoryUsage => {
            let (namespace, pod) = (label("namespace")?, label("pod")?);
            let node = label("node").unwrap_or_default();
            let known = find(Subject::Pod, &namespace, &pod);
            Some(known.unwrap_or_else(|| super::resource_metrics::unknown_pod(&namespace, &pod, &node)))
        }
        Meter::ClaimUsage => {
            let namespace = label("exported_namespace").or_else(|| label("namespace"))?;
            let claim = label("persistentvolumeclaim")?;
            let known = find(Subject::Claim, &namespace, &claim);
            Some(known.unwrap_or_else(|| Series::new(Subject::Claim, "", &namespace, &claim)))
        }
        _ => {
            let mut series = Series::new(Subject::Labels, "", namespace, source);
            let labels: BTreeMap<String, String> =
                labels.iter().take(MAX_LABELS).map(|(name, value)| (short(name), short(value))).collect();
            series.detail = serde_json::json!(labels).to_string();
            Some(series)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_for_the_step_before_them() {
        let labels =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let values: Vec<Values> = vec![
            (
                labels(&[("namespace", "shop"), ("pod", "web")]),
                vec![(60, 0.5), (120, f64::NAN), (180, 1.5), (240, -1.0)],
            ),
            (labels(&[("pod", "nameless")]), vec![(60, 1.0)]),
        ];
        let samples = samples(("metering", "pod-usage-cpu-cores"), &values, 60, |_, _, _| None);
        let found: Vec<_> = samples.iter().map(|sample| (sample.since, sample.until, sample.amount)).collect();
        assert_eq!(found, [(0, 60, 30_000_000), (120, 180, 90_000_000)]);
        assert_eq!(samples[0].series.name, "web");
    }
}
