//! Long computations of requests, on other threads than those that serve connections.
//!
//! Takes the response to a request as a future, and polls it on threads of its own, of which there are as many as
//! processors; users take turns. Administrators have as many threads of their own. A waiting future holds no thread. In
//! process and in simulations, futures are polled in place.
//!
//! Before a request computes, it waits for memory for all copies of its objects. The invariant: the copies that a write
//! makes are those that `Weights` counts.

use super::Components;
use super::call::Call;
use crate::auth::{MASTERS, User};
use crate::bounds::{Flow, Hold, Offload};
use crate::catalog::Resource;
use crate::connection::RequestConnection;
use crate::custom::CustomKind;
use crate::kinds::Review;
use crate::limits;
use crate::request::ResourcePath;
use crate::request::accept::{self, Form, View};
use crate::storage::Entry;
use flyball_core::{GroupResource, ObjectKey};
use futures_util::future::BoxFuture;
use http::Method;
use serde::de::IgnoredAny;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::ready;

/// Bytes of a body and of the stored object from which a request is a long computation.
const LONG_BODY_BYTES: usize = 64 << 10;

/// Objects of a resource from which a list is a long computation.
const LONG_LIST_OBJECTS: usize = 1000;

/// Bytes of the objects of a list from which it is a long computation: converting, deleting or showing them in another
/// view decodes them.
const LONG_LIST_BYTES: usize = 256 << 10;

/// The memory of a request besides its body and its response, and where it computes.
struct Load {
    /// The stored object that it reads or changes.
    stored: Option<Arc<Entry>>,
    /// True if it is a long computation, on other threads; otherwise the memory is held while a webhook is called.
    is_long: bool,
}

/// The memory of the defaults of a value of a built-in kind, in bytes: a container has the most.
const BUILT_IN_DEFAULTS: usize = 1 << 10;

/// The memory of the owner of a field, in bytes, in the sets of fields that a write computes.
const OWNED_FIELD: usize = 160;

/// Returns the load of a request; `None` if it is neither a long computation nor calls webhooks.
fn load(server: &Components, call: &Call) -> Option<Load> {
    let store = &server.registry.store;
    let Some(path) = &call.info.resource else {
        return call.info.path.starts_with("/openapi").then_some(Load { stored: None, is_long: true });
    };
    let is_slow = || is_slow(server, call, path);
    let table = || GroupResource::new(&path.group, &path.resource);
    let (stored, is_long) = match (&path.name, call.info.verb) {
        // Watches compute while they are sent.
        (_, "watch") => return None,
        (_, "list" | "deletecollection") => {
            let (table, namespace) = (table(), path.namespace.as_deref());
            let bytes = || store.list(&table, namespace).entries.iter().map(|entry| entry.body.len()).sum::<usize>();
            (None, store.count(&table) >= LONG_LIST_OBJECTS || bytes() >= LONG_LIST_BYTES || is_slow())
        }
        (Some(name), _) => {
            let is_plain = is_plain_read(call, path);
            if is_plain && call.stored_bytes < LONG_BODY_BYTES {
                return None;
            }
            let stored = store.get(&table(), &ObjectKey::new(path.namespace.as_deref(), name));
            if is_plain && stored.as_ref().is_none_or(|entry| is_as_stored(server, path, entry)) {
                return None;
            }
            let bytes = call.body.len() + stored.as_ref().map_or(0, |entry| entry.body.len());
            // Actions also decode objects that the path does not name, such as disruption budgets.
            let is_long = bytes >= LONG_BODY_BYTES || call.method == Method::POST || is_slow();
            (stored, is_long)
        }
        (None, _) => (None, call.body.len() >= LONG_BODY_BYTES || changes_others(server, path) || is_slow()),
    };
    // Objects stay in memory while a webhook is called.
    let holds_memory = is_long || call.writes() && waits_for_webhooks(server, path);
    holds_memory.then_some(Load { stored, is_long })
}

/// Returns true if a write may call a webhook: for admission or for a conversion.
fn waits_for_webhooks(server: &Components, path: &ResourcePath) -> bool {
    let resource = server.registry.catalog.get().get(&path.group, &path.version, &path.resource);
    resource.is_some_and(|resource| resource.converts()) || server.registry.admission.calls_webhooks(&path.resource)
}

/// The memory of decoded texts of a request, in bytes: upper bounds.
struct Weights {
    sent: usize,
    stored: usize,
    /// Defaults of the sent object.
    defaults: usize,
    /// Owners of the fields of both.
    owners: usize,
}

impl Weights {
    fn of(server: &Components, call: &Call, stored: &[u8]) -> Self {
        let body = &call.body;
        let is_json = match call.content_type() {
            None => true,
            Some(media) if media.ends_with("json") => true,
            Some(_) => serde_json::from_slice::<IgnoredAny>(body).is_ok(),
        };
        let sent = match is_json {
            true => limits::weigh(body),
            // An alias of YAML repeats its anchor.
            false if body.contains(&b'&') => limits::MAX_DECODED_BYTES,
            false => limits::at_most(body.len()),
        };
        let resource = call
            .info
            .resource
            .as_ref()
            .and_then(|path| server.registry.catalog.get().get(&path.group, &path.version, &path.resource));
        let count = |text: &[u8], marks: &[u8]| text.iter().filter(|byte| marks.contains(byte)).count();
        // Only objects of built-in kinds get defaults, but any value of a custom resource does.
        let (per_value, marks) = match resource.as_deref().map(Resource::custom) {
            Some(Some(custom)) => (custom.default_bytes, &b"{[,"[..]),
            Some(None) => (BUILT_IN_DEFAULTS, &b"{"[..]),
            None => (0, &b""[..]),
        };
        // An empty object takes two bytes of protobuf.
        let defaulted = if is_json { count(body, marks) } else { body.len() / 2 };
        let defaults = defaulted.saturating_mul(per_value);
        let owners = (count(body, b"{[,") + count(stored, b"{[,")) * OWNED_FIELD;
        Self { sent, stored: limits::weigh(stored), defaults, owners }
    }

    /// Returns the memory of a request, in copies of its objects, which `tests/memory` measures.
    ///
    /// A create holds the object and its field owners. An update first holds the body and the object that results, then
    /// that and the stored one; a strategic patch another copy of the body. An apply also holds the object without the
    /// fields that the applier no longer specifies, in several stages.
    fn copies(&self, call: &Call) -> usize {
        let Self { sent, stored, defaults, owners } = *self;
        let written = (sent + stored).saturating_add(defaults).min(limits::MAX_DECODED_BYTES);
        let owners = written / 2 + owners.min(limits::MAX_DECODED_BYTES / 2);
        match (call.info.verb, call.content_type()) {
            ("patch", Some("application/apply-patch+yaml")) if stored > 0 => sent + stored + 4 * written,
            ("patch", Some("application/strategic-merge-patch+json")) => written + (2 * sent).max(stored) + owners,
            ("create" | "update" | "patch", _) => written + sent.max(stored) + owners,
            ("delete", _) => 2 * stored + sent + owners,
            _ => sent + stored,
        }
    }
}

/// Returns true if objects of a resource change other ones when they are created, which the path does not name.
fn changes_others(server: &Components, path: &ResourcePath) -> bool {
    let resource = server.registry.catalog.get().get(&path.group, &path.version, &path.resource);
    resource.is_some_and(|resource| resource.changes_others())
}

/// Returns true if a request reads an object in the form of its storage, unless that has another version.
fn is_plain_read(call: &Call, path: &ResourcePath) -> bool {
    let is_plain = |accept| accept::negotiate(Some(accept), "").is_ok_and(|form| form == Form::PLAIN);
    !call.writes() && path.subresource.is_none() && call.accept().is_none_or(is_plain)
}

/// Returns true if an entry has the version of a path, so that it is copied and not decoded.
fn is_as_stored(server: &Components, path: &ResourcePath, entry: &Entry) -> bool {
    let resource = server.registry.catalog.get().get(&path.group, &path.version, &path.resource);
    resource.is_some_and(|resource| resource.schema_number == entry.schema)
}

/// Returns true if a request may compute for long however small its objects are.
fn is_slow(server: &Components, call: &Call, path: &ResourcePath) -> bool {
    let resource = server.registry.catalog.get().get(&path.group, &path.version, &path.resource);
    let resource = resource.as_deref();
    let of_custom = |is: fn(&CustomKind) -> bool| resource.and_then(Resource::custom).is_some_and(|custom| is(custom));
    if call.writes() {
        // With very many rules, decisions and updates of the policy take long.
        let decides = if resource.and_then(Resource::review).is_some_and(Review::authorizes) {
            server.authorizer.is_slow_somewhere()
        } else {
            server.authorizer.is_slow(path.namespace.as_deref().unwrap_or_default())
        };
        // A write to a CRD compiles its schemas, and accepts and serves all CRDs.
        if resource.is_some_and(Resource::declares_resources) {
            return true;
        }
        // Expressions of policies and of schemas may cost much, and plugins decode objects of the namespace.
        let admits = server.registry.admission.is_slow(&path.resource, path.namespace.as_deref());
        if decides || admits || of_custom(|custom| custom.has_rules) {
            return true;
        }
    }
    let is_table = |accept: &str| accept::negotiate(Some(accept), "").is_ok_and(|form| form.view == View::Table);
    call.accept().is_some_and(is_table) && of_custom(CustomKind::has_slow_rows)
}

/// Threads and memory of a request while it computes.
#[derive(Default)]
pub(super) struct Reservation {
    /// The threads of a long computation.
    pub(super) offload: Option<Offload>,
    _memory: Option<Hold>,
}

/// Reserves threads and memory for a request; `None` if there is no memory in time.
pub(super) async fn reserve(server: &Components, call: &Call) -> Option<Reservation> {
    let offload = call.connection.as_ref().and_then(|_| Offload::new(&server.shared, &call.flow));
    let (Some(mut offload), Some(load)) = (offload, load(server, call)) else { return Some(Reservation::default()) };
    let stored = load.stored.as_ref().map_or(&[][..], |entry| &entry.body);
    let weigh = || Weights::of(server, call, stored);
    let is_large = call.body.len() + stored.len() >= LONG_BODY_BYTES;
    // Texts are weighed on a thread of the request as well.
    let weights = if is_large { poll_fn(|cx| offload.poll(cx, |_| weigh())).await } else { weigh() };
    let memory = server.shared.memory(&call.flow, weights.copies(call)).await?;
    Some(Reservation { offload: load.is_long.then_some(offload), _memory: Some(memory) })
}

/// Authorizes a request; on another thread if the namespace has so many roles and bindings that decisions take long.
pub(super) async fn decide<T: Send>(
    server: &Components,
    connection: Option<&RequestConnection>,
    client: &User,
    namespace: &str,
    decide: impl Fn() -> T + Send + Sync,
) -> T {
    let is_slow = connection.is_some() && server.authorizer.is_slow(namespace);
    let flow = Flow::of(&client.name, client.is_in(MASTERS), true);
    match is_slow.then(|| Offload::new(&server.shared, &flow)).flatten() {
        Some(mut offload) => poll_fn(|cx| offload.poll(cx, |_| decide())).await,
        None => decide(),
    }
}

/// Polls the response of a request on threads of its own.
pub(super) async fn respond<T: Send>(offload: &mut Offload, mut response: BoxFuture<'_, T>) -> T {
    poll_fn(|cx| ready!(offload.poll(cx, |cx| response.as_mut().poll(cx)))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Query, RequestInfo};
    use crate::server::{Options, Server, dispatch};
    use crate::{Body, User};
    use bytes::Bytes;
    use flyball_core::Clock;
    use http::Request;
    use http_body_util::Full;
    use serde_json::json;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

    fn request(method: Method, uri: &str, body: String) -> Request<Full<Bytes>> {
        let request = Request::builder().method(method).uri(uri).header("content-type", "application/json");
        let mut request = request.body(Full::new(Bytes::from(body))).unwrap();
        request.extensions_mut().insert(User::new("admin", &["system:masters"]));
        request
    }

    /// Returns true if a read in this view is a long computation.
    async fn is_long(server: &Server, method: Method, path: &str, view: &str) -> bool {
        let mut request = request(method, path, String::new());
        request.headers_mut().insert(http::header::ACCEPT, view.parse().unwrap());
        is_long_request(server, request).await
    }

    async fn is_long_request(server: &Server, mut request: Request<Full<Bytes>>) -> bool {
        request.extensions_mut().insert(RequestConnection::default());
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let Ok(call) = dispatch::receive(&server.0, parts, query, info, body).await else { panic!("it is let in") };
        load(&server.0, &call).is_some_and(|load| load.is_long)
    }

    #[tokio::test]
    async fn lists_of_large_objects_are_long_in_each_view() {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let views = ["application/json", TABLE, "application/yaml"];
        let lists = [MAPS, &format!("{MAPS}?fieldSelector=metadata.name=map-10")];
        let create = async |n: usize, bytes: usize| {
            let object = json!({"metadata": {"name": format!("map-{n}")}, "data": {"a": "a".repeat(bytes)}});
            let response = server.handle(request(Method::POST, MAPS, object.to_string())).await;
            assert_eq!(response.status(), 201);
            drop::<http::Response<Body>>(response);
        };
        for n in 0..10 {
            create(n, 100).await;
        }
        for (view, list) in views.iter().flat_map(|view| lists.map(|list| (view, list))) {
            assert!(!is_long(&server, Method::GET, list, view).await, "{list} {view}");
        }
        create(10, LONG_LIST_BYTES).await;
        for (view, list) in views.iter().flat_map(|view| lists.map(|list| (view, list))) {
            assert!(is_long(&server, Method::GET, list, view).await, "{list} {view}");
        }
    }

    #[tokio::test]
    async fn reads_that_decode_a_large_object_are_long() {
        const PODS: &str = "/api/v1/namespaces/default/pods";
        const SCALERS: &str = "namespaces/default/horizontalpodautoscalers";
        const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let create = async |path: &str, name: &str, spec: &serde_json::Value| {
            let bytes = if name == "large" { LONG_BODY_BYTES } else { 0 };
            let metadata = json!({"name": name, "annotations": {"a": "a".repeat(bytes)}});
            let object = json!({"metadata": metadata, "spec": spec});
            let answer = server.handle(request(Method::POST, path, object.to_string())).await;
            assert_eq!(answer.status(), 201);
        };
        create(&PODS.replace("pods", "serviceaccounts"), "default", &json!(null)).await;
        let pod = json!({"containers": [{"name": "c", "image": "i"}]});
        let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
        let scaler = json!({"maxReplicas": 3, "scaleTargetRef": target});
        for name in ["small", "large"] {
            create(PODS, name, &pod).await;
            create(&format!("/apis/autoscaling/v2/{SCALERS}"), name, &scaler).await;
        }
        let (json, [first, second]) = ("application/json", [1, 2].map(|v| format!("/apis/autoscaling/v{v}/{SCALERS}")));
        let reads = [
            (PODS, "", json, false),
            (PODS, "", "*/*", false),
            (PODS, "", "text/plain", true),
            (PODS, "", "application/yaml", true),
            (PODS, "", TABLE, true),
            (PODS, "", METADATA, true),
            (PODS, "/log", json, true),
            (PODS, "/exec", json, true),
            (&*second, "", json, false),
            (&*first, "", json, true),
        ];
        for (collection, part, view, expected) in reads {
            for (name, method) in
                ["small", "large"].into_iter().flat_map(|name| [(name, Method::GET), (name, Method::HEAD)])
            {
                let is_long = is_long(&server, method.clone(), &format!("{collection}/{name}{part}"), view).await;
                assert_eq!(is_long, expected && name == "large", "{method} {collection} {name}{part} {view}");
            }
        }
        let actions = [format!("{PODS}/small/eviction"), PODS.replace("pods", "bindings")];
        for (path, expected) in actions.into_iter().map(|path| (path, true)).chain([(PODS.to_owned(), false)]) {
            assert_eq!(is_long_request(&server, request(Method::POST, &path, "{}".into())).await, expected, "{path}");
        }
    }

    #[tokio::test]
    async fn writes_whose_admission_decodes_large_objects_are_long() {
        let core = |plural: &str| MAPS.replace("configmaps", plural);
        let cases = [
            ("serviceaccounts", json!({}), ["pods"].as_slice()),
            ("limitranges", json!({"limits": [{"type": "Pod"}]}), &["pods", "persistentvolumeclaims"]),
            ("resourcequotas", json!({"hard": {"pods": "3"}}), &["pods", "persistentvolumeclaims", "configmaps"]),
        ];
        for (read, spec, expected) in cases {
            for bytes in [0, LONG_BODY_BYTES] {
                let server = Server::new(Options::simulated(Clock::system(), 1));
                let metadata = json!({"name": "a", "annotations": {"a": "a".repeat(bytes)}});
                let object = json!({"metadata": metadata, "spec": spec}).to_string();
                assert_eq!(server.handle(request(Method::POST, &core(read), object)).await.status(), 201, "{read}");
                for written in ["pods", "persistentvolumeclaims", "configmaps"] {
                    let is_long = is_long_request(&server, request(Method::POST, &core(written), "{}".into())).await;
                    assert_eq!(is_long, bytes > 0 && expected.contains(&written), "{read} of {bytes}, {written}");
                }
            }
        }
    }

    #[tokio::test]
    async fn pods_decode_one_of_their_namespaces_accounts() {
        let accounts = MAPS.replace("configmaps", "serviceaccounts");
        let server = Server::new(Options::simulated(Clock::system(), 1));
        for number in 0..10 {
            let annotations = json!({"a": "a".repeat(LONG_BODY_BYTES / 8)});
            let account = json!({"metadata": {"name": format!("a{number}"), "annotations": annotations}}).to_string();
            assert_eq!(server.handle(request(Method::POST, &accounts, account)).await.status(), 201);
        }
        let pod = request(Method::POST, &MAPS.replace("configmaps", "pods"), "{}".into());
        assert!(!is_long_request(&server, pod).await);
    }

    #[tokio::test]
    async fn tables_with_slow_rows_are_long() {
        const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let server = Server::new(Options::simulated(Clock::system(), 1));
        for (plural, kind, path) in [("quicks", "Quick", ".spec.a"), ("slows", "Slow", ".spec..a")] {
            let column = json!({"name": "A", "type": "string", "jsonPath": path});
            let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            let mut version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
            version["additionalPrinterColumns"] = json!([column]);
            let mut names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
            names["listKind"] = format!("{kind}List").into();
            let spec = json!({"group": "a.example", "scope": "Namespaced", "names": names, "versions": [version]});
            let crd = json!({"metadata": {"name": format!("{plural}.a.example")}, "spec": spec});
            assert_eq!(server.handle(request(Method::POST, CRDS, crd.to_string())).await.status(), 201);
        }
        for (uri, expected) in [("quicks/x", false), ("quicks", false), ("slows/x", true), ("slows", true)] {
            let get = |accept: &str| {
                let uri = format!("/apis/a.example/v1/namespaces/default/{uri}");
                let mut request = request(Method::GET, &uri, String::new());
                request.headers_mut().insert(http::header::ACCEPT, accept.parse().unwrap());
                request
            };
            assert!(!is_long_request(&server, get("application/json")).await, "{uri}");
            assert_eq!(is_long_request(&server, get(TABLE)).await, expected, "{uri}");
        }
    }

    #[tokio::test]
    async fn writes_matched_by_policies_are_long() {
        const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let post = |path: &str, object: &serde_json::Value| request(Method::POST, path, object.to_string());
        let writes = || {
            let object = json!({"metadata": {"name": "a"}});
            let secrets = "/api/v1/namespaces/default/secrets";
            let delete = request(Method::DELETE, &format!("{MAPS}/a"), String::new());
            let get = request(Method::GET, &format!("{MAPS}/a"), String::new());
            [(post(MAPS, &object), true), (delete, true), (post(secrets, &object), false), (get, false)]
        };
        let rule = json!({"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"]});
        let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]});
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
        let created = async |plural: &str, object: &serde_json::Value| {
            assert_eq!(server.handle(post(&format!("{GROUP}/{plural}"), object)).await.status(), 201);
        };
        created("validatingadmissionpolicies", &policy).await;
        for (request, _) in writes() {
            assert!(!is_long_request(&server, request).await, "the policy is not bound");
        }
        created("validatingadmissionpolicybindings", &binding).await;
        for (request, expected) in writes() {
            let what = format!("{} {}", request.method(), request.uri());
            assert_eq!(is_long_request(&server, request).await, expected, "{what}");
        }
    }

    #[tokio::test]
    async fn policies_share_the_budget_of_a_write() {
        const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let created = async |path: &str, object: &serde_json::Value| {
            let response = server.handle(request(Method::POST, path, object.to_string())).await;
            response.status().as_u16()
        };
        let rule = json!({"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"]});
        let expensive = "object.data.all(key, authorizer.path('/x').check('get').allowed() || true)";
        let validations = vec![json!({"expression": expensive}); 10];
        let constraints = json!({"resourceRules": [rule]});
        let spec = json!({"failurePolicy": "Ignore", "matchConstraints": constraints, "validations": validations});
        let map = |name: &str, keys: usize| {
            let data: serde_json::Map<_, _> = (0..keys).map(|n| (format!("k{n}"), "x".into())).collect();
            json!({"metadata": {"name": name}, "data": data})
        };
        for n in 0..3 {
            let name = format!("p{n}");
            let binding =
                json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
            let policy = json!({"metadata": {"name": name}, "spec": spec});
            assert_eq!(created(&format!("{GROUP}/validatingadmissionpolicies"), &policy).await, 201);
            assert_eq!(created(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding).await, 201);
            // Each policy ends with its own budget, which it ignores.
            let expected = if n < 2 { [201, 201] } else { [201, 403] };
            let few = created(MAPS, &map(&format!("few-{n}"), 1)).await;
            assert_eq!([few, created(MAPS, &map(&format!("many-{n}"), 100)).await], expected, "{n}");
        }
    }

    #[tokio::test]
    async fn decisions_by_many_rules_are_long() {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
        const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let post = |path: &str, object: &serde_json::Value| request(Method::POST, path, object.to_string());
        let review =
            json!({"spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}});
        let requests = || {
            let map = json!({"metadata": {"name": "a"}});
            let elsewhere = "/api/v1/namespaces/other/configmaps";
            [(post(MAPS, &map), true), (post(REVIEWS, &review), true), (post(elsewhere, &map), false)]
        };
        for (request, _) in requests() {
            assert!(!is_long_request(&server, request).await);
        }
        let rule = |n: usize| json!({"apiGroups": [""], "resources": ["x"], "resourceNames": [n.to_string()], "verbs": ["get"]});
        let rules: Vec<_> = (0..6000).map(rule).collect();
        let role = json!({"metadata": {"name": "many"}, "rules": rules});
        let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "many"});
        let binding = json!({"metadata": {"name": "many"}, "roleRef": role_ref});
        for (kind, object) in [("rolebindings", binding), ("roles", role)] {
            let response = server.handle(post(&format!("{RBAC}/{kind}"), &object)).await;
            assert_eq!(response.status(), 201);
        }
        for (request, expected) in requests() {
            let path = request.uri().path().to_owned();
            assert_eq!(is_long_request(&server, request).await, expected, "{path}");
        }
        let delete = request(Method::DELETE, &format!("{RBAC}/roles/many"), String::new());
        assert_eq!(server.handle(delete).await.status(), 200);
        for (request, _) in requests() {
            assert!(!is_long_request(&server, request).await);
        }
    }
}
