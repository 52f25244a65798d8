//! Metrics of requests to the API server.

use crate::metrics::{CounterCache, Counters};
use http::{Method, StatusCode};
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// Counts requests by status code and method.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestMetrics {
    requests: Counters<3>,
    host: String,
    cache: Arc<CounterCache<(Method, Option<StatusCode>)>>,
}

impl RequestMetrics {
    /// Counts requests as sent to `host`.
    pub(crate) fn new(host: String) -> Self {
        Self { host, ..Self::default() }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Requests to the API server by code, method and host";
        registry.register("rest_client_requests", help, self.requests.clone());
    }

    /// Counts a request and its response, `None` if there was none.
    pub(crate) fn count(&self, method: &Method, code: Option<StatusCode>) {
        self.cache.increment(
            |(m, c)| m == method && *c == code,
            || {
                let text = code.map_or_else(|| "<error>".to_owned(), |code| code.as_str().to_owned());
                let labels = [("code", text), ("method", method.to_string()), ("host", self.host.clone())];
                ((method.clone(), code), self.requests.get_or_create_owned(&labels))
            },
        );
    }
}
