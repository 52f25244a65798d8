//! The webhooks of an operator as a function from request to response.

use super::Declaration;
use super::budget::{Budget, Refusal};
use super::convert::{self, Conversions};
use super::handler::Handler;
use super::metrics::WebhookMetrics;
use crate::cache::Caches;
use crate::panics::{self, caught};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Path of conversions.
pub(super) const CONVERT_PATH: &str = "/convert";
/// Size limit of a review of one write: the API server accepts 3 MiB, and a review contains two objects.
const MAX_ADMISSION_BYTES: usize = 8 << 20;
/// Size limit of a conversion review, which may contain a whole list, unless the author sets a higher one.
pub(super) const MAX_CONVERSION_BYTES: usize = 16 << 20;
/// Timeout of a review if the API server sends none.
const MAX_REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// The parts of a running operator that webhooks use.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) caches: Arc<Caches>,
    pub(crate) metrics: WebhookMetrics,
    /// Hooks for panics.
    pub(crate) panics: panics::Hooks,
}

/// The webhooks of an [`Operator`](crate::Operator), for calls within the process.
///
/// The operator serves them over TLS at the address of its [webhook server](crate::Operator::webhook_server). A
/// simulation, which must not open sockets, calls them directly:
///
/// ```
/// # use flyball::{Operator, webhook::{AdmissionRequest, Verdict, Webhook}};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let refuses = |_: &AdmissionRequest<ConfigMap>| Ok(Verdict::deny("no"));
/// let webhooks = Operator::new("pages").webhook(Webhook::new().validates(refuses)).webhooks();
/// assert_eq!(webhooks.paths().collect::<Vec<_>>(), ["/validate--v1-configmap"]);
///
/// let body = http_body_util::Full::<bytes::Bytes>::default();
/// let request = http::Request::post("/validate--v1-configmap").body(body).unwrap();
/// assert_eq!(webhooks.handle(request).await.status(), 503, "the operator is not running yet");
/// # });
/// ```
#[derive(Clone)]
pub struct Webhooks(Arc<ServiceState>);

struct ServiceState {
    routes: BTreeMap<String, Arc<dyn Handler>>,
    budget: Budget,
    max_conversion_bytes: usize,
    live: Arc<OnceLock<Live>>,
}

impl Webhooks {
    pub(crate) fn new(declared: &[Declaration], live: Arc<OnceLock<Live>>) -> Self {
        let mut routes: BTreeMap<String, Arc<dyn Handler>> = BTreeMap::new();
        let mut converted = BTreeMap::new();
        let mut max_conversion_bytes = MAX_CONVERSION_BYTES;
        for each in declared {
            if let Some(handler) = &each.validates {
                routes.insert(each.path("validate"), handler.clone());
            }
            if let Some(handler) = &each.defaults {
                routes.insert(each.path("mutate"), handler.clone());
            }
            if let Some(conversions) = &each.converts {
                let gvk = each.scope.kind.gvk();
                converted.insert(format!("{}.{}", gvk.kind, gvk.group), conversions.clone());
                max_conversion_bytes = max_conversion_bytes.max(each.max_conversion_bytes);
            }
        }
        if !converted.is_empty() {
            routes.insert(CONVERT_PATH.to_owned(), Arc::new(Converting(converted)));
        }
        Self(Arc::new(ServiceState { routes, budget: Budget::new(max_conversion_bytes), max_conversion_bytes, live }))
    }

    /// Returns the paths that are served.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.routes.keys().map(String::as_str)
    }

    /// Handles a review in an HTTP request.
    ///
    /// An invalid review results in a status from 400 on, any request before the operator runs in 503, a panic in 500,
    /// and an answer after the `timeout` in the query in 504.
    pub async fn handle<B: Body<Data: Send> + Send>(&self, request: Request<B>) -> Response<Bytes>
    where
        B::Error: Into<tower::BoxError>,
    {
        let Some(live) = self.0.live.get() else {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "the operator is not running yet");
        };
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let Some(handler) = self.0.routes.get(path) else {
            return refuse(StatusCode::NOT_FOUND, "no webhook at this path");
        };
        let call = live.metrics.begin(path);
        let began = Instant::now();
        let limit = if path == CONVERT_PATH { self.0.max_conversion_bytes } else { MAX_ADMISSION_BYTES };
        let answer = match check(&head, limit) {
            Err(answer) => *answer,
            Ok(deadline) => {
                let answered = live.panics.within(self.answer(&**handler, body, limit, path, live));
                let late = |_| refuse(StatusCode::GATEWAY_TIMEOUT, "the webhook timed out");
                timeout(deadline, answered).await.unwrap_or_else(late)
            }
        };
        call.end(answer.status(), began.elapsed());
        answer
    }

    async fn answer<B: Body<Data: Send> + Send>(
        &self,
        handler: &dyn Handler,
        body: B,
        limit: usize,
        path: &str,
        live: &Live,
    ) -> Response<Bytes> {
        let review = match self.0.budget.read(body, limit).await {
            Ok(review) => review,
            Err(refusal) => return refused(refusal, path),
        };
        let _parsed = match self.0.budget.parse(handler.tree_bytes(&review.text)).await {
            Ok(permit) => permit,
            Err(refusal) => return refused(refusal, path),
        };
        // This calls the author's code.
        let response = AssertUnwindSafe(async { handler.handle(&review.text, live.caches.clone()).await });
        match response.catch_unwind().await {
            Ok(Ok(text)) => {
                let mut answer = Response::new(review.answered(text));
                answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                answer
            }
            Ok(Err(why)) => refuse(StatusCode::BAD_REQUEST, &why),
            Err(panic) => {
                live.metrics.panicked();
                let why = caught(format_args!("webhook {path}"), &*panic);
                tracing::error!(webhook = path, why, "webhook panicked");
                refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("the webhook panicked: {why}"))
            }
        }
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.paths()).finish()
    }
}

/// Converts all kinds.
struct Converting(BTreeMap<String, Arc<Conversions>>);

impl Handler for Converting {
    fn handle<'a>(&'a self, body: &'a [u8], _: Arc<Caches>) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move { convert::answer(&self.0, body) })
    }

    fn tree_bytes(&self, body: &[u8]) -> usize {
        convert::tree_bytes(body)
    }
}

/// Validates the head of a request; returns the remaining time.
fn check(head: &http::request::Parts, limit: usize) -> Result<Duration, Box<Response<Bytes>>> {
    let refuse = |code, why| Box::new(refuse(code, why));
    if head.method != Method::POST {
        return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, "reviews require POST"));
    }
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text(CONTENT_TYPE).split(';').next().map(str::trim) != Some("application/json") {
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "reviews require the content type application/json"));
    }
    if text(CONTENT_LENGTH).parse().is_ok_and(|length: u64| length > limit as u64) {
        return Err(Box::new(refused(Refusal::TooLong { limit }, head.uri.path())));
    }
    let parameters = head.uri.query().into_iter().flat_map(|query| query.split('&'));
    let seconds = parameters.filter_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok()).next();
    Ok(seconds.map_or(MAX_REVIEW_TIMEOUT, Duration::from_secs).min(MAX_REVIEW_TIMEOUT))
}

/// Describes why a body is rejected, and the remedy.
fn refused(refusal: Refusal, path: &str) -> Response<Bytes> {
    let code = match refusal {
        Refusal::TooLong { .. } | Refusal::TooManyValues => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::Crowded => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::BrokeOff => StatusCode::BAD_REQUEST,
    };
    let remedy = match refusal {
        Refusal::TooLong { .. } if path == CONVERT_PATH => ": increase Webhook::max_conversion_bytes",
        _ => "",
    };
    refuse(code, &format!("{refusal}{remedy}"))
}

fn refuse(code: StatusCode, why: &str) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::from(format!("{why}\n")));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
