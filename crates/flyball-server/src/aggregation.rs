//! Aggregated API servers: requests for a group version that an APIService delegates are forwarded to its Service.
//!
//! The user is authenticated and authorized before, and named in headers; see
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/>. A [`Forwarder`] sends the request:
//! the server itself opens no socket. Group versions that the server has itself are never delegated. Responses are
//! received as a whole, so that watches are rejected. They are charged to the user until they are sent.

mod remote;

pub(crate) use remote::RemoteVersion;

use crate::auth::User;
use crate::bounds::{Bounds, Flow, Levels};
use crate::kinds::API_SERVICE;
use crate::limits;
use crate::response::{self, Body};
use crate::storage::Store;
use crate::webhook::{ResponseMemory, resolve_service};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flyball_core::{GroupVersion, Object, ObjectKey, Status};
use futures_util::future::join_all;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, Method, Response};
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a forwarded request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a request for the resources of a group version.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes of a response.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// Maximum number of APIServices whose resources are listed.
const MAX_REMOTE_VERSIONS: usize = 64;
/// Headers of the client that are forwarded. Others, such as credentials, are not.
const FORWARDED: [HeaderName; 4] = [ACCEPT, CONTENT_TYPE, IF_NONE_MATCH, USER_AGENT];

/// A request to an aggregated API server, ready to be sent.
#[derive(Clone, Debug)]
pub struct ForwardedRequest {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub uri: String,
    /// The headers, with the user.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Host and port to connect to.
    pub address: String,
    /// The name that the server's certificate must have: `name.namespace.svc` of the Service.
    pub server_name: String,
    /// Certificates in PEM that the other side is verified with; if empty, those of the system.
    pub ca_bundle: Vec<u8>,
    /// True if the certificate is not verified.
    pub is_unverified: bool,
    /// The memory for the body of the response, which is reserved before it is received.
    pub memory: ResponseMemory,
}

/// A response, or the error message of Go's HTTP client.
pub type ForwardFuture = Pin<Box<dyn Future<Output = Result<Response<Bytes>, String>> + Send>>;

/// Sends requests to aggregated API servers.
///
/// It needs no timeout: the server drops the future when it expires.
pub trait Forwarder: Send + Sync {
    /// Sends one request.
    fn forward(&self, request: ForwardedRequest) -> ForwardFuture;
}

/// Reaches no API server at all, as on a machine where nothing listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfflineForwarder;

impl Forwarder for OfflineForwarder {
    fn forward(&self, request: ForwardedRequest) -> ForwardFuture {
        Box::pin(async move { Err(format!("dial tcp {}: connect: connection refused", request.address)) })
    }
}

/// The APIServices with a Service.
pub(crate) struct Aggregation {
    forwarder: Arc<dyn Forwarder>,
    store: Arc<Store>,
    /// The memory of responses.
    responses: Levels,
    max_wait: Duration,
}

/// A group version that is delegated to a Service.
#[derive(Clone, Debug)]
pub(crate) struct Delegation {
    pub(crate) of: GroupVersion,
    /// Priority of the group, and of the version in it.
    priority: (i64, i64),
    namespace: String,
    service: String,
    port: u16,
    ca_bundle: Vec<u8>,
    is_unverified: bool,
}

/// The parts of a request that are forwarded.
pub(crate) struct Request<'r> {
    pub(crate) method: &'r Method,
    /// Path and query.
    pub(crate) uri: String,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) body: &'r Bytes,
    pub(crate) user: &'r User,
    /// The flow that is charged for the response.
    pub(crate) flow: &'r Flow,
}

impl Delegation {
    fn read(object: &Object) -> Option<Self> {
        let spec = object.get("spec")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = spec.get("service").filter(|service| service.is_object())?;
        Some(Self {
            of: GroupVersion::new(&text(&spec["group"]), &text(&spec["version"])),
            priority: (
                spec["groupPriorityMinimum"].as_i64().unwrap_or_default(),
                spec["versionPriority"].as_i64().unwrap_or_default(),
            ),
            namespace: text(&service["namespace"]),
            service: text(&service["name"]),
            port: service["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or(443),
            ca_bundle: STANDARD.decode(text(&spec["caBundle"])).unwrap_or_default(),
            is_unverified: spec["insecureSkipTLSVerify"] == true,
        })
    }
}

impl Aggregation {
    pub(crate) fn new(forwarder: Arc<dyn Forwarder>, store: Arc<Store>, bounds: &Bounds) -> Self {
        let responses = Levels::new(bounds.webhook_response_bytes, bounds.waiting);
        Self { forwarder, store, responses, max_wait: bounds.max_wait }
    }

    /// Finds the APIService of a group version, if it has a Service.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<Delegation> {
        let key = ObjectKey::new(None, &format!("{version}.{group}"));
        let entry = self.store.get(&API_SERVICE.table(), &key)?;
        Delegation::read(&entry.object().ok()?)
    }

    /// Returns the APIServices with a Service, those of groups with a higher priority first.
    pub(crate) fn delegations(&self) -> Vec<Delegation> {
        if self.store.count(&API_SERVICE.table()) == 0 {
            return Vec::new();
        }
        let listed = self.store.list(&API_SERVICE.table(), None);
        let objects = listed.entries.iter().filter_map(|entry| entry.object().ok());
        let mut delegations: Vec<_> = objects.filter_map(|object| Delegation::read(&object)).collect();
        delegations.sort_by(|one, other| {
            let key = |delegation: &Delegation| std::cmp::Reverse(delegation.priority);
            (key(one), &one.of.group, &one.of.version).cmp(&(key(other), &other.of.group, &other.of.version))
        });
        delegations
    }

    /// Forwards a request, and returns the response.
    pub(crate) async fn forward(&self, to: &Delegation, request: Request<'_>) -> Response<Body> {
        match self.send(to, request, TIMEOUT).await {
            Ok((found, memory)) => {
                let (parts, body) = found.into_parts();
                let mut response = Response::new(Body::from(body));
                *response.status_mut() = parts.status;
                for name in [CONTENT_TYPE, http::header::ETAG, http::header::WARNING] {
                    if let Some(value) = parts.headers.get(&name) {
                        response.headers_mut().insert(name, value.clone());
                    }
                }
                // Held until the response is sent: from then on, its bytes count as unsent.
                response.extensions_mut().insert(memory);
                response
            }
            Err(why) => response::text(503, format!("error trying to reach service: {why}\n")),
        }
    }

    /// Sends a request, and returns the response with its memory.
    async fn send(
        &self,
        to: &Delegation,
        request: Request<'_>,
        timeout: Duration,
    ) -> Result<(Response<Bytes>, ResponseMemory), String> {
        let (address, server_name) = resolve_service(&self.store, &to.namespace, &to.service, to.port)?;
        let mut headers = HeaderMap::new();
        for name in FORWARDED {
            headers.extend(request.headers.get_all(&name).iter().map(|value| (name.clone(), value.clone())));
        }
        add_user(request.user, &mut headers)?;
        let (pool, flow) = (self.responses.of(request.flow).clone(), request.flow.clone());
        let memory = ResponseMemory::of_aggregation(pool, flow, self.max_wait, MAX_RESPONSE_BYTES);
        let sent = self.forwarder.forward(ForwardedRequest {
            method: request.method.clone(),
            uri: request.uri,
            headers,
            body: request.body.clone(),
            address,
            server_name,
            ca_bundle: to.ca_bundle.clone(),
            is_unverified: to.is_unverified,
            memory: memory.clone(),
        });
        let received = async {
            let response = sent.await?;
            memory.reserve(response.body().len()).await.map(|()| response)
        };
        let response = tokio::time::timeout(timeout, received).await;
        Ok((response.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))?, memory))
    }

    /// Returns the resources of each delegated group version; `None` if its server does not list them.
    pub(crate) async fn resources(&self, delegations: Vec<Delegation>, user: &User, flow: &Flow) -> Vec<RemoteVersion> {
        let delegations = delegations.into_iter().take(MAX_REMOTE_VERSIONS);
        join_all(delegations.map(|delegation| self.resources_of(delegation, user, flow))).await
    }

    async fn resources_of(&self, delegation: Delegation, user: &User, flow: &Flow) -> RemoteVersion {
        let GroupVersion { group, version } = &delegation.of;
        let request = Request {
            method: &Method::GET,
            uri: format!("/apis/{group}/{version}"),
            headers: &HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]),
            body: &Bytes::new(),
            user,
            flow,
        };
        let listed = self.send(&delegation, request, DISCOVERY_TIMEOUT).await;
        let listed = listed.ok().filter(|(response, _)| response.status().is_success());
        let list = listed.and_then(|(response, _memory)| {
            let text = response.body();
            let is_bounded = text.len() <= limits::MAX_BODY_BYTES && limits::excess(text).is_none();
            is_bounded.then(|| serde_json::from_slice::<Value>(text).ok()).flatten()
        });
        RemoteVersion::new(&delegation.of, list.as_ref())
    }
}

/// Returns the rejection of a watch.
pub(crate) fn unsupported_watch() -> Response<Body> {
    response::status(&Status::method_not_allowed())
}

/// Names the user in headers.
fn add_user(user: &User, headers: &mut HeaderMap) -> Result<(), String> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| format!("{text:?} cannot be sent in a header"));
    headers.insert("x-remote-user", value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert("x-remote-uid", value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append("x-remote-group", value(group)?);
    }
    for (name, values) in &user.extra {
        let name = format!("x-remote-extra-{}", escape(name));
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(())
}

/// Encodes the characters of a key that the name of a header cannot have.
fn escape(key: &str) -> String {
    let mut escaped = String::new();
    for byte in key.to_lowercase().bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(byte.into()),
            byte => escaped += &format!("%{byte:02x}"),
        }
    }
    escaped
}
