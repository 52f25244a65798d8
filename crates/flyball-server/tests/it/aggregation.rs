//! Requests for aggregated API servers.

use bytes::Bytes;
use flyball_core::Clock;
use flyball_server::{Bounds, ForwardFuture, ForwardedRequest, Forwarder, Options, Server, User};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "apis.example.com";

/// An API server that records requests; it does not answer while it is down.
#[derive(Clone, Default)]
struct Remote(Arc<Mutex<(Vec<ForwardedRequest>, bool)>>);

impl Forwarder for Remote {
    fn forward(&self, request: ForwardedRequest) -> ForwardFuture {
        let mut state = self.0.lock();
        let body = match request.uri.as_str() {
            "/apis/apis.example.com/v1" => json!({"kind": "APIResourceList", "resources": [
                {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get", "list"]},
                {"name": "things/icon", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": ["get"]},
            ]}),
            uri => json!({"uri": uri}),
        };
        let is_down = state.1;
        state.0.push(request);
        Box::pin(async move {
            if is_down {
                return Err("dial tcp 10.0.0.1:443: connect: connection refused".to_owned());
            }
            Ok(Response::builder()
                .header(CONTENT_TYPE, "application/json")
                .body(Bytes::from(body.to_string()))
                .unwrap())
        })
    }
}

struct Fixture {
    server: Server,
    remote: Remote,
}

impl Fixture {
    async fn new() -> Self {
        let remote = Remote::default();
        let options = Options { aggregated: Arc::new(remote.clone()), ..Options::simulated(Clock::system(), 1) };
        Self::with(options, remote).await
    }

    async fn with(options: Options, remote: Remote) -> Self {
        let fixture = Self { server: Server::new(options), remote };
        let service =
            json!({"metadata": {"name": "api"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
        assert_eq!(fixture.admin(Method::POST, "/api/v1/namespaces/default/services", service).await.0, 201);
        let api_service = json!({"metadata": {"name": format!("v1.{GROUP}")}, "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10, "caBundle": "eA==",
            "service": {"namespace": "default", "name": "api", "port": 8443},
        }});
        let path = "/apis/apiregistration.k8s.io/v1/apiservices";
        assert_eq!(fixture.admin(Method::POST, path, api_service).await.0, 201);
        fixture
    }

    async fn admin(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        self.ask(User::admin(), method, path, "application/json", body).await
    }

    async fn ask(&self, user: User, method: Method, path: &str, accept: &str, body: Value) -> (u16, Value) {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        let mut request = request.header(CONTENT_TYPE, "application/json").body(Full::new(bytes)).unwrap();
        request.extensions_mut().insert(user);
        let response = self.server.handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()))
    }
}

#[tokio::test]
async fn requests_are_forwarded_with_the_user() {
    let fixture = Fixture::new().await;
    let path = "/apis/apis.example.com/v1/namespaces/a/things?labelSelector=a%3Db";
    let (code, body) = fixture.admin(Method::GET, path, Value::Null).await;
    assert_eq!((code, &body["uri"]), (200, &json!(path)));
    let sent = fixture.remote.0.lock().0.remove(0);
    assert_eq!((sent.address.as_str(), sent.server_name.as_str()), ("localhost:8443", "api.default.svc"));
    assert_eq!(sent.ca_bundle, b"x");
    let header =
        |name: &str| sent.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(header("x-remote-user"), ["kubernetes-admin"]);
    assert_eq!(header("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert!(!sent.headers.contains_key(AUTHORIZATION));
    let created = fixture.admin(Method::POST, "/apis/apis.example.com/v1/namespaces/a/things", json!({"a": 1})).await;
    assert_eq!(created.0, 200);
    let sent = fixture.remote.0.lock().0.remove(0);
    assert_eq!((sent.method, &sent.body[..]), (Method::POST, &b"{\"a\":1}"[..]));
    let (code, _) = fixture.admin(Method::GET, "/apis/apis.example.com/v1/things?watch=true", Value::Null).await;
    assert_eq!(code, 405, "responses are received as a whole");
}

#[tokio::test]
async fn documents_are_those_of_the_remote_server() {
    let fixture = Fixture::new().await;
    let document = "/openapi/v3/apis/apis.example.com/v1";
    let (code, root) = fixture.admin(Method::GET, "/openapi/v3", Value::Null).await;
    assert_eq!((code, &root["paths"]["apis/apis.example.com/v1"]["serverRelativeURL"]), (200, &json!(document)));
    assert!(root["paths"]["api/v1"].is_object() && fixture.remote.0.lock().0.is_empty());
    let ann = User::new("ann", &["system:authenticated"]);
    let get = async |path: &str| fixture.ask(ann.clone(), Method::GET, path, "application/json", Value::Null).await;
    assert_eq!(get(document).await, (200, json!({"uri": document})));
    for other in [format!("{document}/things"), format!("{document}/../../../../apis/apis.example.com/v1/things")] {
        assert_eq!(get(&other).await.0, 404, "{other}: everyone may read below /openapi");
    }
    assert_eq!(fixture.remote.0.lock().0.len(), 1);
    assert_eq!(fixture.admin(Method::POST, document, json!({})).await.0, 405);
}

#[tokio::test]
async fn users_need_permissions() {
    let fixture = Fixture::new().await;
    let ann = User::new("ann", &[]);
    let path = "/apis/apis.example.com/v1/namespaces/a/things";
    let (code, _) = fixture.ask(ann, Method::GET, path, "application/json", Value::Null).await;
    assert_eq!(code, 403);
    assert!(fixture.remote.0.lock().0.is_empty(), "nothing is forwarded");
}

#[tokio::test]
async fn discovery_contains_remote_resources() {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let fixture = Fixture::new().await;
    let found = |document: &Value, list: &str, name: &str| {
        let groups = document[list].as_array().unwrap().clone();
        groups.into_iter().find(|group| group.pointer(name) == Some(&json!(GROUP)))
    };
    let (_, groups) = fixture.admin(Method::GET, "/apis", Value::Null).await;
    let group = found(&groups, "groups", "/name").unwrap();
    assert_eq!(group["preferredVersion"]["groupVersion"], "apis.example.com/v1");
    let (code, group) = fixture.admin(Method::GET, "/apis/apis.example.com", Value::Null).await;
    assert_eq!((code, &group["kind"]), (200, &json!("APIGroup")));
    assert!(fixture.remote.0.lock().0.is_empty(), "the names of groups need no request");
    let aggregated = async || fixture.ask(User::admin(), Method::GET, "/apis", AGGREGATED, Value::Null).await.1;
    let group = found(&aggregated().await, "items", "/metadata/name").unwrap();
    let version = &group["versions"][0];
    assert_eq!((&version["version"], &version["freshness"]), (&json!("v1"), &json!("Current")));
    let resource = &version["resources"][0];
    assert_eq!((&resource["resource"], &resource["scope"]), (&json!("things"), &json!("Namespaced")));
    assert_eq!(resource["subresources"][0]["subresource"], "icon");
    fixture.remote.0.lock().1 = true;
    let group = found(&aggregated().await, "items", "/metadata/name").unwrap();
    assert_eq!(group["versions"][0], json!({"version": "v1", "resources": [], "freshness": "Stale"}));
}

#[tokio::test]
async fn failures_name_the_cause() {
    let fixture = Fixture::new().await;
    fixture.remote.0.lock().1 = true;
    let path = "/apis/apis.example.com/v1/namespaces/a/things";
    let (code, body) = fixture.admin(Method::GET, path, Value::Null).await;
    let expected = "error trying to reach service: dial tcp 10.0.0.1:443: connect: connection refused\n";
    assert_eq!((code, body), (503, json!(expected)));
    assert_eq!(fixture.admin(Method::DELETE, "/api/v1/namespaces/default/services/api", Value::Null).await.0, 200);
    let (code, body) = fixture.admin(Method::GET, path, Value::Null).await;
    assert_eq!((code, body), (503, json!("error trying to reach service: service \"api\" not found\n")));
    let local = "/apis/apiregistration.k8s.io/v1/apiservices/v1.apis.example.com";
    assert_eq!(fixture.admin(Method::DELETE, local, Value::Null).await.0, 200);
    assert_eq!(fixture.admin(Method::GET, path, Value::Null).await.0, 404);
}

#[tokio::test]
async fn own_groups_are_not_delegated() {
    let fixture = Fixture::new().await;
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    let api_service = json!({"metadata": {"name": "v1.apps"}, "spec": {
        "group": "apps", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "service": {"namespace": "default", "name": "api"}, "insecureSkipTLSVerify": true,
    }});
    assert_eq!(fixture.admin(Method::POST, path, api_service).await.0, 201);
    let (code, list) = fixture.admin(Method::GET, "/apis/apps/v1/deployments", Value::Null).await;
    assert_eq!((code, &list["kind"]), (200, &json!("DeploymentList")));
    assert!(fixture.remote.0.lock().0.is_empty());
}

/// An API server with long responses, whose memory is reserved in two steps.
struct Long;

const LONG_BYTES: usize = 300_000;

impl Forwarder for Long {
    fn forward(&self, request: ForwardedRequest) -> ForwardFuture {
        Box::pin(async move {
            request.memory.reserve(LONG_BYTES / 2).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            request.memory.reserve(LONG_BYTES).await?;
            Ok(Response::new(vec![b'x'; LONG_BYTES].into()))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn responses_are_charged_to_the_user() {
    let bounds = Bounds { webhook_response_bytes: 4 * LONG_BYTES, ..Bounds::default() };
    let options = Options { aggregated: Arc::new(Long), bounds, ..Options::simulated(Clock::system(), 1) };
    let fixture = Fixture::with(options, Remote::default()).await;
    let role =
        json!({"metadata": {"name": "things"}, "rules": [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}]});
    let subject = |name: &str| json!({"kind": "User", "name": name});
    let binding = json!({"metadata": {"name": "things"}, "subjects": [subject("ann"), subject("bob")],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "things"}});
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{plural}");
        assert_eq!(fixture.admin(Method::POST, &path, object).await.0, 201);
    }
    let path = "/apis/apis.example.com/v1/things";
    let read = async |name: &str| {
        let mut request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        request.extensions_mut().insert(User::new(name, &[]));
        fixture.server.handle(request).await
    };
    let (one, other) = tokio::join!(read("ann"), read("ann"));
    assert_eq!([one.status(), other.status()].map(|code| code.as_u16()), [200, 200]);
    // Responses that are not sent yet are hers.
    let rejected = read("ann").await;
    assert_eq!(rejected.status(), 503);
    let why = rejected.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&why).contains("to this user take too much memory"));
    assert_eq!(read("bob").await.status(), 200);
    drop((one, other));
    assert_eq!(read("ann").await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn discovery_asks_all_servers_at_once_and_bounds_their_responses() {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    struct Stalled;
    impl Forwarder for Stalled {
        fn forward(&self, request: ForwardedRequest) -> ForwardFuture {
            Box::pin(async move {
                if request.uri.ends_with("/v1") {
                    // Decoded, it takes ninety times as much.
                    return Ok(Response::new(format!("[{}0]", "{\"a\":1},".repeat(100_000)).into()));
                }
                std::future::pending().await
            })
        }
    }
    let options = Options { aggregated: Arc::new(Stalled), ..Options::simulated(Clock::system(), 1) };
    let fixture = Fixture::with(options, Remote::default()).await;
    for version in 2..20 {
        let api_service = json!({"metadata": {"name": format!("v{version}.{GROUP}")}, "spec": {
            "group": GROUP, "version": format!("v{version}"), "groupPriorityMinimum": 100, "versionPriority": 10,
            "service": {"namespace": "default", "name": "api", "port": 8443}, "insecureSkipTLSVerify": true,
        }});
        let path = "/apis/apiregistration.k8s.io/v1/apiservices";
        assert_eq!(fixture.admin(Method::POST, path, api_service).await.0, 201);
    }
    let start = tokio::time::Instant::now();
    let document = fixture.ask(User::admin(), Method::GET, "/apis", AGGREGATED, Value::Null).await.1;
    assert!(start.elapsed() < Duration::from_secs(10));
    let groups = document["items"].as_array().unwrap();
    let group = groups.iter().find(|group| group["metadata"]["name"] == GROUP).unwrap();
    let versions = group["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 19);
    assert!(versions.iter().all(|version| version["freshness"] == "Stale"));
}
