//! Webhooks: calls over HTTPS.
//!
//! Takes a review and an endpoint, returns the response or kube-apiserver's error. A [`Caller`] sends the bytes: the
//! server itself opens no socket.

mod memory;

pub(crate) use memory::ConversionMemory;
pub use memory::ResponseMemory;

use crate::bounds::{Bounds, Flow, Levels, Pool};
use crate::kinds::SERVICE;
use crate::limits::{self, MAX_DECODED_BYTES};
use crate::request::json_type;
use crate::storage::Store;
use base64::Engine;
use bytes::Bytes;
use flyball_core::{ObjectKey, Rng};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// A request to a webhook, ready to be sent.
#[derive(Clone, Debug)]
pub struct WebhookCall {
    /// The URL of the request, with its query.
    pub url: String,
    /// Host and port to connect to: those of the URL, or of the service.
    pub address: String,
    /// The name that the server's certificate must have.
    pub server_name: String,
    /// Certificates in PEM that the other side is verified with; if empty, those of the system.
    pub ca_bundle: Vec<u8>,
    /// The review as JSON.
    pub body: Bytes,
    /// The memory for the response.
    pub memory: ResponseMemory,
}

/// The decoded response of a webhook, with its memory.
pub(crate) struct ReviewResponse {
    pub(crate) review: Value,
    pub(crate) memory: ResponseMemory,
}

/// A field of a response: its JSON pointer, its JSON type, and its name and type in Go.
pub(crate) type TypedField = (&'static str, &'static str, &'static str);

/// Returns Go's error for a field of a response with another JSON type.
pub(crate) fn mistyped(review: &Value, fields: &[TypedField]) -> Option<String> {
    fields.iter().find_map(|(pointer, expected, field)| {
        let found = review.pointer(pointer).map_or("null", json_type);
        (found != "null" && found != *expected).then(|| unmarshal_error(found, field))
    })
}

/// Returns Go's error for a field with this JSON type.
pub(crate) fn unmarshal_error(found: &str, field: &str) -> String {
    format!("json: cannot unmarshal {found} into Go struct field {field}")
}

/// The response of a webhook.
#[derive(Clone, Debug)]
pub struct WebhookResponse {
    /// HTTP code.
    pub code: u16,
    /// Media type, empty if absent.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
}

/// A response, or the error message of Go's HTTP client.
pub type WebhookFuture = Pin<Box<dyn Future<Output = Result<WebhookResponse, String>> + Send>>;

/// Sends requests to webhooks.
///
/// It needs no timeout: the server drops the future when the webhook's timeout expires.
pub trait Caller: Send + Sync {
    /// Sends one request.
    fn call(&self, call: WebhookCall) -> WebhookFuture;
}

/// Reaches no webhook at all, as on a machine where nothing listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfflineCaller;

impl Caller for OfflineCaller {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        Box::pin(async move { Err(format!("dial tcp {}: connect: connection refused", call.address)) })
    }
}

/// The endpoint of a webhook: a `clientConfig`.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The configuration or the CRD.
    owner: Arc<str>,
    endpoint: Endpoint,
    ca_bundle: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Endpoint {
    Url { host: String, path: String },
    Service { namespace: String, name: String, port: u16, path: String },
}

/// The timeout of a webhook, and where it is enforced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timeout {
    /// The request that waits for the response.
    Request(Duration),
    /// The client that sends the calls.
    Client(Duration),
}

impl Timeout {
    fn duration(self) -> Duration {
        match self {
            Self::Request(duration) | Self::Client(duration) => duration,
        }
    }

    fn exceeded(self) -> &'static str {
        match self {
            Self::Request(_) => "context deadline exceeded",
            Self::Client(_) => "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        }
    }
}

/// Limits of the webhook calls of one request.
struct CallScope {
    deadline: Instant,
    flow: Flow,
}

tokio::task_local! {
    static SCOPE: CallScope;
}

/// Limits the total time of all webhook calls of a request, and charges their responses to its user.
pub(crate) fn within<F: Future>(duration: Duration, flow: &Flow, future: F) -> impl Future<Output = F::Output> {
    SCOPE.scope(CallScope { deadline: Instant::now() + duration, flow: flow.clone() }, future)
}

/// Returns true if the time of the request is over.
pub(crate) fn is_late() -> bool {
    SCOPE.try_with(|scope| scope.deadline <= Instant::now()).unwrap_or(false)
}

impl Client {
    /// Reads a `clientConfig` of the configuration or CRD with this name.
    pub(crate) fn read(owner: &str, config: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = &config["service"];
        let endpoint = if service.is_object() {
            Endpoint::Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: service["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or(443),
                path: clean(service["path"].as_str().unwrap_or_default()),
            }
        } else {
            let url = config["url"].as_str().unwrap_or_default();
            let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            Endpoint::Url { host: host.to_owned(), path: clean(path) }
        };
        let bundle = config["caBundle"].as_str().unwrap_or_default();
        let ca_bundle = base64::engine::general_purpose::STANDARD.decode(bundle).unwrap_or_default();
        Self { owner: owner.into(), endpoint, ca_bundle }
    }

    fn url(&self, timeout: Duration) -> String {
        let seconds = timeout.as_secs();
        match &self.endpoint {
            Endpoint::Url { host, path } => format!("https://{host}{path}?timeout={seconds}s"),
            Endpoint::Service { namespace, name, port, path } => {
                format!("https://{name}.{namespace}.svc:{port}{path}?timeout={seconds}s")
            }
        }
    }

    /// Resolves the address to connect to, and the server name to expect.
    fn resolve(&self, store: &Store) -> Result<(String, String), String> {
        match &self.endpoint {
            Endpoint::Url { host, .. } => {
                let (name, port) = split_host(host);
                Ok((format!("{name}:{port}"), name.trim_matches(['[', ']']).to_owned()))
            }
            Endpoint::Service { namespace, name, port, .. } => resolve_service(store, namespace, name, *port),
        }
    }
}

/// Resolves the address of a Service, and the server name to expect.
pub(crate) fn resolve_service(
    store: &Store,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<(String, String), String> {
    let key = ObjectKey::new(Some(namespace), name);
    let service = store.get(&SERVICE.table(), &key).and_then(|entry| entry.object().ok());
    let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
    let text = |field: &str| service.at(&["spec", field]).and_then(Value::as_str).unwrap_or_default();
    let mut ports = service.at(&["spec", "ports"]).and_then(Value::as_array).into_iter().flatten();
    let host = match (text("type"), text("clusterIP")) {
        ("ExternalName", _) => text("externalName"),
        (ty, "" | "None") => return Err(format!("unsupported service type {ty:?}")),
        (_, address) => {
            if !ports.any(|known| known["port"].as_u64() == Some(port.into())) {
                return Err(format!("no service port {port} found for service {name:?}"));
            }
            address
        }
    };
    Ok((format!("{host}:{port}"), format!("{name}.{namespace}.svc")))
}

/// The memory for responses of a configuration or CRD to a user.
type OwnerPools = BTreeMap<(Arc<str>, Flow), Weak<Pool>>;

/// Calls webhooks on behalf of the server.
pub(crate) struct Webhooks {
    caller: Arc<dyn Caller>,
    /// The store with the services of webhooks.
    store: Arc<Store>,
    rng: Rng,
    /// The memory of responses.
    responses: Levels,
    /// The memory of converted objects.
    converted: Levels,
    /// The part of it for the responses of each configuration or CRD to each user, while there are any.
    owners: Mutex<OwnerPools>,
    bounds: Bounds,
}

impl Webhooks {
    pub(crate) fn new(caller: Arc<dyn Caller>, store: Arc<Store>, rng: Rng, bounds: &Bounds) -> Self {
        let [responses, converted] = [(); 2].map(|()| Levels::new(bounds.webhook_response_bytes, bounds.waiting));
        Self { caller, store, rng, responses, converted, owners: Mutex::default(), bounds: bounds.clone() }
    }

    /// Returns the memory for a response to the user of the request.
    fn response_memory(&self, client: &Client) -> ResponseMemory {
        let flow = SCOPE.try_with(|scope| scope.flow.clone()).unwrap_or_else(|_| Flow::unidentified());
        let (owner, pool) = (self.owner_pool(client, &flow), self.responses.of(&flow).clone());
        ResponseMemory::of_webhook(owner, pool, flow, self.bounds.max_wait)
    }

    /// Returns the memory for converted objects of a request.
    pub(crate) fn conversion_memory(&self) -> ConversionMemory {
        let flow = SCOPE.try_with(|scope| scope.flow.clone()).unwrap_or_else(|_| Flow::unidentified());
        let (pool, max_wait) = (self.converted.of(&flow).clone(), self.bounds.max_wait);
        ConversionMemory::new(pool, flow, max_wait)
    }

    /// Returns the memory for the responses of a configuration or CRD to a user.
    fn owner_pool(&self, client: &Client, flow: &Flow) -> Arc<Pool> {
        let key = (client.owner.clone(), flow.clone());
        let mut owners = self.owners.lock();
        if let Some(pool) = owners.get(&key).and_then(Weak::upgrade) {
            return pool;
        }
        owners.retain(|_, pool| pool.strong_count() > 0);
        // A user has at most half of the memory.
        let pool = Arc::new(Pool::undivided(self.bounds.webhook_response_bytes / 8));
        owners.insert(key, Arc::downgrade(&pool));
        pool
    }

    /// Generates a UID for a review.
    pub(crate) fn uid(&self) -> String {
        self.rng.uuid()
    }

    /// Sends a review; returns the review of the response, or the error.
    pub(crate) async fn send(
        &self,
        client: &Client,
        review: Value,
        timeout: Timeout,
    ) -> Result<ReviewResponse, String> {
        let url = client.url(timeout.duration());
        let failed = |why: &dyn fmt::Display| format!("Post {url:?}: {why}");
        let (address, server_name) = client.resolve(&self.store).map_err(|why| failed(&why))?;
        let body = Bytes::from(review.to_string());
        // The call may last.
        drop(review);
        let held = self.response_memory(client);
        let (url, ca_bundle) = (url.clone(), client.ca_bundle.clone());
        let call = self.caller.call(WebhookCall { url, address, server_name, ca_bundle, body, memory: held.clone() });
        let call = async {
            let response = call.await?;
            held.reserve(response.body.len()).await.map(|()| response)
        };
        let end = Instant::now() + timeout.duration();
        let end = SCOPE.try_with(|scope| end.min(scope.deadline)).unwrap_or(end);
        let response = tokio::select! {
            // A response at the deadline is too late, as over the network.
            biased;
            () = tokio::time::sleep_until(end) => Err(failed(&timeout.exceeded())),
            response = call => response.map_err(|why| failed(&why)),
        }?;
        if limits::excess(&response.body).is_some() {
            return Err(failed(&format_args!(
                "the response takes more than {} MiB of memory",
                MAX_DECODED_BYTES >> 20
            )));
        }
        held.charge(flyball_core::memory::of_text(&response.body));
        Ok(ReviewResponse { review: read(&response)?, memory: held })
    }
}

/// Writes a path as Go's `path.Join("/", path)` does.
fn clean(path: &str) -> String {
    let mut steps: Vec<&str> = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(steps.pop()),
            step => steps.push(step),
        }
    }
    format!("/{}", steps.join("/"))
}

/// Splits the host of a URL from its port, which is that of HTTPS if it is left out.
fn split_host(host: &str) -> (&str, u16) {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port.parse().unwrap_or(443)),
        _ => (host, 443),
    }
}

/// Bytes of an invalid response in an error.
const MAX_SHOWN_BYTES: usize = 4 << 10;

/// Decodes a response as kube-apiserver's client does.
fn read(response: &WebhookResponse) -> Result<Value, String> {
    let WebhookResponse { code, content_type, body } = response;
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    if !(200..=206).contains(code) {
        let status = parsed.as_ref().filter(|value| value["kind"] == "Status" && value["status"] != "Success");
        if let Some(message) = status.and_then(|status| status["message"].as_str()) {
            return Err(message.to_owned());
        }
        let text = content_type.starts_with("text/");
        let text = if text { String::from_utf8_lossy(body).trim().to_owned() } else { "unknown".to_owned() };
        return Err(client_message(*code, &text));
    }
    if body.is_empty() {
        return Err(format!("0-length response with status code: {code} and content type: {content_type}"));
    }
    match parsed {
        Some(value) if value["kind"].as_str().is_none_or(str::is_empty) => {
            let shown = &body[..body.len().min(MAX_SHOWN_BYTES)];
            Err(format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(shown)))
        }
        Some(value) if value["kind"] == "Status" && value["apiVersion"] == "v1" && value["status"] != "Success" => {
            Err(value["message"].as_str().unwrap_or_default().to_owned())
        }
        Some(value) => Ok(value),
        None => Err(format!("couldn't get version/kind; json parse error: {}", crate::request::json_error(body))),
    }
}

/// Returns client-go's message for a response that is no `Status`.
fn client_message(code: u16, text: &str) -> String {
    match code {
        400 => "the server rejected our request for an unknown reason".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        403 | 415 => text.into(),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        406 if matches!(text, "" | "unknown") => {
            "the server was unable to respond with a content type that the client supports".into()
        }
        406 => text.into(),
        409 => "the server reported a conflict".into(),
        422 => "the server rejected our request due to an error in our request".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .into()
        }
        500.. => {
            let text = flyball_core::field::go_quote(text);
            format!("an error on the server ({text}) has prevented the request from succeeding")
        }
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_WEBHOOK_RESPONSE_BYTES;

    #[tokio::test(start_paused = true)]
    async fn responses_are_charged_to_the_user_of_the_request() {
        let store = Arc::new(Store::new(crate::storage::Limits::of(&Bounds::default())));
        let bounds = Bounds { webhook_response_bytes: 1 << 20, ..Bounds::default() };
        let webhooks = Webhooks::new(Arc::new(OfflineCaller), store, Rng::from_seed(1), &bounds);
        let (ann, bob) = (Flow::of("ann", false, true), Flow::of("bob", false, true));
        let calls = std::cell::Cell::new(0);
        // Each call is of another webhook.
        let memory = async |flow: &Flow| {
            calls.set(calls.get() + 1);
            let client = Client::read(&format!("hook-{}", calls.get()), &Value::Null);
            within(Duration::from_secs(60), flow, async { webhooks.response_memory(&client) }).await
        };
        let slow = memory(&ann).await;
        slow.reserve(400 << 10).await.unwrap();
        let second = memory(&ann).await;
        let rejected = second.reserve(400 << 10).await.unwrap_err();
        assert!(rejected.contains("take too much memory"), "{rejected}");
        assert!(memory(&bob).await.reserve(400 << 10).await.is_ok(), "others have their share");
        assert!(memory(&ann).await.reserve(MAX_WEBHOOK_RESPONSE_BYTES + 1).await.unwrap_err().contains("more than"));
        slow.charge(1 << 20);
        assert!(memory(&bob).await.reserve(1).await.is_err(), "decoded responses count");
        drop(slow);
        assert!(second.reserve(400 << 10).await.is_ok());
        drop(second);
        assert_eq!(webhooks.responses.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn webhook_leaves_memory_for_responses_of_others() {
        let store = Arc::new(Store::new(crate::storage::Limits::of(&Bounds::default())));
        let bounds = Bounds { webhook_response_bytes: 8 << 20, ..Bounds::default() };
        let webhooks = Webhooks::new(Arc::new(OfflineCaller), store, Rng::from_seed(1), &bounds);
        let flow = Flow::of("ann", false, true);
        let memory = async |owner: &str| {
            let client = Client::read(owner, &Value::Null);
            within(Duration::from_secs(60), &flow, async { webhooks.response_memory(&client) }).await
        };
        let mut held = Vec::new();
        for _ in 0..64 {
            let response = memory("evil").await;
            if response.reserve(128 << 10).await.is_ok() {
                held.push(response);
            }
        }
        assert_eq!((held.len(), webhooks.responses.used()), (8, 1 << 20), "a quarter of the user's share");
        let honest = memory("honest").await;
        honest.reserve(1 << 20).await.unwrap();
        let long = memory("long").await;
        // It is longer than its part, and received in pieces.
        long.reserve(1 << 20).await.unwrap();
        long.reserve(1_500_000).await.unwrap();
        drop((held, honest, long));
        memory("evil").await.reserve(1 << 20).await.unwrap();
        assert_eq!((webhooks.responses.used(), webhooks.owners.lock().len()), (0, 1));
    }
}
