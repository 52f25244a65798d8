//! The HTTP endpoint for results: a function from request to response, and its server on loopback.
//!
//! `GET /api/v1/namespaces/NAMESPACE/reports/NAME?format=csv|json&since=TIME&until=TIME`
//!
//! Results are read page by page on threads for blocking work, as fast as the reader takes them, so that a response
//! takes the memory of a page.

use crate::access::{Access, Rejection, ReportName};
use crate::output;
use crate::query::Column;
use crate::store::{self, Cell, ResultPages, Store};
use bytes::Bytes;
use flyball::listener;
use flyball_core::names::is_path_segment;
use flyball_core::time::parse_rfc3339;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinError;
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

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, store::Error>;

/// Answers a request.
pub async fn respond(store: &Arc<Store>, access: &Access, request: &Request<()>) -> Response<Body> {
    let (status, kind, body) = match answer(store, access, request).await {
        Ok((kind, body)) => (StatusCode::OK, kind, body),
        Err((status, text)) => {
            (status, "text/plain", Full::<Bytes>::from(text).map_err(|never| match never {}).boxed_unsync())
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

async fn answer(store: &Arc<Store>, access: &Access, request: &Request<()>) -> Result<(&'static str, Body), Rejection> {
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
    let format = match parameter("format").unwrap_or("json") {
        "csv" => Format::Csv,
        "json" => Format::Json,
        _ => return Err((StatusCode::BAD_REQUEST, "format must be csv or json\n".into())),
    };
    let (store, of) = (store.clone(), report.clone());
    let first = read(move || match Document::open(&store, &of, (since, until), format)? {
        Some(document) => document.next(),
        None => Ok(None),
    });
    let first = first.await.map_err(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot read results");
        (StatusCode::INTERNAL_SERVER_ERROR, "the store failed\n".to_owned())
    })?;
    let Some(first) = first else {
        let text = match access.is_absent(&report).await {
            true => "the Report does not exist\n",
            false => "the Report has no results\n",
        };
        return Err((StatusCode::NOT_FOUND, text.to_owned()));
    };
    Ok((format.content_type(), body(first)))
}

/// Reads on a thread for blocking work.
async fn read<T: Send + 'static>(work: impl FnOnce() -> store::Result<T> + Send + 'static) -> store::Result<T> {
    match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime shuts down.
        Err(Err(_)) => std::future::pending().await,
    }
}

/// Returns a body of a first part, and of those that follow it.
fn body((part, document): (String, Document)) -> Body {
    let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from(part)))]);
    let others = futures_util::stream::try_unfold(document, |document: Document| async move {
        let next = read(move || document.next()).await.inspect_err(|error| {
            tracing::warn!(error = error as &dyn std::error::Error, "cannot read results");
        })?;
        Ok(next.map(|(part, document)| (Frame::data(Bytes::from(part)), document)))
    });
    BodyExt::boxed_unsync(StreamBody::new(first.chain(others)))
}

/// The format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    Json,
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::Json => "application/json",
        }
    }
}

/// The position in a document after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Start,
    /// After the heading, and no rows yet.
    Heading,
    Rows,
    End,
}

/// Results in a format.
struct Document {
    format: Format,
    columns: Vec<Column>,
    pages: ResultPages,
    position: Position,
}

impl Document {
    /// Opens the results of a report, none if it has none.
    fn open(
        store: &Store,
        report: &ReportName,
        (since, until): (i64, i64),
        format: Format,
    ) -> store::Result<Option<Self>> {
        let Some(stored) = store.report(&report.namespace, &report.name)? else { return Ok(None) };
        let pages = store.pages(&stored, since, until)?;
        Ok(Some(Self { format, columns: columns(&stored.columns), pages, position: Position::Start }))
    }

    /// Returns the next part of the text and the rest of the document.
    fn next(mut self) -> store::Result<Option<(String, Self)>> {
        let (part, position) = match self.position {
            Position::Start => (self.heading(), Position::Heading),
            Position::Heading | Position::Rows => match self.pages.next_page()? {
                Some(page) => self.rows(page.into_iter().flat_map(|period| period.rows).collect()),
                None => (if self.format == Format::Json { "]}".to_owned() } else { String::new() }, Position::End),
            },
            Position::End => return Ok(None),
        };
        self.position = position;
        Ok(Some((part, self)))
    }

    fn heading(&self) -> String {
        match self.format {
            Format::Csv => output::csv_heading(&self.columns),
            Format::Json => r#"{"results":["#.to_owned(),
        }
    }

    fn rows(&self, rows: Vec<Vec<Cell>>) -> (String, Position) {
        if rows.is_empty() {
            return (String::new(), self.position);
        }
        let text = match self.format {
            Format::Csv => output::csv_rows(&self.columns, &rows),
            Format::Json => {
                let rows: Vec<String> = rows.iter().map(|row| output::json(&self.columns, row).to_string()).collect();
                let before = if self.position == Position::Rows { "," } else { "" };
                before.to_owned() + &rows.join(",")
            }
        };
        (text, Position::Rows)
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
