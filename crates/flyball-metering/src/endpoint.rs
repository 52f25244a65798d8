//! The HTTP endpoint for results: a function from request to response, and its server on loopback.
//!
//! `GET /api/v1/namespaces/NAMESPACE/reports/NAME?format=csv|json&since=TIME&until=TIME`

use crate::access::{Access, Rejection, ReportName};
use crate::output;
use crate::query::Column;
use crate::store::{Cell, Store};
use bytes::Bytes;
use flyball::listener;
use flyball_core::names::is_path_segment;
use flyball_core::time::parse_rfc3339;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// Limit of concurrent connections.
const MAX_CONNECTIONS: usize = 32;
/// Timeout of the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);

/// Serves results until it is dropped.
pub async fn serve(listener: TcpListener, store: Arc<Store>, access: Arc<Access>) {
    listener::accept(listener, MAX_CONNECTIONS, |stream| {
        let (store, access) = (store.clone(), access.clone());
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let (store, access) = (store.clone(), access.clone());
            async move { Ok::<_, Infallible>(respond(&store, &access, &request.map(drop)).await) }
        });
        async move {
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            // A client that disconnects needs no answer.
            let _ = timeout(CONNECTION_TIMEOUT, server.serve_connection(TokioIo::new(stream), service)).await;
        }
    })
    .await;
}

/// Answers a request.
pub async fn respond(store: &Store, access: &Access, request: &Request<()>) -> Response<Full<Bytes>> {
    let (status, kind, body) = match answer(store, access, request).await {
        Ok((kind, body)) => (StatusCode::OK, kind, body),
        Err((status, text)) => (status, "text/plain", text),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

async fn answer(store: &Store, access: &Access, request: &Request<()>) -> Result<(&'static str, String), Rejection> {
    let not_found = || (StatusCode::NOT_FOUND, "no such page\n".to_owned());
    if request.method() != Method::GET {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n".into()));
    }
    let path: Vec<&str> = request.uri().path().split('/').collect();
    let ["", "api", "v1", "namespaces", namespace, "reports", name] = path[..] else { return Err(not_found()) };
    if !is_path_segment(namespace) || !is_path_segment(name) {
        return Err(not_found());
    }
    let report = ReportName { namespace: namespace.to_owned(), name: name.to_owned() };
    access.admit(request.headers(), &report).await?;
    let query = request.uri().query().unwrap_or_default();
    let parameters: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let parameter = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let time = |name: &str, default: i64| match parameter(name) {
        None => Ok(default),
        Some(text) => parse_rfc3339(text)
            .map(|time| time.as_second())
            .ok_or_else(|| (StatusCode::BAD_REQUEST, format!("{name} is not a time such as 2026-07-01T00:00:00Z\n"))),
    };
    let (since, until) = (time("since", i64::MIN)?, time("until", i64::MAX)?);
    let failed = |error: crate::store::Error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot read results");
        (StatusCode::INTERNAL_SERVER_ERROR, "the store failed\n".to_owned())
    };
    let stored = store.report(namespace, name).map_err(failed)?;
    let stored = stored.ok_or_else(|| (StatusCode::NOT_FOUND, "the report has no results\n".to_owned()))?;
    let results = store.results(&stored, since, until).map_err(failed)?;
    let columns = columns(&stored.columns);
    let rows: Vec<Vec<Cell>> = results.into_iter().flat_map(|result| result.rows).collect();
    match parameter("format").unwrap_or("json") {
        "csv" => Ok(("text/csv; charset=utf-8", output::csv(&columns, &rows))),
        "json" => {
            let rows: Vec<_> = rows.iter().map(|row| output::json(&columns, row)).collect();
            Ok(("application/json", serde_json::json!({"results": rows}).to_string()))
        }
        _ => Err((StatusCode::BAD_REQUEST, "format must be csv or json\n".into())),
    }
}

/// Returns the columns of a stored report. Only names are stored; those of times have a fixed form.
pub fn columns(names: &[String]) -> Vec<Column> {
    let column = |name: &String| Column {
        name: name.clone(),
        kind: if matches!(name.as_str(), "period_start" | "period_end" | "timestamp") { "timestamp" } else { "" }
            .into(),
        unit: String::new(),
        hidden: false,
    };
    names.iter().map(column).collect()
}
