//! Tells whoever asks over HTTP how an operator is: `/healthz`, `/readyz`, `/metrics`.

use super::connections;
use super::metrics::Metrics;
use crate::cache::{Caches, Store};
use crate::webhook::Serving;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use std::fmt::Write;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// A cache that was cut off from the API server for longer makes the operator not ready.
const LONGEST_TROUBLE: Duration = Duration::from_secs(60);
/// Connections at the same time; more wait.
const CONNECTIONS: usize = 32;

/// What is served at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// `/healthz` and `/readyz`.
    Health,
    /// `/metrics`.
    Metrics,
}

/// What the pages tell of.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) caches: Arc<Caches>,
    pub(super) metrics: Arc<Metrics>,
    /// The certificate of the webhooks, if there are any.
    pub(super) serving: Option<Arc<Serving>>,
}

impl Report {
    fn page(&self, pages: Pages, path: &str) -> (StatusCode, String) {
        match (pages, path) {
            (Pages::Health, "/healthz") => (StatusCode::OK, "ok\n".into()),
            (Pages::Health, "/readyz") => self.readiness(),
            (Pages::Metrics, "/metrics") => (StatusCode::OK, self.metrics.text()),
            _ => (StatusCode::NOT_FOUND, "no such page\n".into()),
        }
    }

    /// Tells whether every cache is filled and connected, and webhooks can be called; one line for each.
    pub(super) fn readiness(&self) -> (StatusCode, String) {
        let (mut code, mut text) = (StatusCode::OK, String::new());
        for store in self.caches.stores() {
            let place = store.namespace().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            let line = match complaint(store) {
                None => format!("[+] cache of {}{place}", store.kind()),
                Some(complaint) => {
                    code = StatusCode::SERVICE_UNAVAILABLE;
                    format!("[-] cache of {}{place}: {complaint}", store.kind())
                }
            };
            writeln!(text, "{line}").expect("writing to a string cannot fail");
        }
        match self.serving.as_ref().map(|serving| serving.is_ready()) {
            None => {}
            Some(true) => text.push_str("[+] webhooks\n"),
            Some(false) => {
                code = StatusCode::SERVICE_UNAVAILABLE;
                text.push_str("[-] webhooks: there is no certificate to serve yet\n");
            }
        }
        (code, text)
    }
}

fn complaint(store: &Store) -> Option<String> {
    let trouble = store.trouble();
    if !store.is_synced() {
        let why = trouble.map(|trouble| format!(": {}", trouble.why)).unwrap_or_default();
        return Some(format!("not filled yet{why}"));
    }
    let trouble = trouble.filter(|trouble| trouble.since.elapsed() > LONGEST_TROUBLE)?;
    let seconds = (Instant::now() - trouble.since).as_secs();
    Some(format!("cut off for {seconds} s: {}", trouble.why))
}

/// Serves pages until it is dropped.
pub(super) async fn serve(listener: TcpListener, pages: Pages, report: Arc<Report>) {
    let converse = |stream| {
        let report = report.clone();
        async move { connections::answer(stream, |request| ready(answer(&report, pages, &request))).await }
    };
    connections::accept(listener, CONNECTIONS, converse).await;
}

fn answer(report: &Report, pages: Pages, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (code, text) = match *request.method() {
        Method::GET | Method::HEAD => report.page(pages, request.uri().path()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".into()),
    };
    let format = match pages {
        Pages::Health => "text/plain; charset=utf-8",
        Pages::Metrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(format));
    response
}
