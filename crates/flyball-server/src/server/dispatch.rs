//! Dispatch: the server as a function from request to response.
//!
//! It authenticates and authorizes a request, reads its body, waits for a slot, and calls the responsible part of the
//! server. It does not depend on the content of bodies. ARCHITECTURE.md lists the path of a PATCH request from here.

use super::call::{Call, RejectedRequest};
use super::{Components, Server, objects, offloading, upload};
use crate::aggregation::{self, Delegation, RemoteVersion};
use crate::auth::{self, Action, ActionTarget, User};
use crate::bounds::{Flow, RequestClass, UNFINISHED};
use crate::catalog::Catalog;
use crate::connection::RequestConnection;
use crate::definitions::CleanUp;
use crate::encoder;
use crate::metrics::{self, Series};
use crate::registry::{WrittenBy, parse_version};
use crate::request::accept::Discovery;
use crate::request::{Query, RequestInfo, accept};
use crate::response::{self, Body, Warnings};
use crate::{discovery, openapi, webhook};
use bytes::Bytes;
use flyball_core::{GroupResource, ObjectKey, Status};
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response, header};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Bytes of a watch's URL that are charged as one more watch.
const WATCH_URL_BYTES: usize = 256;
/// Timeouts of all webhook calls of a write and of a read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);
const READ_TIMEOUT: Duration = Duration::from_secs(60);

impl Server {
    /// Responds to a request.
    ///
    /// A [`User`](crate::User) in the request's extensions is its user, unless the request has a token; the caller is
    /// trusted. Without both, the request is anonymous.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let server = &self.0;
        let (parts, body) = request.into_parts();
        let head = parts.method == Method::HEAD;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let series = Series::of(&server.registry.catalog.get(), &parts, &query, &info);
        let received = receive(server, parts, query, info, body).await;
        let by_master = received.as_ref().is_ok_and(|call| call.user.is_in(auth::MASTERS));
        let by_account = received.as_ref().is_ok_and(|call| call.user.is_account_of_others());
        let mut response = match received {
            Ok(call) if server.registry.store.has_journal() && call.writes() => {
                respond_detached(server.clone(), call).await
            }
            Ok(call) => route(server, call).await,
            Err(RejectedRequest::Status(status)) => response::status(&status),
            Err(RejectedRequest::Busy) => response::too_many_requests(),
        };
        server.definitions.sync_first().await;
        let code = response.status().as_u16();
        // Administrators have all permissions: their 403s come from admission.
        if code == 403 && !by_master {
            server.forbidden.count(series.clone(), code);
        }
        if code < 400 && by_account {
            server.permitted.count(series.clone(), code);
        }
        server.requests.count(series, code);
        response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
        if head {
            *response.body_mut() = Body::empty();
        }
        response
    }
}

impl<B> tower_service::Service<Request<B>> for Server
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}

/// Responds to a request in a separate task, so that a committed write takes full effect even if the client
/// disconnects.
async fn respond_detached(server: Arc<Components>, call: Call) -> Response<Body> {
    let task = tokio::spawn(async move { route(&server, call).await });
    task.await.unwrap_or_else(|error| response::status(&Status::internal(error)))
}

/// Authenticates and authorizes a request, reads its body, and waits for a slot.
pub(super) async fn receive<B>(
    server: &Components,
    parts: Parts,
    query: Query,
    info: RequestInfo,
    body: B,
) -> Result<Call, RejectedRequest>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let client = server.authenticator.authenticate(&parts.headers, parts.extensions.get::<User>())?;
    let connection: Option<RequestConnection> = parts.extensions.get().cloned();
    let on = ActionTarget::of(&info);
    let admit = || {
        let user = server.authenticator.impersonate(&parts.headers, client.clone(), &info)?;
        server.authorizer.authorize(&Action { user: &user, verb: info.verb, on }).map(|()| user)
    };
    let user = offloading::decide(server, connection.as_ref(), &client, on.namespace(), admit).await?;
    let flow = Flow::of(&user.name, user.is_in(auth::MASTERS), connection.is_some());
    connection.iter().for_each(|connection| connection.identify(&flow));
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let sends = info.resource.is_some() && !reads;
    // Slow bodies and waits for a resource version take no slot.
    let counted = connection.as_ref().map(|_| (&server.shared, &flow));
    let (bytes, received) = if sends { upload::read(body, counted).await? } else { (Bytes::new(), None) };
    let awaits = match info.verb {
        "get" => info.resource.is_some(),
        "list" | "deletecollection" => query.text("continue").is_empty(),
        _ => false,
    };
    if awaits && let Ok(Some(version)) = parse_version(query.text("resourceVersion")) {
        // On timeout, the response is an error.
        let _ = server.registry.wait_for(version).await;
    }
    let class = match () {
        () if user.is_in(auth::MASTERS) => RequestClass::Exempt,
        () if reads => RequestClass::Read,
        () => RequestClass::Write,
    };
    // Watches take no slot, since they last.
    let watches = reads && info.verb == "watch";
    let slot = if watches { None } else { Some(server.shared.slot(class, &flow).await.ok_or(RejectedRequest::Busy)?) };
    let mut stored_bytes = 0;
    if let Some(connection) = &connection {
        // A client with too many unread bytes gets no response until it has read them.
        stored_bytes = stored_length(server, &info);
        let length = expected_length(&info, bytes.len(), stored_bytes);
        connection.replace_reservation(Some(server.shared.room(&flow, length).await.ok_or(RejectedRequest::Busy)?));
        if watches {
            // Selectors are kept for the lifetime of the watch.
            let length = parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
            let weight = 1 + length / WATCH_URL_BYTES;
            connection.hold(server.shared.watches.try_take(&flow, weight).ok_or(RejectedRequest::Busy)?);
        }
    }
    let (method, headers, warnings) = (parts.method, parts.headers, Warnings::default());
    let _holds = [slot, received];
    Ok(Call { method, headers, query, body: bytes, user, info, warnings, connection, flow, stored_bytes, _holds })
}

/// Returns the bytes of the stored object that a request names.
fn stored_length(server: &Components, info: &RequestInfo) -> usize {
    let Some(path) = &info.resource else { return 0 };
    let Some(name) = &path.name else { return 0 };
    let (table, key) =
        (GroupResource::new(&path.group, &path.resource), ObjectKey::new(path.namespace.as_deref(), name));
    server.registry.store.get(&table, &key).map_or(0, |entry| entry.body.len())
}

/// Estimates how many bytes of a response are generated at once.
fn expected_length(info: &RequestInfo, sent: usize, stored: usize) -> usize {
    const SMALL_RESPONSE_BYTES: usize = 16 << 10;
    const SCHEMA_BYTES: usize = 4 << 20;
    let Some(path) = &info.resource else {
        return if info.path.starts_with("/openapi/") { SCHEMA_BYTES } else { SMALL_RESPONSE_BYTES };
    };
    match &path.name {
        None if info.verb == "list" => encoder::FIRST_PIECE_BYTES,
        _ => SMALL_RESPONSE_BYTES + sent + stored,
    }
}

/// Responds to a received request.
async fn route(server: &Arc<Components>, call: Call) -> Response<Body> {
    let deadline = if call.writes() { WRITE_TIMEOUT } else { READ_TIMEOUT };
    let response = async {
        let response = respond(server, &call).await;
        if let Some(clean_up) = concerned_definitions(server, &call) {
            Box::pin(server.definitions.sync(&clean_up)).await;
        }
        response
    };
    let response = webhook::within(deadline, &call.flow, response);
    let response = match offloading::reserve(server, &call).await {
        Some(mut reservation) => match &mut reservation.offload {
            Some(offload) => offloading::respond(offload, Box::pin(response)).await,
            None => response.await,
        },
        None => response::too_many_requests(),
    };
    // The response to a completed write is never replaced by 429.
    if call.writes() { response } else { wait_for_room(server, &call, response).await }
}

/// Returns the CRDs that a request may have changed; `None` for requests that never wait for changes of CRDs.
fn concerned_definitions(server: &Components, call: &Call) -> Option<CleanUp> {
    let path = call.info.resource.as_ref().filter(|_| call.writes())?;
    let resource = server.registry.catalog.get().get(&path.group, &path.version, &path.resource)?;
    if resource.declares_resources() {
        return Some(match &path.name {
            Some(name) => CleanUp::One(name.clone()),
            None if call.method == Method::POST => CleanUp::Nothing,
            None => CleanUp::All,
        });
    }
    // It may have removed the last object of a CRD that is being deleted.
    let terminating = resource.custom().is_some_and(|custom| custom.terminating);
    terminating.then(|| CleanUp::One(format!("{}.{}", path.resource, path.group)))
}

/// Delays a response that is longer than expected until its user may have more unsent bytes. Its slot is kept.
async fn wait_for_room(server: &Components, call: &Call, response: Response<Body>) -> Response<Body> {
    let Some(connection) = &call.connection else { return response };
    let length = response.body().available_bytes() + UNFINISHED;
    match connection.replace_reservation(None) {
        Some(room) if room.amount() < length => drop(room),
        room => {
            connection.replace_reservation(room);
            return response;
        }
    }
    let room = server.shared.room(&call.flow, length).await;
    let fits = room.is_some();
    connection.replace_reservation(room);
    if fits { response } else { response::too_many_requests() }
}

/// Responds to a request. The future is boxed so that it is compiled in this crate, and not again for each type of body
/// in other crates.
fn respond<'c>(server: &'c Arc<Components>, call: &'c Call) -> BoxFuture<'c, Response<Body>> {
    Box::pin(async move {
        let path = call.info.path.clone();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let of = match parts[..] {
            // The document of a group version. Everyone may read it, so no other path is forwarded.
            ["openapi", "v3", "apis", _, _] if call.method == Method::GET => &parts[2..],
            ["openapi", ..] => &[],
            _ => &parts[..],
        };
        if let Some(delegation) = delegation(server, of) {
            return forward(server, call, &delegation).await;
        }
        if call.info.resource.is_some() {
            return objects::respond(server, call).await;
        }
        let response = match parts[..] {
            [""] => discovery::paths(&server.registry.catalog.get()),
            ["healthz" | "livez" | "readyz"] => Some(response::text(200, "ok")),
            // Checks of a kube-apiserver that always pass here.
            ["healthz" | "livez" | "readyz", "ping" | "log" | "etcd"] => Some(response::text(200, "ok")),
            ["version"] => Some(discovery::version()),
            ["metrics"] => Some(metrics::page(&metrics::Metrics {
                shared: &server.shared,
                requests: &server.requests,
                forbidden: &server.forbidden,
                permitted: &server.permitted,
                readers: &server.readers,
                store: &server.registry.store,
            })),
            // Not below `/debug/flyball`: the role of readers of an operator's metrics allows those pages.
            ["debug", "api", "writes"] => {
                let query = |name| call.query.get(name);
                let (group, resource) = (query("group"), query("resource"));
                let of = WrittenBy { group, resource, namespace: query("namespace"), name: query("name") };
                Some(response::value(200, accept::Form::PLAIN, &server.registry.writes.page(&of)))
            }
            [".well-known", "openid-configuration"] => Some(discovery::issuer()),
            ["openid", "v1", "jwks"] => {
                Some(response::value(200, accept::Form::PLAIN, &server.authenticator.issuer().jwks()))
            }
            ["openapi", "v2"] => Some(openapi::v2(&server.openapi, &server.registry.catalog.get(), call.accept())),
            ["openapi", "v3"] => {
                let remote = delegations(server);
                let remote = remote.iter().map(|delegation| &delegation.of);
                Some(openapi::root(&server.registry.catalog.get(), remote))
            }
            ["openapi", "v3", ref rest @ ..] => Some(openapi::document(
                &server.openapi,
                &server.registry.catalog.get(),
                rest,
                call.query.get("hash").is_some(),
            )),
            ["apis", ref rest @ ..] => {
                let remote = remote_versions(server, call, rest).await;
                discovery::respond(&server.registry.catalog.get(), &remote, &parts, call.accept())
            }
            ["api", ..] => discovery::respond(&server.registry.catalog.get(), &[], &parts, call.accept()),
            _ => None,
        };
        match response {
            Some(_) if !matches!(call.method, Method::GET | Method::HEAD) => {
                response::status(&Status::method_not_allowed())
            }
            Some(response) => response,
            None => response::page_not_found(),
        }
    })
}

/// Returns true if the server itself has a group version.
fn is_own(catalog: &Catalog, group: &str, version: &str) -> bool {
    catalog.group(group).is_some_and(|known| known.versions.iter().any(|known| &*known.name == version))
}

/// Finds the aggregated API server of a path.
fn delegation(server: &Components, path: &[&str]) -> Option<Delegation> {
    let ["apis", group, version, ..] = *path else { return None };
    let delegation = || server.aggregation.find(group, version);
    if is_own(&server.registry.catalog.get(), group, version) { None } else { delegation() }
}

/// Returns the group versions that only aggregated API servers have.
fn delegations(server: &Components) -> Vec<Delegation> {
    let catalog = server.registry.catalog.get();
    let mut delegations = server.aggregation.delegations();
    delegations.retain(|delegation| !is_own(&catalog, &delegation.of.group, &delegation.of.version));
    delegations
}

async fn forward(server: &Components, call: &Call, to: &Delegation) -> Response<Body> {
    if call.info.verb == "watch" || call.query.flag("watch") {
        return aggregation::unsupported_watch();
    }
    let query = call.query.encode();
    let question = if query.is_empty() { "" } else { "?" };
    let uri = format!("{}{question}{query}", call.info.path);
    let Call { method, headers, body, user, flow, .. } = call;
    server.aggregation.forward(to, aggregation::Request { method, uri, headers, body, user, flow }).await
}

/// Returns the group versions of aggregated API servers for a discovery document; their resources only if it has them.
async fn remote_versions(server: &Components, call: &Call, group: &[&str]) -> Vec<RemoteVersion> {
    let delegations = delegations(server);
    let with_resources = group.is_empty() && accept::negotiate_discovery(call.accept()) == Some(Discovery::Aggregated);
    match with_resources {
        true => server.aggregation.resources(delegations, &call.user, &call.flow).await,
        false => {
            delegations.into_iter().map(|delegation| RemoteVersion { of: delegation.of, resources: None }).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use flyball_core::Clock;
    use http_body_util::{BodyExt, Full};
    use serde_json::{Value, json};

    const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    async fn send(server: &Server, method: Method, path: &str, body: Value) -> (u16, Value) {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type);
        let mut request = request.body(Full::new(bytes)).unwrap();
        request.extensions_mut().insert(User::admin());
        let response = server.handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    fn definition(plural: &str) -> Value {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        let names = json!({"plural": plural, "kind": plural.to_uppercase()});
        let spec = json!({"group": "x.io", "scope": "Cluster", "names": names, "versions": [version]});
        json!({"metadata": {"name": format!("{plural}.x.io")}, "spec": spec})
    }

    fn hat(metadata: Value) -> Value {
        json!({"apiVersion": "x.io/v1", "kind": "HATS", "metadata": metadata})
    }

    #[tokio::test]
    async fn only_writers_of_definitions_process_them() {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        assert_eq!(send(&server, Method::POST, CRDS, definition("hats")).await.0, 201);
        let registry = &server.0.registry;
        // As after the write of a concurrent request.
        registry.mark_definitions_changed();
        let before = registry.catalog.get();
        for (method, path, body) in [
            (Method::GET, "/healthz", Value::Null),
            (Method::GET, CRDS, Value::Null),
            (Method::GET, MAPS, Value::Null),
            (Method::POST, MAPS, json!({"metadata": {"name": "a"}})),
            (Method::POST, "/apis/x.io/v1/hats", hat(json!({"name": "a"}))),
            (Method::DELETE, "/apis/x.io/v1/hats/a", Value::Null),
        ] {
            let (code, response) = send(&server, method, path, body).await;
            assert!(code < 300, "{path}: {response}");
            assert!(Arc::ptr_eq(&before, &registry.catalog.get()), "{path} serves the definitions of others");
        }
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(send(&server, Method::PATCH, &format!("{CRDS}/hats.x.io"), label).await.0, 200);
        assert!(server.0.definitions.is_synced() && !Arc::ptr_eq(&before, &registry.catalog.get()));
    }

    #[tokio::test]
    async fn snapshot_with_unprocessed_definitions_processes_them_first() {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        server.0.registry.mark_definitions_changed();
        let fork = server.snapshot().fork(Options::simulated(Clock::system(), 1));
        assert!(!fork.0.definitions.is_synced());
        assert_eq!(send(&fork, Method::GET, "/healthz", Value::Null).await.0, 200);
        assert!(fork.0.definitions.is_synced() && !server.0.definitions.is_synced());
    }

    #[tokio::test]
    async fn last_object_of_a_deleted_definition_removes_it() {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        assert_eq!(send(&server, Method::POST, CRDS, definition("hats")).await.0, 201);
        let object = hat(json!({"name": "a", "finalizers": ["x.io/a"]}));
        assert_eq!(send(&server, Method::POST, "/apis/x.io/v1/hats", object).await.0, 201);
        let crd = format!("{CRDS}/hats.x.io");
        assert_eq!(send(&server, Method::DELETE, &crd, Value::Null).await.0, 200);
        // Another writer does not delete its objects.
        assert_eq!(send(&server, Method::POST, CRDS, definition("caps")).await.0, 201);
        assert_eq!(send(&server, Method::GET, &crd, Value::Null).await.0, 200);
        let release = json!({"metadata": {"finalizers": null}});
        assert_eq!(send(&server, Method::PATCH, "/apis/x.io/v1/hats/a", release).await.0, 200);
        assert_eq!(send(&server, Method::GET, &crd, Value::Null).await.0, 404);
        assert!(server.0.definitions.is_synced());
    }

    #[tokio::test]
    async fn deleted_definitions_leave_no_window() {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let store = &server.0.registry.store;
        let hats = "/apis/x.io/v1/hats";
        let mut retained = Vec::new();
        let mut version = String::new();
        for _ in 0..4 {
            assert_eq!(send(&server, Method::POST, CRDS, definition("hats")).await.0, 201);
            if !version.is_empty() {
                let list = format!("{hats}?resourceVersionMatch=Exact&resourceVersion={version}");
                assert_eq!(send(&server, Method::GET, &list, Value::Null).await.0, 410, "of the deleted CRD");
                assert_eq!(send(&server, Method::GET, hats, Value::Null).await.1["items"], json!([]));
            }
            let mut object = hat(json!({"name": "a"}));
            object["text"] = "x".repeat(100_000).into();
            let (_, created) = send(&server, Method::POST, hats, object).await;
            version = created["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            for n in 0..5 {
                let label = json!({"metadata": {"labels": {"n": n.to_string()}}});
                assert_eq!(send(&server, Method::PATCH, &format!("{hats}/a"), label).await.0, 200);
            }
            assert!(store.window_bytes() > 500_000);
            assert_eq!(send(&server, Method::DELETE, &format!("{CRDS}/hats.x.io"), Value::Null).await.0, 200);
            assert_eq!(send(&server, Method::GET, &format!("{CRDS}/hats.x.io"), Value::Null).await.0, 404);
            retained.push(store.window_bytes());
        }
        // The CRDs themselves are in the window of their table.
        assert!(retained.iter().all(|bytes| *bytes < 100_000), "{retained:?}");
    }
}
