//! Metrics of operators and of the embedded API server, and the ports of operators.

use crate::error::{Error, Result, ResultExt};
use crate::web::Web;
use bytes::Bytes;
use flyball_core::exposition::{Sample, samples};
use http::Request;
use kube::Client;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;

/// Default port of metrics.
pub(crate) const METRICS_PORT: u16 = 8080;
/// Port of metrics over TLS in pods.
pub(crate) const SECURE_METRICS_PORT: u16 = 8443;
/// Port of health checks.
pub(crate) const HEALTH_PORT: u16 = 8081;
/// Variable with the address of metrics, as the flag `--metrics-addr`.
pub(crate) const METRICS_VARIABLE: &str = "FLYBALL_METRICS_ADDR";
/// Variable with the address of health checks, as the flag `--health-addr`.
pub(crate) const HEALTH_VARIABLE: &str = "FLYBALL_HEALTH_ADDR";

/// Returns the URL of the metrics of an operator at this address.
pub(crate) fn url(address: &str) -> String {
    format!("http://{address}/metrics")
}

/// The text of one response.
#[derive(Debug, Default)]
pub(crate) struct Metrics(String);

impl Metrics {
    /// Fetches the metrics of the operator at this address.
    pub(crate) async fn fetch(web: &Web, address: &str) -> Result<Self> {
        let request = Request::get(url(address)).body(Bytes::new()).context("invalid address")?;
        let response = web.send(request).await?;
        if !response.status().is_success() {
            return Err(Error::new(format!("{address} returned {} instead of metrics", response.status())));
        }
        Ok(Self(String::from_utf8_lossy(response.body()).into_owned()))
    }

    /// Fetches the metrics of the API server that a client is connected to.
    pub(crate) async fn of_server(client: &Client) -> Result<Self> {
        let request = Request::get("/metrics").body(Vec::new()).context("invalid address")?;
        client.request_text(request).await.map(Self).context("the control plane did not respond")
    }

    /// Returns the sum of all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        // Not `sum`, which is -0 for empty input.
        self.series(name).fold(0.0, |sum, sample| sum + sample.value)
    }

    /// Returns the sums of a name by the values of one of its labels.
    pub(crate) fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for sample in self.series(name) {
            *sums.entry(value(sample, label).into_owned()).or_default() += sample.value;
        }
        sums
    }

    /// Returns the requests that the embedded API server denied, without those of administrators, such as `list pods`.
    pub(crate) fn denied(&self) -> Vec<String> {
        let denied = self.series("flyball_forbidden_requests_total");
        denied.map(|sample| format!("{} {}", value(sample, "verb").to_lowercase(), resource(sample))).collect()
    }

    /// Returns the permissions that service accounts used on the embedded API server, such as `list pods`.
    pub(crate) fn used(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for sample in self.series("flyball_service_account_requests_total") {
            let verbs: &[&str] = match (&*value(sample, "verb"), &*value(sample, "code")) {
                ("GET", _) => &["get"],
                ("LIST", _) => &["list"],
                ("WATCH", _) => &["watch"],
                ("POST", _) => &["create"],
                ("PUT", _) => &["update"],
                ("DELETE", _) => &["delete", "deletecollection"],
                // An apply of a missing object creates it.
                ("APPLY", "201") => &["create", "patch"],
                ("APPLY" | "PATCH", _) => &["patch"],
                _ => &[],
            };
            used.extend(verbs.iter().map(|verb| format!("{verb} {}", resource(sample))));
        }
        used
    }

    /// Returns the samples of a name.
    pub(crate) fn series(&self, name: &str) -> impl Iterator<Item = Sample<'_>> {
        samples(&self.0).filter(move |sample| sample.name == name)
    }
}

/// Returns the resource of a series, such as `deployments/status.apps`.
fn resource(sample: Sample<'_>) -> String {
    let part = |label| Some(value(sample, label)).filter(|value| !value.is_empty());
    let subresource = part("subresource").map(|name| format!("/{name}")).unwrap_or_default();
    let group = part("group").map(|name| format!(".{name}")).unwrap_or_default();
    format!("{}{subresource}{group}", value(sample, "resource"))
}

/// Returns the value of one of the labels of a series, empty if there is no such label.
fn value<'a>(sample: Sample<'a>, label: &str) -> Cow<'a, str> {
    sample.label(label).unwrap_or_default()
}

/// Finds a free address for the metrics of an operator.
pub(crate) fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.to_string()).context("cannot find a free port")
}

impl From<&str> for Metrics {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn series_are_summed_by_name_and_label() {
        let metrics = Metrics::from(
            "# HELP calls Calls\ncalls{code=\"200\",method=\"GET\"} 1\ncalls{code=\"404\",method=\"GET\"} 2\n\
             calls{code=\"200\",method=\"PUT\"} 4\ncalls_else{method=\"GET\"} 9\nplain 3\nbroken{} x\n\
             flyball_forbidden_requests_total{code=\"403\",group=\"apps\",resource=\"deployments\",subresource=\"status\",verb=\"PATCH\"} 2\n\
             flyball_forbidden_requests_total{code=\"403\",group=\"\",resource=\"pods\",subresource=\"\",verb=\"LIST\"} 1\n\
             flyball_service_account_requests_total{code=\"201\",group=\"apps\",resource=\"deployments\",subresource=\"\",verb=\"APPLY\"} 1\n\
             flyball_service_account_requests_total{code=\"200\",group=\"\",resource=\"pods\",subresource=\"status\",verb=\"PUT\"} 1\n\
             apiserver_request_total{code=\"403\",group=\"\",resource=\"pods\",subresource=\"\",verb=\"POST\"} 1\n",
        );
        assert_eq!((metrics.sum("calls"), metrics.by("calls", "code")["200"]), (7.0, 5.0));
        assert_eq!(metrics.by("calls", "method"), [("GET".to_owned(), 3.0), ("PUT".to_owned(), 4.0)].into());
        assert_eq!(metrics.denied(), ["patch deployments/status.apps", "list pods"]);
        let used: Vec<String> = metrics.used().into_iter().collect();
        assert_eq!(used, ["create deployments.apps", "patch deployments.apps", "update pods/status"]);
        assert_eq!((metrics.sum("plain"), metrics.sum("broken"), metrics.sum("none")), (3.0, 0.0, 0.0));
    }
}
