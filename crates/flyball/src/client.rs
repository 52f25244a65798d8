//! The client of the API server: metrics, timeouts and retries around kube's client or our own transport.
//!
//! kube's own retries use thread-local randomness and two clocks, so simulations would not be reproducible. Here time
//! is tokio's and randomness is the operator's [`Rng`].
//!
//! A request is retried only if the server did not start to process it (429, or 503 with `Retry-After`). After a lost
//! response, the caller must determine whether the write was processed. The client of a leader sends no write,
//! including retries, unless its [`Gate`] is open, and cancels a write in progress when the gate closes.

mod agent;
mod discovery;
mod endpoint;
mod gate;
mod metrics;
mod pool;
mod service;
mod transport;

pub(crate) use agent::{Agent, within_reconcile};
pub(crate) use endpoint::Endpoint;
pub use endpoint::connect;
pub(crate) use gate::Gate;
pub(crate) use metrics::RequestMetrics;
pub(crate) use service::{HttpService, ResponseBody};

use crate::backoff::Backoff;
use flyball_core::Rng;
use flyball_core::time::Timestamp;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use gate::{LeaseLost, NotLeading};
use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::jiff::fmt::rfc2822::DateTimeParser;
use kube::client::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tower::service_fn;
use tracing::{Instrument, Span, field};

/// Timeout of the start of a response; [`exchange`] has the same timeout again for receiving it.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of retries of a request.
const MAX_RETRIES: u32 = 5;
/// Maximum delay before a retry, independent of the server's `Retry-After`.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_millis(150), max_delay: MAX_RETRY_WAIT };
/// Size limit of an error response.
const MAX_STATUS_BYTES: usize = 1 << 20;
/// Size limit of a response.
const MAX_RESPONSE_BYTES: usize = 1 << 30;

/// Marks a request with its own timeout and retries, such as a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRetry;

/// No response within [`RESPONSE_TIMEOUT`].
#[derive(Debug, thiserror::Error)]
#[error("no response from the API server within {} s", RESPONSE_TIMEOUT.as_secs())]
struct ResponseTimeout;

/// A client with metrics, timeouts and retries.
#[derive(Clone)]
pub(crate) struct RetryingClient {
    inner: Arc<RequestSender>,
    /// The same as a client of kube, which adds a queue, a task and several allocations per request.
    kube: kube::Client,
}

struct RequestSender {
    sender: Arc<dyn HttpService>,
    metrics: RequestMetrics,
    rng: Rng,
    gate: Option<Arc<Gate>>,
    agent: Agent,
}

impl RetryingClient {
    /// Wraps an endpoint.
    pub(crate) fn new(
        endpoint: Endpoint,
        metrics: RequestMetrics,
        rng: &Rng,
        gate: Option<Arc<Gate>>,
        agent: Agent,
    ) -> Self {
        let Endpoint { sender, namespace } = endpoint;
        let inner = Arc::new(RequestSender { sender, metrics, rng: rng.fork("client"), gate, agent });
        let shared = inner.clone();
        let service = service_fn(move |request| {
            let (inner, span) = (shared.clone(), span(&request));
            async move { inner.send(request).await }.instrument(span)
        });
        Self { inner, kube: kube::Client::new(service, namespace) }
    }

    /// Returns the same as a client of kube.
    pub(crate) fn kube(&self) -> &kube::Client {
        &self.kube
    }

    /// Sends a request and reads the response; an error status is an error.
    pub(crate) fn exchange(&self, request: Request<Vec<u8>>) -> BoxFuture<'_, kube::Result<Vec<u8>>> {
        let request = request.map(Body::from);
        let span = span(&request);
        // Boxed: the future is large, and would enlarge the future of every caller.
        Box::pin(in_time(self.inner.send(request).instrument(span).and_then(read_body)))
    }
}

impl HttpService for RetryingClient {
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, kube::Result<Response<ResponseBody>>> {
        let span = span(&request);
        Box::pin(self.inner.send(request).instrument(span))
    }
}

/// Creates the span of a request, which ends with the head of its response; watches have none.
fn span(request: &Request<Body>) -> Span {
    if request.extensions().get::<NoRetry>().is_some() {
        return Span::none();
    }
    tracing::debug_span!("request", method = %request.method(), path = request.uri().path(), status = field::Empty)
}

impl RequestSender {
    #[expect(clippy::manual_async_fn, reason = "an async fn would store the request twice")]
    fn send(&self, mut request: Request<Body>) -> impl Future<Output = kube::Result<Response<ResponseBody>>> + Send {
        async move {
            let method = request.method().clone();
            self.agent.sign(request.headers_mut());
            if request.extensions().get::<NoRetry>().is_some() {
                let response = self.sender.send(request).await;
                self.metrics.count(&method, response.as_ref().ok().map(Response::status));
                return response;
            }
            for attempt in 1.. {
                let again = copy(&request);
                let gate = self.gate.as_deref().filter(|_| Gate::stops(&request));
                if let Some(gate) = gate {
                    gate.pass(&request).map_err(|shut| kube::Error::Service(shut.into()))?;
                }
                let wait = {
                    let response = while_open(gate, self.sender.send(request)).await;
                    let status = response.as_ref().ok().map(Response::status);
                    self.metrics.count(&method, status);
                    Span::current().record("status", status.map(|status| status.as_u16()));
                    let response = response?;
                    match (retry_delay(&response), again) {
                        (Some(wait), Some(again)) if attempt <= MAX_RETRIES => {
                            request = again;
                            wait
                        }
                        _ => return Ok(response),
                    }
                };
                sleep(wait.max(BACKOFF.with_jitter(attempt, &self.rng)).min(MAX_RETRY_WAIT)).await;
            }
            unreachable!("the last attempt returns")
        }
    }
}

/// Cancels a request that exceeds its timeout, and a write when its gate closes; this closes the connection.
///
/// A process that was suspended during a write checks the gate before it continues.
async fn while_open<T>(gate: Option<&Gate>, mut exchange: BoxFuture<'_, kube::Result<T>>) -> kube::Result<T> {
    let deadline = Instant::now() + RESPONSE_TIMEOUT;
    loop {
        let end = match gate {
            None => deadline,
            Some(gate) => match gate.until() {
                Some(until) => until.min(deadline),
                None => return Err(kube::Error::Service(LeaseLost.into())),
            },
        };
        let guarded = poll_fn(|task| match gate.is_none_or(Gate::is_open) {
            true => exchange.as_mut().poll(task).map(Some),
            false => Poll::Ready(None),
        });
        match timeout_at(end, guarded).await {
            Ok(Some(response)) => return response,
            Ok(None) => return Err(kube::Error::Service(LeaseLost.into())),
            Err(_) if end == deadline => return Err(kube::Error::Service(ResponseTimeout.into())),
            // The lease may have been renewed in the meantime.
            Err(_) => {}
        }
    }
}

/// Copies a request whose body is in memory.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Returns the delay in `Retry-After`, if the server did not start to process the request.
fn retry_delay<B>(response: &Response<B>) -> Option<Duration> {
    let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS => Some(Duration::from_secs(after.unwrap_or_default())),
        StatusCode::SERVICE_UNAVAILABLE => after.map(Duration::from_secs),
        _ => None,
    }
}

/// Sends a request with any client, and reads the response; an error status is an error.
pub(crate) fn exchange(client: &dyn HttpService, request: Request<Vec<u8>>) -> BoxFuture<'_, kube::Result<Vec<u8>>> {
    Box::pin(in_time(client.send(request.map(Body::from)).and_then(read_body)))
}

/// A response, and its `Date` header.
type DatedResponse = (kube::Result<Vec<u8>>, Option<Timestamp>);

/// Sends a request as [`exchange`] does, and returns the `Date` header as well, the time of the server's clock.
pub(crate) fn exchange_dated(
    client: &kube::Client,
    request: Request<Vec<u8>>,
) -> BoxFuture<'_, kube::Result<DatedResponse>> {
    Box::pin(in_time(HttpService::send(client, request.map(Body::from)).and_then(async |response| {
        let date = date(response.headers());
        Ok((read_body(response).await, date))
    })))
}

/// Parses the `Date` header, see <https://www.rfc-editor.org/rfc/rfc9110.html#name-date>.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(headers.get(DATE)?.as_bytes()).ok()
}

/// Cancels a request that exceeds its timeout.
fn in_time<T>(exchange: impl Future<Output = kube::Result<T>>) -> impl Future<Output = kube::Result<T>> {
    timeout(2 * RESPONSE_TIMEOUT, exchange)
        .map(|result| result.unwrap_or_else(|_| Err(kube::Error::Service(ResponseTimeout.into()))))
}

/// Reads the body of a response; an error status is an error.
async fn read_body(response: Response<ResponseBody>) -> kube::Result<Vec<u8>> {
    if !response.status().is_success() {
        return Err(kube::Error::Api(Box::pin(error_status(response)).await.boxed()));
    }
    let mut body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
    // Copied, because each chunk references the whole buffer of a connection, and the response may be kept for a long
    // time.
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(kube::Error::Service)?.into_data() else { continue };
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Parses the `Status` of an error response; other text becomes its message.
pub(crate) async fn error_status(response: Response<ResponseBody>) -> Status {
    let code = response.status().as_u16();
    let wait = retry_delay(&response);
    let body = Limited::new(response.into_body(), MAX_STATUS_BYTES).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let mut status: Status = serde_json::from_slice(&body)
        .unwrap_or_else(|_| Status::failure(String::from_utf8_lossy(&body).trim(), "").with_code(code));
    status.code = code;
    // An overloaded server responds with plain text.
    if let Some(wait) = wait {
        let details = status.details.get_or_insert_with(|| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        });
        details.retry_after_seconds = details.retry_after_seconds.max(wait.as_secs().min(u32::MAX.into()) as u32);
    }
    status
}

/// Returns true if the request may have been processed although it failed.
pub(crate) fn is_ambiguous(error: &kube::Error) -> bool {
    match error {
        // A server that sends `Retry-After` has not started to process the request.
        kube::Error::Api(status) if status.code == 503 => {
            status.details.as_ref().is_none_or(|details| details.retry_after_seconds == 0)
        }
        kube::Error::Api(status) => status.code >= 500,
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => false,
        kube::Error::Service(error) => !error.is::<NotLeading>(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Responds after this time.
    struct Slow(Duration);

    impl HttpService for Slow {
        fn send(&self, _: Request<Body>) -> BoxFuture<'_, kube::Result<Response<ResponseBody>>> {
            Box::pin(async move {
                sleep(self.0).await;
                Ok(Response::new(ResponseBody::Kube(Body::from(b"{}".to_vec()))))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn write_in_flight_ends_with_the_lease() {
        let gate = Arc::new(Gate::new("ns/op".into()));
        let metrics = RequestMetrics::default();
        let link = Endpoint { sender: Arc::new(Slow(Duration::from_secs(20))), namespace: "ns".into() };
        let client = RetryingClient::new(link, metrics, &Rng::from_seed(1), Some(gate.clone()), Agent::new("op", None));
        let ask = async |method: &str| {
            let (began, request) = (Instant::now(), Request::builder().method(method).uri("/a").body(Vec::new()));
            let response = client.exchange(request.unwrap()).await;
            (response, began.elapsed().as_secs())
        };
        gate.open_until(Instant::now() + Duration::from_secs(10));
        let (response, took) = ask("PATCH").await;
        let error = response.unwrap_err();
        assert!(
            took == 10 && is_ambiguous(&error) && error.to_string().contains("lost its lease"),
            "{took} s: {error}"
        );
        gate.open_until(Instant::now() + Duration::from_secs(10));
        assert!(matches!(ask("GET").await, (Ok(_), 20)), "reads are not blocked");
        // The lease is renewed in time.
        gate.open_until(Instant::now() + Duration::from_secs(10));
        let renew = async {
            sleep(Duration::from_secs(8)).await;
            gate.open_until(Instant::now() + Duration::from_secs(15));
        };
        let ((response, took), ()) = tokio::join!(ask("PATCH"), renew);
        assert!(response.is_ok() && took == 20, "{took} s: {response:?}");
    }
}
