//! Webhooks: calls over HTTPS.
//!
//! Takes a review and an endpoint, returns the response or kube-apiserver's error. A [`Caller`] sends the bytes: the
//! server itself opens no socket.

use crate::kinds::SERVICE;
use crate::storage::Store;
use base64::Engine;
use bytes::Bytes;
use flyball_core::{ObjectKey, Rng};
use serde_json::Value;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
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
}

/// The response of a webhook.
#[derive(Clone, Debug)]
pub struct WebhookAnswer {
    /// HTTP code.
    pub code: u16,
    /// Media type, empty if absent.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
}

/// A response, or the error message of Go's HTTP client.
pub type WebhookFuture = Pin<Box<dyn Future<Output = Result<WebhookAnswer, String>> + Send>>;

/// Sends requests to webhooks.
///
/// It needs no timeout: the server drops the future when the webhook's timeout expires.
pub trait Caller: Send + Sync {
    /// Sends one request.
    fn call(&self, call: WebhookCall) -> WebhookFuture;
}

/// Reaches no webhook at all, as on a machine where nothing listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreachable;

impl Caller for Unreachable {
    fn call(&self, call: WebhookCall) -> WebhookFuture {
        Box::pin(async move { Err(format!("dial tcp {}: connect: connection refused", call.address)) })
    }
}

/// The endpoint of a webhook: a `clientConfig`.
#[derive(Clone, Debug)]
pub(crate) struct Client {
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

tokio::task_local! {
    /// The deadline of the request that calls webhooks.
    static DEADLINE: Instant;
}

/// Limits the total time of all webhook calls of a future.
pub(crate) fn within<F: Future>(duration: Duration, asks: F) -> impl Future<Output = F::Output> {
    DEADLINE.scope(Instant::now() + duration, asks)
}

/// Returns whether the time of the request is over.
pub(crate) fn is_late() -> bool {
    DEADLINE.try_with(|deadline| *deadline <= Instant::now()).unwrap_or(false)
}

impl Client {
    /// Reads a `clientConfig`.
    pub(crate) fn read(config: &Value) -> Self {
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
        Self { endpoint, ca_bundle }
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
            Endpoint::Service { namespace, name, port, .. } => {
                let key = ObjectKey::new(Some(namespace), name);
                let service = store.get(&SERVICE.table(), &key).and_then(|entry| entry.object().ok());
                let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
                let text = |field: &str| service.at(&["spec", field]).and_then(Value::as_str).unwrap_or_default();
                let ports = service.at(&["spec", "ports"]).and_then(Value::as_array).into_iter().flatten();
                let host = match (text("type"), text("clusterIP")) {
                    ("ExternalName", _) => text("externalName"),
                    (ty, "" | "None") => {
                        return Err(format!("unsupported service type {ty:?}"));
                    }
                    (_, address) => {
                        if !ports.into_iter().any(|known| known["port"].as_u64() == Some((*port).into())) {
                            return Err(format!("no service port {port} found for service {name:?}"));
                        }
                        address
                    }
                };
                Ok((format!("{host}:{port}"), format!("{name}.{namespace}.svc")))
            }
        }
    }
}

/// Calls webhooks on behalf of the server.
pub(crate) struct Webhooks {
    caller: Arc<dyn Caller>,
    /// The store with the services of webhooks.
    store: Arc<Store>,
    rng: Rng,
}

impl Webhooks {
    pub(crate) fn new(caller: Arc<dyn Caller>, store: Arc<Store>, rng: Rng) -> Self {
        Self { caller, store, rng }
    }

    /// Generates a UID for a review.
    pub(crate) fn uid(&self) -> String {
        self.rng.uuid()
    }

    /// Sends a review; returns the review of the response, or the error.
    pub(crate) async fn send(&self, client: &Client, review: &Value, timeout: Timeout) -> Result<Value, String> {
        let url = client.url(timeout.duration());
        let failed = |why: &dyn fmt::Display| format!("Post {url:?}: {why}");
        let (address, server_name) = client.resolve(&self.store).map_err(|why| failed(&why))?;
        let body = Bytes::from(review.to_string());
        let call = WebhookCall { url: url.clone(), address, server_name, ca_bundle: client.ca_bundle.clone(), body };
        let end = Instant::now() + timeout.duration();
        let end = DEADLINE.try_with(|deadline| end.min(*deadline)).unwrap_or(end);
        let answer = tokio::select! {
            // A response at the deadline is too late, as over the network.
            biased;
            () = tokio::time::sleep_until(end) => Err(failed(&timeout.exceeded())),
            answer = self.caller.call(call) => answer.map_err(|why| failed(&why)),
        };
        read(&answer?)
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

/// Decodes a response as kube-apiserver's client does.
fn read(answer: &WebhookAnswer) -> Result<Value, String> {
    let WebhookAnswer { code, content_type, body } = answer;
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    if !(200..=206).contains(code) {
        let status = parsed.as_ref().filter(|value| value["kind"] == "Status" && value["status"] != "Success");
        if let Some(message) = status.and_then(|status| status["message"].as_str()) {
            return Err(message.to_owned());
        }
        let text = content_type.starts_with("text/");
        let text = if text { String::from_utf8_lossy(body).trim().to_owned() } else { "unknown".to_owned() };
        return Err(refusal(*code, &text));
    }
    if body.is_empty() {
        return Err(format!("0-length response with status code: {code} and content type: {content_type}"));
    }
    match parsed {
        Some(value) if value["kind"].as_str().is_none_or(str::is_empty) => {
            Err(format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body)))
        }
        Some(value) if value["kind"] == "Status" && value["apiVersion"] == "v1" && value["status"] != "Success" => {
            Err(value["message"].as_str().unwrap_or_default().to_owned())
        }
        Some(value) => Ok(value),
        None => Err(format!("couldn't get version/kind; json parse error: {}", crate::request::json_error(body))),
    }
}

/// Returns client-go's message for a response that is no `Status`.
fn refusal(code: u16, text: &str) -> String {
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
