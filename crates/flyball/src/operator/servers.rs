//! Settings of the servers for metrics, health and webhooks.

use crate::webhook::Certificates;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the server for `/metrics`.
///
/// [`Operator::main`](crate::Operator::main) overrides the address by the flag `--metrics-addr`; its default is
/// `127.0.0.1:8080`.
///
/// ```
/// use flyball::{MetricsServer, Operator};
///
/// let metrics = MetricsServer { secure: true, ..MetricsServer::default() };
/// let operator = Operator::new("site-operator").metrics_server(metrics);
/// let asks = |resource: &str| operator.rules().iter().any(|rule| rule.resources.as_ref().unwrap()[0] == resource);
/// assert!(asks("tokenreviews") && asks("subjectaccessreviews"));
/// ```
#[doc(alias = "metricsserver.Options")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsServer {
    /// Address to listen on; without one, metrics are not served.
    #[doc(alias = "BindAddress")]
    pub address: Option<SocketAddr>,
    /// Serves metrics over TLS, to callers with a token of a user who may `get` the URL `/metrics` in the cluster. A
    /// caller without a valid token gets 401, one without the permission 403, and 500 if the review fails.
    /// Permissions are cached for a minute.
    ///
    /// The [manifests](crate::Operator::manifests) then contain a ClusterRole for readers, whose name ends in
    /// `-metrics-reader`, and the [rules](crate::Operator::rules) allow the reviews of tokens and permissions.
    #[doc(alias = "SecureServing")]
    #[doc(alias = "WithAuthenticationAndAuthorization")]
    pub secure: bool,
    /// Directory with `tls.crt` and `tls.key` for [secure](Self::secure) metrics, which are read again when they
    /// change. Without one the certificate is self-signed at the start, so that a scraper cannot verify it.
    #[doc(alias = "CertDir")]
    pub certificate_dir: Option<PathBuf>,
}

/// Settings of the server for `/healthz` and `/readyz`.
///
/// [`Operator::main`](crate::Operator::main) overrides the address by the flag `--health-addr`; its default is
/// `127.0.0.1:8081`.
///
/// ```
/// # use flyball::{HealthServer, Operator};
/// let health = HealthServer { address: Some(([127, 0, 0, 1], 8081).into()), ..HealthServer::default() };
/// let operator = Operator::new("site-operator").health_server(health);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "on.probe")]
#[doc(alias = "healthz.Ping")]
pub struct HealthServer {
    /// Address to listen on; without one, the pages are not served.
    #[doc(alias = "HealthProbeBindAddress")]
    pub address: Option<SocketAddr>,
    /// Time for which a watch may fail while `/readyz` still succeeds: 60 seconds by default.
    ///
    /// The page has a line for each watch. A failing watch is reported immediately, as in `[-]watch widgets failing
    /// for 37s: connection refused`, and in the metric `flyball_watch_failing_seconds`; the page returns 503 once it
    /// has failed for longer than this. `/healthz` does not depend on watches, since a restart does not help an
    /// operator that cannot reach its API server.
    pub max_watch_staleness: Duration,
}

impl Default for HealthServer {
    fn default() -> Self {
        Self { address: None, max_watch_staleness: Duration::from_secs(60) }
    }
}

/// Settings of the HTTPS server of an operator's webhooks.
///
/// [`Operator::main`](crate::Operator::main) overrides address and URL by the flags `--webhook-addr` and
/// `--webhook-url`; the default port is 9443.
///
/// ```
/// use flyball::webhook::Certificates;
/// use flyball::{Operator, WebhookServer};
///
/// let certificates = Certificates::Files("/certificates".into());
/// let operator =
///     Operator::new("site-operator").webhook_server(WebhookServer { certificates, ..WebhookServer::default() });
/// ```
#[doc(alias = "webhook.Options")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookServer {
    /// Address to listen on, which is published to the API server; without one, webhooks are called within the
    /// process only.
    pub address: Option<SocketAddr>,
    /// URL at which the API server calls webhooks, such as `https://10.0.0.7:9443`, instead of the operator's service.
    /// Port 0 stands for the port of the listener.
    pub url: Option<String>,
    /// Source of the certificate.
    #[doc(alias = "CertDir")]
    pub certificates: Certificates,
}
