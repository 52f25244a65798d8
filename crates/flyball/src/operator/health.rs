//! Tells whoever asks over HTTP how an operator is: `/healthz`, `/readyz`, `/metrics`.

use super::connections;
use super::election::Standing;
use super::guard::Guard;
use super::metrics::Metrics;
use super::pace::Received;
use crate::cache::{Caches, Store, Trouble};
use crate::latch::Latch;
use crate::webhook::{Serving, serve_tls};
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

/// Connections at the same time.
const MAX_CONNECTIONS: usize = 32;

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
    /// The election of a leader, if there is one.
    pub(super) standing: Option<Arc<Standing>>,
    /// What is cut off from the API server for longer makes the operator not ready.
    pub(super) longest_stale: Duration,
    /// Opens when the operator is shutting down.
    pub(super) stop: Arc<Latch>,
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

    /// Tells whether every cache is filled and connected, the leader is known, and the API server can call the webhooks; one line
    /// for each.
    pub(super) fn readiness(&self) -> (StatusCode, String) {
        let (mut code, mut text) = (StatusCode::OK, String::new());
        for store in self.caches.stores() {
            let place = store.namespace().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            let line = match self.complaint(store) {
                // Operators deal with kinds that are not in every cluster. Whoever is not ready for that would take the webhooks
                // of all others away.
                None if store.is_absent() => format!("[+] cache of {}{place}: not installed, waited for", store.kind()),
                None => format!("[+] cache of {}{place}", store.kind()),
                Some(complaint) => {
                    code = StatusCode::SERVICE_UNAVAILABLE;
                    format!("[-] cache of {}{place}: {complaint}", store.kind())
                }
            };
            writeln!(text, "{line}").expect("writing to a string cannot fail");
        }
        if let Some(standing) = &self.standing {
            let (holder, trouble) = standing.seen();
            match trouble.and_then(|trouble| self.stale(&trouble)) {
                None if standing.gate.is_open() => text.push_str("[+] leader election: leading\n"),
                None => writeln!(text, "[+] leader election: {holder:?} leads").expect("as above"),
                Some(complaint) => {
                    code = StatusCode::SERVICE_UNAVAILABLE;
                    writeln!(text, "[-] leader election: {complaint}").expect("as above");
                }
            }
        }
        if self.stop.is_open() {
            code = StatusCode::SERVICE_UNAVAILABLE;
            text.push_str("[-] shutting down\n");
        }
        match self.serving.as_ref().map(|serving| serving.verified()) {
            None => {}
            Some(Ok(())) => text.push_str("[+] webhooks\n"),
            Some(Err(complaint)) => {
                code = StatusCode::SERVICE_UNAVAILABLE;
                writeln!(text, "[-] webhooks: {complaint}").expect("as above");
            }
        }
        (code, text)
    }

    fn complaint(&self, store: &Store) -> Option<String> {
        if store.is_absent() {
            return None;
        }
        let trouble = store.trouble();
        if !store.is_synced() {
            let why = trouble.map(|trouble| format!(": {}", trouble.why)).unwrap_or_default();
            return Some(format!("not filled yet{why}"));
        }
        self.stale(&trouble?)
    }

    fn stale(&self, trouble: &Trouble) -> Option<String> {
        let since = trouble.since.elapsed();
        (since > self.longest_stale).then(|| format!("cut off for {} s: {}", since.as_secs(), trouble.why))
    }
}

/// Serves metrics until it is dropped, over TLS and to those alone whom the guard lets in.
pub(super) async fn serve_guarded(
    listener: TcpListener,
    report: Arc<Report>,
    guard: Arc<Guard>,
    serving: Arc<Serving>,
) {
    let answer = move |request: Request<Received>| {
        let (report, guard) = (report.clone(), guard.clone());
        async move {
            match guard.admit(request.headers(), request.method(), request.uri().path()).await {
                Ok(()) => answer(&report, Pages::Metrics, &request),
                Err((code, why)) => {
                    let mut refused = Response::new(Full::from(why));
                    *refused.status_mut() = code;
                    if code == StatusCode::UNAUTHORIZED {
                        refused.headers_mut().insert(WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
                    }
                    refused
                }
            }
        }
    };
    serve_tls(listener, MAX_CONNECTIONS, serving, answer).await;
}

/// Serves pages until it is dropped.
pub(super) async fn serve(listener: TcpListener, pages: Pages, report: Arc<Report>) {
    let converse = |stream, pace| {
        let report = report.clone();
        async move { connections::answer(stream, pace, |request| ready(answer(&report, pages, &request))).await }
    };
    connections::accept(listener, MAX_CONNECTIONS, converse).await;
}

fn answer(report: &Report, pages: Pages, request: &Request<Received>) -> Response<Full<Bytes>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Kind, Type};
    use flyball_core::ObjectKey;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn who_is_cut_off_for_too_long_or_shutting_down_is_not_ready() {
        let types = [(Type::of::<ConfigMap>(), Kind::of::<ConfigMap>()), (Type::of::<Node>(), Kind::of::<Node>())];
        let (caches, mut writers) = Caches::new(types, &["a".to_owned()].into());
        let standing = Arc::new(Standing::new(ObjectKey::new(Some("ns"), "op")));
        let report = Report {
            caches: Arc::new(caches),
            metrics: Arc::new(Metrics::new(String::new())),
            serving: None,
            standing: Some(standing.clone()),
            longest_stale: Duration::from_secs(60),
            stop: Arc::default(),
        };
        let check = |code: u16, expected: [&str; 3]| {
            let (found, text) = report.readiness();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((found.as_u16(), &lines[..3]), (code, &expected[..]));
        };
        let follows = r#"[+] leader election: "other_1" leads"#;
        standing.see("other_1", None);
        for writer in &mut writers {
            writer.apply(crate::cache::Delta::Restart);
        }
        check(503, ["[-] cache of configmaps in a: not filled yet", "[-] cache of nodes: not filled yet", follows]);
        for writer in &mut writers {
            writer.apply(crate::cache::Delta::Complete(1));
        }
        let (maps, nodes) = ("[+] cache of configmaps in a", "[+] cache of nodes");
        check(200, [maps, nodes, follows]);
        writers[0].store().set_trouble(Some("connection refused"));
        standing.see("other_1", Some("403 forbidden".into()));
        advance(Duration::from_secs(60)).await;
        check(200, [maps, nodes, follows]);
        advance(Duration::from_secs(1)).await;
        let cut = "[-] cache of configmaps in a: cut off for 61 s: connection refused";
        check(503, [cut, nodes, "[-] leader election: cut off for 61 s: 403 forbidden"]);
        writers[0].store().set_trouble(None);
        standing.see("", None);
        standing.gate.open_until(tokio::time::Instant::now() + Duration::from_secs(10));
        check(200, [maps, nodes, "[+] leader election: leading"]);
        writers[0].store().set_trouble(Some("404 no such kind"));
        writers[0].apply(crate::cache::Delta::Absent);
        advance(Duration::from_secs(100)).await;
        standing.gate.open_until(tokio::time::Instant::now() + Duration::from_secs(10));
        check(200, ["[+] cache of configmaps in a: not installed, waited for", nodes, "[+] leader election: leading"]);
        report.stop.open();
        let (code, text) = report.readiness();
        assert!(code == StatusCode::SERVICE_UNAVAILABLE && text.ends_with("[-] shutting down\n"), "{text}");
    }
}
