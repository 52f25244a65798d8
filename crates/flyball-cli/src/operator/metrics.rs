//! Metrics of operators and of the embedded API server, and the ports of operators.

use crate::error::{Error, Result, ResultExt};
use crate::web::Web;
use bytes::Bytes;
use http::Request;
use kube::Client;
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

    /// Returns the sum of all series of a name that have this label, such as `result="error"`, or of all for an empty
    /// one.
    pub(crate) fn sum(&self, name: &str, label: &str) -> f64 {
        // Not `sum`, which is -0 for empty input.
        self.series(name).filter(|(labels, _)| labels.contains(label)).fold(0.0, |sum, (_, value)| sum + value)
    }

    /// Returns the sums of a name by the values of one of its labels.
    pub(crate) fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (labels, count) in self.series(name) {
            *sums.entry(value(labels, label).to_owned()).or_default() += count;
        }
        sums
    }

    /// Returns the requests that the embedded API server denied, without those of administrators, such as `list pods`.
    pub(crate) fn denied(&self) -> Vec<String> {
        let denied = self.series("flyball_forbidden_requests_total");
        denied.map(|(labels, _)| format!("{} {}", value(labels, "verb").to_lowercase(), resource(labels))).collect()
    }

    /// Returns the permissions that service accounts used on the embedded API server, such as `list pods`.
    pub(crate) fn used(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for (labels, _) in self.series("flyball_service_account_requests_total") {
            let verbs: &[&str] = match (value(labels, "verb"), value(labels, "code")) {
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
            used.extend(verbs.iter().map(|verb| format!("{verb} {}", resource(labels))));
        }
        used
    }

    /// Returns labels and value of each series of a name.
    pub(crate) fn series(&self, name: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
            let (labels, value) = rest.rsplit_once(' ')?;
            Some((labels, value.parse().ok()?))
        })
    }
}

/// Returns the resource of a series, such as `deployments/status.apps`.
fn resource(labels: &str) -> String {
    let part = |label| Some(value(labels, label)).filter(|value| !value.is_empty());
    let subresource = part("subresource").map(|name| format!("/{name}")).unwrap_or_default();
    let group = part("group").map(|name| format!(".{name}")).unwrap_or_default();
    format!("{}{subresource}{group}", value(labels, "resource"))
}

/// Finds the value of one of the labels of a series, empty if there is no such label.
fn value<'a>(labels: &'a str, label: &str) -> &'a str {
    let all = labels.trim_matches(['{', '}']).split("\",");
    all.filter_map(|one| one.split_once("=\""))
        .find(|(name, _)| *name == label)
        .map_or("", |(_, value)| value.trim_end_matches('"'))
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
        assert_eq!((metrics.sum("calls", ""), metrics.sum("calls", "code=\"200\"")), (7.0, 5.0));
        assert_eq!(metrics.by("calls", "method"), [("GET".to_owned(), 3.0), ("PUT".to_owned(), 4.0)].into());
        assert_eq!(metrics.denied(), ["patch deployments/status.apps", "list pods"]);
        let used: Vec<String> = metrics.used().into_iter().collect();
        assert_eq!(used, ["create deployments.apps", "patch deployments.apps", "update pods/status"]);
        assert_eq!((metrics.sum("plain", ""), metrics.sum("broken", ""), metrics.sum("none", "")), (3.0, 0.0, 0.0));
    }
}
