//! The HTTP pages of an operator: `/healthz`, `/readyz`, `/metrics`, `/debug/flyball`.

use super::debug::{self, DebugPages};
use super::guard::Guard;
use super::metrics::Metrics;
use crate::cache::{Caches, LastError, Store};
use crate::election::LeadershipState;
use crate::latch::Latch;
use crate::serve::{self, RequestBody};
use crate::webhook::{ServingCertificate, Verification, serve_tls};
use http::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, WWW_AUTHENTICATE},
};
use http_body_util::Full;
use hyper::body::Bytes;
use std::fmt::Write;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Limit of concurrent connections.
const MAX_CONNECTIONS: usize = 32;

/// The pages served at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// `/healthz` and `/readyz`.
    Health,
    /// `/metrics` and `/debug/flyball`.
    Metrics,
}

/// The state that the pages report.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) caches: Arc<Caches>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) debug: DebugPages,
    /// The certificate of the webhooks, if there are any.
    pub(super) serving: Option<Arc<ServingCertificate>>,
    /// The election of a leader, if there is one.
    pub(super) leadership: Option<Arc<LeadershipState>>,
    /// Time for which a watch may fail while the operator is ready.
    pub(super) max_watch_staleness: Duration,
    /// Opens when the operator is shutting down.
    pub(super) stop: Arc<Latch>,
}

impl Report {
    fn page(&self, pages: Pages, path: &str) -> (StatusCode, String) {
        match (pages, path) {
            // A restart does not help a process that cannot reach its API server.
            (Pages::Health, "/healthz") => (StatusCode::OK, "ok\n".into()),
            (Pages::Health, "/readyz") => self.readiness(),
            (Pages::Metrics, "/metrics") => (StatusCode::OK, self.metrics.text()),
            _ => (StatusCode::NOT_FOUND, "no such page\n".into()),
        }
    }

    /// Returns the code and text of `/readyz`, with one line for each watch, the leader, and the webhooks, as in
    /// `/readyz?verbose` of Kubernetes. Failures are shown immediately; the operator becomes not ready when one exceeds
    /// the allowed time.
    pub(super) fn readiness(&self) -> (StatusCode, String) {
        let (mut code, mut text) = (StatusCode::OK, String::new());
        for store in self.caches.stores() {
            let place = store.namespace().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            let (fails, state) = self.watch(store);
            let sign = if fails.is_some() { '-' } else { '+' };
            if fails == Some(FailureSeverity::TooLong) {
                code = StatusCode::SERVICE_UNAVAILABLE;
            }
            let line = format!("[{sign}]watch {}{place} {state}", store.kind());
            writeln!(text, "{line}").expect("writing to a string cannot fail");
        }
        if let Some(leadership) = &self.leadership {
            let (holder, last_error) = leadership.observed();
            match last_error.map(|last_error| self.failing(&last_error)) {
                None if leadership.gate.is_open() => text.push_str("[+]leader-election ok: leading\n"),
                None => writeln!(text, "[+]leader-election ok: {holder:?} leads").expect("as above"),
                Some((fails, state)) => {
                    if fails == FailureSeverity::TooLong {
                        code = StatusCode::SERVICE_UNAVAILABLE;
                    }
                    writeln!(text, "[-]leader-election {state}").expect("as above");
                }
            }
        }
        if self.stop.is_open() {
            code = StatusCode::SERVICE_UNAVAILABLE;
            text.push_str("[-]shutdown failed: the process is shutting down\n");
        }
        match self.serving.as_ref().map(|serving| serving.verification()) {
            None => {}
            Some(Verification::Trusted) => text.push_str("[+]webhooks ok\n"),
            Some(Verification::Unknown(why)) => {
                writeln!(text, "[+]webhooks ok: not verified: {why}").expect("as above")
            }
            Some(Verification::Untrusted(reason)) => {
                code = StatusCode::SERVICE_UNAVAILABLE;
                writeln!(text, "[-]webhooks failed: {reason}").expect("as above");
            }
        }
        (code, text)
    }

    /// Describes the state of the watch of a cache.
    fn watch(&self, store: &Store) -> (Option<FailureSeverity>, String) {
        match store.last_error() {
            // A kind may be missing in some clusters. An operator that is not ready because of it would disable the
            // webhooks of other kinds.
            _ if store.is_absent() => (None, "ok: not installed, waiting for its CRD".into()),
            last_error if !store.is_synced() => {
                let why = last_error.map(|last_error| format!(", {}", self.failing(&last_error).1)).unwrap_or_default();
                (Some(FailureSeverity::TooLong), format!("failed: not listed yet{why}"))
            }
            None => (None, "ok".into()),
            Some(last_error) => {
                let (fails, state) = self.failing(&last_error);
                (Some(fails), state)
            }
        }
    }

    fn failing(&self, last_error: &LastError) -> (FailureSeverity, String) {
        let since = last_error.since.elapsed();
        let fails = if since > self.max_watch_staleness { FailureSeverity::TooLong } else { FailureSeverity::ForNow };
        (fails, format!("failing for {}s: {}", since.as_secs(), last_error.message))
    }
}

/// Severity of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureSeverity {
    ForNow,
    TooLong,
}

/// Serves metrics until it is dropped, over TLS and only to callers that the guard permits.
pub(super) async fn serve_guarded(
    listener: TcpListener,
    report: Arc<Report>,
    guard: Arc<Guard>,
    serving: Arc<ServingCertificate>,
) {
    let response = move |request: Request<RequestBody>| {
        let (report, guard) = (report.clone(), guard.clone());
        async move {
            match guard.admit(request.headers(), request.method(), request.uri().path()).await {
                Ok(()) => respond(&report, Pages::Metrics, &request),
                Err((code, why)) => {
                    let mut rejected = Response::new(Full::from(why));
                    *rejected.status_mut() = code;
                    if code == StatusCode::UNAUTHORIZED {
                        rejected.headers_mut().insert(WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
                    }
                    rejected
                }
            }
        }
    };
    serve_tls(listener, MAX_CONNECTIONS, serving, response).await;
}

/// Serves pages until it is dropped.
pub(super) async fn serve(listener: TcpListener, pages: Pages, report: Arc<Report>) {
    let converse = |stream, pace| {
        let report = report.clone();
        async move { serve::serve_connection(stream, pace, |request| ready(respond(&report, pages, &request))).await }
    };
    serve::accept(listener, MAX_CONNECTIONS, converse).await;
}

fn respond(report: &Report, pages: Pages, request: &Request<RequestBody>) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let is_debug = pages == Pages::Metrics && debug::is_page(path);
    let (code, text) = match is_read {
        true if is_debug => report.debug.page(path, query),
        true => report.page(pages, path),
        false => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".into()),
    };
    let format = match pages {
        Pages::Metrics if is_debug && code == StatusCode::OK => "application/json",
        Pages::Metrics if code != StatusCode::OK => "text/plain; charset=utf-8",
        Pages::Health => "text/plain; charset=utf-8",
        Pages::Metrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(format));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Kind, Type};
    use flyball_core::ObjectKey;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn failing_watch_is_reported_at_once_and_makes_unready_after_a_delay() {
        let types = [(Type::of::<ConfigMap>(), Kind::of::<ConfigMap>()), (Type::of::<Node>(), Kind::of::<Node>())];
        let (caches, mut writers) = Caches::new(types, &["a".to_owned()].into());
        let leadership = Arc::new(LeadershipState::new(ObjectKey::new(Some("ns"), "op")));
        let (caches, mut metrics) = (Arc::new(caches), Metrics::new(String::new()));
        metrics.collect(Vec::new(), caches.clone());
        let report = Report {
            caches: caches.clone(),
            metrics: Arc::new(metrics),
            debug: debug::tests::pages(Vec::new(), caches.clone()),
            serving: None,
            leadership: Some(leadership.clone()),
            max_watch_staleness: Duration::from_secs(60),
            stop: Arc::default(),
        };
        let check = |code: u16, expected: [&str; 3]| {
            let (found, text) = report.readiness();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((found.as_u16(), &lines[..3]), (code, &expected[..]));
        };
        let follows = r#"[+]leader-election ok: "other_1" leads"#;
        leadership.observe("other_1", None);
        for writer in &mut writers {
            writer.apply(crate::cache::Delta::Restart);
        }
        writers[0].store().set_last_error(Some("403 forbidden"));
        let forbidden = "[-]watch configmaps in a failed: not listed yet, failing for 0s: 403 forbidden";
        check(503, [forbidden, "[-]watch nodes failed: not listed yet", follows]);
        writers[0].store().set_last_error(None);
        for writer in &mut writers {
            writer.apply(crate::cache::Delta::Complete(1));
        }
        let (maps, nodes) = ("[+]watch configmaps in a ok", "[+]watch nodes ok");
        check(200, [maps, nodes, follows]);
        writers[0].store().set_last_error(Some("connection refused"));
        leadership.observe("other_1", Some("403 forbidden".into()));
        advance(Duration::from_secs(37)).await;
        let cut = |seconds| format!("[-]watch configmaps in a failing for {seconds}s: connection refused");
        let unled = |seconds| format!("[-]leader-election failing for {seconds}s: 403 forbidden");
        check(200, [&cut(37), nodes, &unled(37)]);
        let failing = r#"flyball_watch_failing_seconds{kind="configmaps",namespace="a"} 37.0"#;
        assert!(report.metrics.text().contains(failing), "{}", report.metrics.text());
        advance(Duration::from_secs(24)).await;
        check(503, [&cut(61), nodes, &unled(61)]);
        writers[0].store().set_last_error(None);
        let failing = r#"flyball_watch_failing_seconds{kind="configmaps",namespace="a"} 0.0"#;
        assert!(report.metrics.text().contains(failing), "{}", report.metrics.text());
        leadership.observe("", None);
        leadership.gate.open_until(tokio::time::Instant::now() + Duration::from_secs(10));
        check(200, [maps, nodes, "[+]leader-election ok: leading"]);
        writers[0].store().set_last_error(Some("404 no such kind"));
        writers[0].apply(crate::cache::Delta::Absent);
        advance(Duration::from_secs(100)).await;
        leadership.gate.open_until(tokio::time::Instant::now() + Duration::from_secs(10));
        let absent = "[+]watch configmaps in a ok: not installed, waiting for its CRD";
        check(200, [absent, nodes, "[+]leader-election ok: leading"]);
        report.stop.open();
        let (code, text) = report.readiness();
        assert!(
            code == StatusCode::SERVICE_UNAVAILABLE
                && text.ends_with("[-]shutdown failed: the process is shutting down\n"),
            "{text}"
        );
    }
}
