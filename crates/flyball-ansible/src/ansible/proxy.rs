//! The proxy between `ansible-playbook` and the API server: it runs on localhost, uses the operator's credentials,
//! and adds owner references and annotations to the objects of the run.
//!
//! It grants no more permissions than the operator has: impersonation (`impersonate_user`) requires the permission of
//! the operator's account, and such requests are checked all the same.

use super::target::Target;
use crate::access::{Access, TOKEN_REQUEST};
use crate::job::Job;
use crate::yaml;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flyball::Kind;
use flyball::listener;
use flyball_core::memory;
use flyball_core::scope::CLUSTER_SCOPED;
use flyball_tls::{Authority, Purpose, Validity};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use kube::client::Body;
use ring::digest;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Size limit of a request body: more than an API server accepts.
const MAX_BODY_BYTES: usize = 4 << 20;

/// Size of a request body from which on a run sends one at a time, so that its tasks together take the memory of one.
const LARGE_BODY_BYTES: u64 = 64 << 10;

/// Limit of connections; a task needs one.
const MAX_CONNECTIONS: usize = 64;
/// Timeout of a handshake, of request headers, or of a body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Hop-by-hop headers; see RFC 9110, section 7.6.1.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The loopback address, shared by the operator and its child process.
const LOOPBACK: &str = "127.0.0.1";

/// A proxy that runs until it is dropped, for clients with its token.
pub(super) struct Proxy {
    url: String,
    /// The self-signed CA certificate, in PEM.
    authority: String,
    token: String,
    task: AbortHandle,
}

/// The client and the limits of forwarded requests.
struct Forwarder {
    client: Client,
    token: String,
    owner: Value,
    access: Access,
    /// The turn of large request bodies.
    large: Semaphore,
}

/// Starts the proxy.
pub(super) async fn serve(job: &Job<'_>) -> io::Result<Proxy> {
    let listener = TcpListener::bind((LOOPBACK, 0)).await?;
    let url = format!("https://{}", listener.local_addr()?);
    let (authority, tls) = identity().map_err(io::Error::other)?;
    let token = super::random(32)?;
    let types = job.object.types.clone().unwrap_or_default();
    let forward = Arc::new(Forwarder {
        client: job.cx.client().clone(),
        token: token.clone(),
        owner: json!({
            "apiVersion": types.api_version,
            "kind": types.kind,
            "name": job.object.metadata.name,
            "uid": job.object.metadata.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }),
        access: Access::of(job),
        large: Semaphore::new(1),
    });
    let serving = listener::accept(listener, MAX_CONNECTIONS, move |stream| {
        let (forward, tls) = (forward.clone(), tls.clone());
        let serve = service_fn(move |request| {
            let forward = forward.clone();
            async move { Ok::<_, Infallible>(forward.handle(request).await) }
        });
        async move {
            // A client that disconnects needs no answer.
            if let Ok(Ok(stream)) = timeout(READ_TIMEOUT, tls.accept(stream)).await {
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
                let _ = http.serve_connection(TokioIo::new(stream), serve).await;
            }
        }
    });
    Ok(Proxy { url, authority, token, task: tokio::spawn(serving).abort_handle() })
}

/// Creates a certificate authority and a server certificate for this run; no key is stored.
fn identity() -> Result<(String, TlsAcceptor), Box<dyn std::error::Error + Send + Sync>> {
    let authority = Authority::new("flyball ansible authority", Validity::UNLIMITED)?;
    let issued = authority.issue("flyball ansible", Purpose::Server(&[LOOPBACK.to_owned()]), Validity::UNLIMITED)?;
    let config = flyball_tls::server_config(&issued, None)?;
    Ok((authority.certificate().to_owned(), TlsAcceptor::from(Arc::new(config))))
}

impl Proxy {
    /// Returns the kubeconfig for the proxy.
    pub(super) fn kubeconfig(&self, namespace: Option<&str>) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "operator",
            "clusters": [{"name": "operator", "cluster": {"server": self.url, "certificate-authority-data": STANDARD.encode(&self.authority)}}],
            "users": [{"name": "operator", "user": {"token": self.token}}],
            "contexts": [{"name": "operator", "context": {"cluster": "operator", "user": "operator", "namespace": namespace.unwrap_or("default")}}],
        })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Forwarder {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let expected = format!("Bearer {}", self.token);
        let presented = request.headers().get(AUTHORIZATION).map_or(&[][..], |presented| presented.as_bytes());
        // Comparing digests prevents timing attacks.
        let digest = |text: &[u8]| digest::digest(&digest::SHA256, text);
        if digest(presented).as_ref() != digest(expected.as_bytes()).as_ref() {
            return error_response(StatusCode::UNAUTHORIZED, "Unauthorized", "invalid token");
        }
        let (mut parts, body) = request.into_parts();
        let target = match Target::of(parts.uri.path()) {
            Ok(target) => target,
            Err(problem) => return error_response(StatusCode::BAD_REQUEST, "BadRequest", &problem),
        };
        let is_large = body.size_hint().upper().is_none_or(|bytes| bytes >= LARGE_BODY_BYTES);
        // The semaphore is never closed.
        let _turn = if is_large { self.large.acquire().await.ok() } else { None };
        let body = match timeout(READ_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return too_large(),
            Ok(Err(error)) => return error_response(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string()),
            Err(_) => {
                return error_response(
                    StatusCode::REQUEST_TIMEOUT,
                    "Timeout",
                    "timeout while reading the request body",
                );
            }
        };
        if target.is_some() && !is_parseable(&body) {
            return too_large();
        }
        let body = match &target {
            Some(target) => match self.check(target, &parts, body).await {
                Ok(body) => body,
                Err(problem) => return error_response(StatusCode::FORBIDDEN, "Forbidden", &problem),
            },
            None => body,
        };
        for header in [AUTHORIZATION, HOST, CONTENT_LENGTH] {
            parts.headers.remove(header);
        }
        remove_hop_by_hop_headers(&mut parts.headers);
        // The client has the address of the API server.
        if let Some(path) = parts.uri.path_and_query().cloned() {
            parts.uri = path.into();
        }
        match self.client.send(Request::from_parts(parts, Body::from(body))).await {
            Ok(mut response) => {
                remove_hop_by_hop_headers(response.headers_mut());
                response
            }
            Err(error) => error_response(StatusCode::BAD_GATEWAY, "InternalError", &error.to_string()),
        }
    }

    /// Checks a request, and returns the body to send; the error is the reason for denial.
    async fn check(&self, target: &Target, parts: &http::request::Parts, body: Bytes) -> Result<Bytes, String> {
        let live = self.allowed(target, parts).await?;
        let objects = writable(&self.access, target, &parts.method, &body)?;
        Ok(self.with_owner(target, parts, body, objects, live).await)
    }

    /// Checks the target of a request, and returns its object if it was read; the error is the reason for denial, see
    /// [`Access`].
    async fn allowed(&self, target: &Target, parts: &http::request::Parts) -> Result<Option<LiveObject>, String> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD) && !target.is_connection();
        if let Some(namespace) = &target.namespace {
            self.access.check_namespace(namespace)?;
        }
        // A cluster-scoped custom resource may access everything.
        if self.access.is_own(None) || (reads && target.namespace.is_some()) {
            return Ok(None);
        }
        if self.access.is_own(target.namespace.as_deref()) {
            return self.changes(target, &parts.method).await;
        }
        let kinds = self.access.kinds();
        let created = kinds.created.iter().find(|kind| target.is_of(kind));
        if reads {
            match created.or_else(|| kinds.read.iter().find(|kind| target.is_of(kind))) {
                Some(kind) if kind.is_namespaced() => self.access.check_listing_all_namespaces(kind.name())?,
                None if !is_cluster_wide(&target.group, &target.resource) => {
                    self.access.check_listing_all_namespaces(&target.resource)?
                }
                _ => {}
            }
            return Ok(None);
        }
        if target.is_review() {
            return Ok(None);
        }
        let Some(kind) = created else {
            return Err(format!(
                "changes of {} outside of the namespace of the custom resource require their apiVersion and kind literally in the role",
                target.resource
            ));
        };
        match &target.name {
            None if parts.method == Method::POST => Ok(None),
            None => Err(format!(
                "deletecollection of {} outside of the namespace of the custom resource is not allowed",
                target.resource
            )),
            Some(_) => self.change(target, kind.name()).await,
        }
    }

    /// Checks a write in the namespace of the custom resource, and returns its object if it was read.
    async fn changes(&self, target: &Target, method: &Method) -> Result<Option<LiveObject>, String> {
        let kinds = self.access.kinds();
        let known = kinds.created.iter().chain(&kinds.read).find(|kind| target.is_of(kind)).map(Kind::name);
        // The role or `watches.yaml` may name a kind without its version.
        let named = kinds.names.iter().map(|(kind, _)| kind).chain(kinds.allowed.iter().map(|(_, kind)| kind));
        let is_named = |kind: &&str| Kind::new(&target.group, "v1", kind).api_resource().plural == target.resource;
        let kind = known.or_else(|| named.map(String::as_str).find(is_named));
        let kind = kind.unwrap_or(&target.resource);
        match &target.name {
            // Tokens are checked apart.
            Some(_) if target.subresource.as_deref() == Some("token") => Ok(None),
            Some(_) => self.change(target, kind).await,
            None if *method != Method::DELETE || self.access.is_kind_allowed(&target.group, kind) => Ok(None),
            None => Err(format!(
                "deletecollection of {} is not allowed: delete single objects, or add the kind to allowKinds in watches.yaml",
                target.resource
            )),
        }
    }

    /// Checks a change of an object, if it exists, and returns the object.
    async fn change(&self, target: &Target, kind: &str) -> Result<Option<LiveObject>, String> {
        let Some(name) = &target.name else { return Ok(None) };
        let live = self.live(target).await?;
        if let LiveObject::Present(live) = &live {
            self.access.check_change(&target.group, kind, target.namespace.as_deref(), name, live)?;
        }
        Ok(Some(live))
    }

    /// Reads the current state of an object.
    async fn live(&self, target: &Target) -> Result<LiveObject, String> {
        let request = Request::get(&target.path).body(Vec::new()).map_err(|error| error.to_string())?;
        match self.client.request_text(request).await {
            Ok(text) if !is_parseable(text.as_bytes()) => Err("the object is too large".to_owned()),
            Ok(text) => serde_json::from_str(&text).map(LiveObject::Present).map_err(|error| error.to_string()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(LiveObject::Absent),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Annotates objects with their owner, and adds the owner reference to those in its namespace.
    async fn with_owner(
        &self,
        target: &Target,
        parts: &http::request::Parts,
        body: Bytes,
        mut objects: Vec<Value>,
        live: Option<LiveObject>,
    ) -> Bytes {
        let kind = parts.headers.get(CONTENT_TYPE).map_or(&b"application/json"[..], |kind| kind.as_bytes());
        let write = match parts.method {
            Method::POST if target.name.is_none() => Write::Create,
            Method::PUT => Write::Replace,
            Method::PATCH if kind.starts_with(b"application/apply-patch+yaml") => Write::Apply,
            Method::PATCH => Write::Patch,
            _ => return body,
        };
        let is_map =
            [&b"application/json"[..], b"application/merge-patch+json", b"application/strategic-merge-patch+json"];
        let is_map = write == Write::Apply || is_map.iter().any(|known| kind.starts_with(known));
        if !is_map {
            return body;
        }
        let Some(mut object) = objects.pop() else { return body };
        if !self.access.is_own(target.namespace.as_deref()) {
            self.access.annotate(&mut object);
            return object.to_string().into();
        }
        let live = match (write, live) {
            (Write::Create, _) => LiveObject::Absent,
            (_, Some(live)) => live,
            (_, None) => self.live(target).await.unwrap_or(LiveObject::Unknown),
        };
        // Only the metadata may change.
        let requested = object.get("metadata").cloned();
        add_owner(&self.access, &self.owner, write, &live, &mut object);
        if object.get("metadata") == requested.as_ref() { body } else { object.to_string().into() }
    }
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Create,
    Replace,
    Apply,
    Patch,
}

/// The state of an object before a write.
enum LiveObject {
    Absent,
    Present(Value),
    /// The object could not be read.
    Unknown,
}

/// Annotates an object in the owner's namespace, if it is created or belongs to the owner already, and adds owner
/// references.
///
/// Without the annotations, the object of a role that removes or replaces the owner references would be lost to it.
fn add_owner(access: &Access, owner: &Value, write: Write, live: &LiveObject, object: &mut Value) {
    let belongs = match live {
        // A patch creates nothing.
        LiveObject::Absent => write != Write::Patch,
        LiveObject::Present(live) => access.is_owner_of(live),
        LiveObject::Unknown => false,
    };
    if belongs {
        access.annotate(object);
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match (write, live) {
        // As a whole, since the role does not know them.
        (Write::Replace, LiveObject::Present(live)) if !metadata.contains_key("ownerReferences") => {
            let known = live["metadata"].get("ownerReferences").cloned();
            metadata.extend(known.map(|known| ("ownerReferences".to_owned(), known)));
        }
        (Write::Create | Write::Apply, _) => {
            let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
            if let Some(owners) = owners.as_array_mut()
                && owners.iter().all(|owner| owner["controller"] != true)
            {
                owners.push(owner.clone());
            }
        }
        _ => {}
    }
}

/// Checks a write, and returns the objects in its body; the error is the reason for denial, see [`Access::write`].
fn writable(access: &Access, target: &Target, method: &Method, body: &[u8]) -> Result<Vec<Value>, String> {
    if target.is_review() || !matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
        return Ok(Vec::new());
    }
    let kinds = access.kinds();
    let write = |group: &str, kind: &str, object: &Value| {
        access.check_write(group, kind, target.namespace.as_deref(), object, &kinds.literals)
    };
    if target.group.is_empty() && target.resource == "serviceaccounts" && target.subresource.as_deref() == Some("token")
    {
        write(TOKEN_REQUEST.0, TOKEN_REQUEST.1, &Value::Null)?;
        return Ok(Vec::new());
    }
    // Unknown kinds are not named in the role; Secrets are checked because of their type.
    let unknown = if target.group.is_empty() && target.resource == "secrets" { "Secret" } else { &target.resource };
    let kind = kinds.created.iter().find(|kind| target.is_of(kind)).map_or(unknown, Kind::name);
    write(&target.group, kind, &Value::Null)?;
    // Bodies of subresources may have any format: those of `proxy` are for an application.
    if body.is_empty() || target.subresource.is_some() {
        return Ok(Vec::new());
    }
    let objects = serde_json::from_slice(body).ok().map(|object| vec![object]).or_else(|| documents(body));
    let objects = objects.ok_or("the request body is neither JSON nor YAML")?;
    objects.iter().try_for_each(|object| write(&target.group, kind, object))?;
    Ok(objects)
}

/// Returns true if a body can be parsed within the memory limit: a small JSON text may become a large value.
fn is_parseable(body: &[u8]) -> bool {
    memory::of_text(body) <= yaml::MAX_TEXT_MEMORY
}

/// Parses a body as YAML.
fn documents(body: &[u8]) -> Option<Vec<Value>> {
    let documents = yaml::documents_within(std::str::from_utf8(body).ok()?, yaml::MAX_TEXT_MEMORY).ok()?;
    Some(documents.into_iter().map(Value::from).collect())
}

/// Returns true if a built-in resource is cluster-scoped.
fn is_cluster_wide(group: &str, resource: &str) -> bool {
    let mut kinds = CLUSTER_SCOPED.iter().filter(|(known, _)| *known == group);
    kinds.any(|(_, kind)| Kind::new(group, "v1", kind).api_resource().plural == resource)
}

/// Removes hop-by-hop headers.
fn remove_hop_by_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<String> =
        headers.get_all("connection").iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
    for name in named.iter().flat_map(|names| names.split(',')).map(str::trim).chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}

fn too_large() -> Response<Body> {
    error_response(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", "the request is too large")
}

fn error_response(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code.as_u16()});
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tests::access;
    use crate::playbook::{Kinds, Literals, kind_of};

    #[test]
    fn kinds_in_other_namespaces_are_writable_if_tasks_name_them() {
        let kinds = [("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"), ("v1", "ConfigMap"), ("v1", "Secret")];
        let created: std::collections::BTreeSet<Kind> =
            kinds.iter().filter_map(|(api, kind)| kind_of(api, kind)).collect();
        let token = json!({"type": "kubernetes.io/service-account-token"});
        let all = [
            ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", json!({})),
            ("/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings", json!({})),
            ("/api/v1/namespaces/shared/configmaps", json!({})),
            ("/api/v1/namespaces/b/secrets", token.clone()),
        ];
        let check = |kinds: &Kinds, path: &str, body: &str| is_writable(kinds, path, body.as_bytes());
        let found = Kinds { created: created.clone(), ..Kinds::default() };
        for (path, body) in &all {
            assert!(!check(&found, path, &body.to_string()), "{path}");
        }
        assert!(!check(&found, "/api/v1/namespaces/b/secrets", "type: kubernetes.io/service-account-token\n"));
        assert!(
            check(&found, "/api/v1/namespaces/b/secrets", "{}")
                && check(&found, "/api/v1/namespaces/b/configmaps", "{}")
        );
        let definitions = json!({"definition": [
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"},
            {"apiVersion": "v1", "kind": "ConfigMap"},
            {"apiVersion": "v1", "kind": "Secret", "type": token["type"]},
        ]});
        let literals = Literals::of(&definitions.as_object().unwrap().clone().into());
        let created = created.into_iter().chain(kind_of("rbac.authorization.k8s.io/v1", "RoleBinding")).collect();
        let found = Kinds { created, literals, ..Kinds::default() };
        for (path, body) in &all {
            assert!(check(&found, path, &body.to_string()), "{path}");
        }
    }

    fn is_writable(kinds: &Kinds, path: &str, body: &[u8]) -> bool {
        let target = Target::of(path).unwrap().unwrap();
        writable(&access(kinds.clone()), &target, &Method::POST, body).is_ok()
    }

    #[test]
    fn tokens_are_requested_if_watches_allow_it() {
        let accounts = Kinds { created: kind_of("v1", "ServiceAccount").into_iter().collect(), ..Kinds::default() };
        let allowed = [("authentication.k8s.io".to_owned(), "TokenRequest".to_owned())].into();
        let allowing = Kinds { allowed, ..accounts.clone() };
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}).to_string();
        for path in [
            "/api/v1/namespaces/b/serviceaccounts/default/token",
            "/api/v1/namespaces/b/serviceaccounts/default/%74oken/",
        ] {
            assert!(!is_writable(&accounts, path, body.as_bytes()), "{path}");
            assert!(!is_writable(&accounts, path, b""), "{path}");
            assert!(is_writable(&allowing, path, body.as_bytes()), "{path}");
        }
        assert!(is_writable(&accounts, "/api/v1/namespaces/b/serviceaccounts", b"{}"));
        assert!(is_writable(&accounts, "/api/v1/namespaces/b/serviceaccounts/default/status", b"{}"));
    }

    #[test]
    fn unreadable_bodies_are_rejected() {
        let secrets = "/api/v1/namespaces/b/secrets";
        let wide: Vec<u8> =
            "\u{feff}type: kubernetes.io/service-account-token".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for body in [&b"k8s\0\n\x0c\n\x02v1\x12\x06Secret"[..], &wide] {
            assert!(!is_writable(&Kinds::default(), secrets, body), "{body:?}");
            assert!(is_writable(&Kinds::default(), "/api/v1/namespaces/b/services/a/proxy", body), "{body:?}");
        }
    }

    /// Writes an object `b/any` with this metadata for the owner `u1`, and returns the metadata that is sent.
    fn written(write: Write, live: Option<&Value>, metadata: &Value) -> Value {
        let live = live.map_or(LiveObject::Absent, |metadata| LiveObject::Present(json!({"metadata": metadata})));
        let mut object = json!({"metadata": metadata});
        add_owner(&access(Kinds::default()), &json!({"uid": "u1", "controller": true}), write, &live, &mut object);
        object["metadata"].take()
    }

    fn is_changeable(metadata: &Value) -> bool {
        let live = json!({"metadata": metadata});
        access(Kinds::default()).check_change("", "Secret", Some("b"), "any", &live).is_ok()
    }

    #[test]
    fn object_without_owner_references_remains_changeable() {
        let released = json!({"name": "any", "ownerReferences": null});
        let created = written(Write::Create, None, &released);
        assert_eq!(created["ownerReferences"], Value::Null);
        assert!(is_changeable(&created));
        // An object of an earlier version, without annotations.
        let before = json!({"name": "any", "ownerReferences": [{"uid": "u1", "controller": true}]});
        let patched = written(Write::Patch, Some(&before), &released);
        assert_eq!(patched["ownerReferences"], Value::Null);
        assert!(is_changeable(&patched));
    }

    #[test]
    fn replaced_object_keeps_its_owner_references() {
        let created = written(Write::Create, None, &json!({"name": "any"}));
        assert_eq!(created["ownerReferences"], json!([{"uid": "u1", "controller": true}]));
        let replaced = written(Write::Replace, Some(&created), &json!({"name": "any"}));
        assert_eq!(replaced, created);
    }

    #[test]
    fn object_with_a_controller_of_the_role_remains_changeable() {
        let deployment =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "u2", "controller": true});
        let created = written(Write::Create, None, &json!({"name": "any", "ownerReferences": [deployment]}));
        assert_eq!(created["ownerReferences"], json!([deployment]));
        assert!(is_changeable(&created));
    }

    #[test]
    fn object_of_others_is_not_annotated() {
        let theirs = json!({"name": "any"});
        for write in [Write::Replace, Write::Patch, Write::Apply] {
            assert_eq!(written(write, Some(&theirs), &theirs)["annotations"], Value::Null, "{write:?}");
        }
        let itself = json!({"name": "a", "uid": "u1"});
        assert_eq!(written(Write::Patch, Some(&itself), &json!({"name": "a"})), json!({"name": "a"}));
    }

    #[test]
    fn body_that_becomes_a_large_value_is_rejected() {
        let maps = |count: usize| serde_json::to_vec(&json!({"data": vec![json!({"": 0}); count]})).unwrap();
        assert!(is_parseable(&maps(1_000)) && is_parseable(&vec![b'a'; MAX_BODY_BYTES]));
        let large = maps(60_000);
        assert!(large.len() < MAX_BODY_BYTES / 8 && !is_parseable(&large));
        assert_eq!(too_large().status(), 413);
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "X-Secret, keep-alive"),
            ("x-secret", "1"),
            ("upgrade", "h2c"),
            ("te", "trailers"),
            ("accept", "a"),
        ] {
            headers.insert(name, http::HeaderValue::from_static(value));
        }
        remove_hop_by_hop_headers(&mut headers);
        assert_eq!(headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["accept"]);
    }

    #[test]
    fn cluster_scoped_resources_are_recognized() {
        assert!(is_cluster_wide("", "nodes") && is_cluster_wide("rbac.authorization.k8s.io", "clusterroles"));
        assert!(is_cluster_wide("admissionregistration.k8s.io", "validatingadmissionpolicybindings"));
        assert!(!is_cluster_wide("", "secrets") && !is_cluster_wide("example.k8s.io", "nodes"));
    }
}
