//! The server for the module `osdk_metric` in runs of `ansible-playbook`, as that of operator-sdk.
//!
//! Any process of the operator's pod may connect, so it only changes metrics whose names are literal in tasks, and
//! everything about a request is bounded.

use super::roles::{RoleMetrics, Update};
use crate::value::Value;
use flyball::listener;
use flyball_core::time::Timestamp;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// The address to which the module sends requests.
pub(crate) const ROLE_METRICS_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5050);

const PATH: &str = "/metrics";
/// Limits of connections and of a body, and the timeout of a connection. The module opens one for each task.
const MAX_CONNECTIONS: usize = 64;
const MAX_BODY_BYTES: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(30);

/// The metrics that requests may change.
#[derive(Clone, Debug)]
pub(crate) struct PostedMetrics {
    pub(crate) metrics: RoleMetrics,
    /// The names that are literal in tasks.
    pub(crate) names: Arc<BTreeSet<String>>,
}

/// Serves requests until it is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    posted: PostedMetrics,
    now: impl Fn() -> Timestamp + Clone + Send + 'static,
) {
    listener::accept(listener, MAX_CONNECTIONS, |stream| {
        let (posted, now) = (posted.clone(), now.clone());
        let respond = service_fn(move |request| {
            let (posted, now) = (posted.clone(), now.clone());
            async move { Ok::<_, Infallible>(respond(posted, request, now).await) }
        });
        async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            let connection = http.keep_alive(false).serve_connection(TokioIo::new(stream), respond);
            // A client that disconnects needs no answer.
            let _ = timeout(TIMEOUT, connection).await;
        }
    })
    .await;
}

async fn respond(
    posted: PostedMetrics,
    request: Request<Incoming>,
    now: impl Fn() -> Timestamp,
) -> Response<Full<Bytes>> {
    let (status, text) = match (request.uri().path(), request.method()) {
        (PATH, &Method::POST) => match change(&posted, request, now).await {
            Ok(()) => (StatusCode::OK, String::new()),
            Err(problem) => (StatusCode::BAD_REQUEST, problem),
        },
        (PATH, _) => (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed".to_owned()),
        _ => (StatusCode::NOT_FOUND, "404 page not found".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

async fn change(posted: &PostedMetrics, request: Request<Incoming>, now: impl Fn() -> Timestamp) -> Result<(), String> {
    // A page in a browser on the same machine cannot send this type without permission.
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.split(';').next().map(str::trim) != Some("application/json") {
        return Err("the content type must be application/json".to_owned());
    }
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
    let body = body.map_err(|error| format!("cannot read the request: {error}"))?.to_bytes();
    let Value::Object(arguments) = serde_json::from_slice(&body).map_err(|error| error.to_string())? else {
        return Err("the request must be a JSON object".to_owned());
    };
    let update = Update::parse(&arguments)?;
    if !posted.names.contains(update.name()) {
        let name = update.name();
        return Err(format!("name: {name}: the name of a metric must be literal in a task of the role or playbook"));
    }
    posted.metrics.apply(update, now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn start() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let names = Arc::new(["things".to_owned()].into());
        let posted = PostedMetrics { metrics: RoleMetrics::default(), names };
        tokio::spawn(serve(listener, posted, || Timestamp::UNIX_EPOCH));
        address
    }

    async fn send(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{head} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let request = request.replace("HTTP/1.1\r\n", "HTTP/1.1\r\ncontent-type: application/json; charset=utf-8\r\n");
        // The server may respond before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut response = String::new();
        let _ = stream.read_to_string(&mut response).await;
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        (status, response.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    #[tokio::test]
    async fn requests_of_the_module_change_metrics() {
        let address = start().await;
        let post = async |body: &str| send(address, "POST /metrics", body).await;
        let gauge = r#"{"name": "things", "description": "a", "gauge": {"set": 2.0, "increment": null}}"#;
        assert_eq!(post(gauge).await, (200, String::new()));
        for (body, problem) in [
            (gauge.replace("gauge", "counter"), "unknown operation set"),
            (r#"{"name": "things", "description": "a", "counter": {}}"#.into(), "which is a gauge"),
            (gauge.replace("things", "others"), "must be literal in a task"),
            ("{".into(), "EOF while parsing"),
            ("[]".into(), "must be a JSON object"),
            (format!("{gauge}{}", " ".repeat(MAX_BODY_BYTES)), "cannot read the request"),
        ] {
            let (status, text) = post(&body).await;
            assert!(status == 400 && text.contains(problem), "{problem}: {status} {text}");
        }
        assert_eq!(send(address, "GET /metrics", "").await.0, 405);
        assert_eq!(send(address, "POST /", gauge).await.0, 404);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 400") && response.contains("must be application/json"), "{response}");
    }
}
