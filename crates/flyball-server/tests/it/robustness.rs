//! For any request, the server responds with a valid object or a `Status`, and keeps running.

use bytes::Bytes;
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use flyball_server::{Body, Options, Server, User};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};
use std::time::Duration;

/// Resources of requests: different built-in kinds, a custom resource, and one that does not exist.
const RESOURCES: [Resource; 14] = [
    Resource("/api/v1", "ConfigMap", "configmaps", true, 0),
    Resource("/api/v1", "Pod", "pods", true, 1),
    Resource("/api/v1", "Service", "services", true, 4),
    Resource("/api/v1", "Secret", "secrets", true, 0),
    Resource("/api/v1", "Namespace", "namespaces", false, 1),
    Resource("/apis/apps/v1", "Deployment", "deployments", true, 2),
    Resource("/apis/batch/v1", "CronJob", "cronjobs", true, 3),
    Resource("/apis/autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, 9),
    Resource("/apis/apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false, 5),
    Resource("/apis/rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false, 6),
    Resource("/apis/authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false, 7),
    Resource("/apis/coordination.k8s.io/v1", "Lease", "leases", true, 9),
    Resource("/apis/example.com/v1", "Widget", "widgets", true, 8),
    Resource("/apis/example.com/v9", "Nothing", "nothings", true, 8),
];

/// Path of the group version, kind, plural, true if it is namespaced, and the index of its object.
#[derive(Clone, Copy)]
struct Resource(&'static str, &'static str, &'static str, bool, usize);

impl Resource {
    fn api_version(self) -> &'static str {
        self.0.trim_start_matches("/apis/").trim_start_matches("/api/")
    }

    fn path(self, namespaced: bool) -> String {
        format!("{}{}/{}", self.0, if namespaced { "/namespaces/ns" } else { "" }, self.2)
    }

    /// Sets the kind and the name of an object.
    fn head(self, object: &mut Value, name: &str) {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".into(), self.api_version().into());
            fields.insert("kind".into(), self.1.into());
            fields.insert("metadata".into(), json!({"name": name, "labels": {"a": "b"}}));
        }
    }
}

const SUBRESOURCES: [&str; 12] =
    ["", "", "", "", "status", "scale", "eviction", "binding", "token", "finalize", "ephemeralcontainers", "none"];

const OBJECT_TYPES: [&str; 5] =
    ["application/json", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain"];

const PATCH_TYPES: [&str; 5] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/json",
];

const ACCEPTS: [&str; 7] = [
    "",
    "*/*",
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;q=x,,;",
];

const QUERY: [&str; 16] = [
    "fieldManager=m",
    "fieldManager=%00%zz",
    "force=true",
    "dryRun=All",
    "dryRun=x",
    "fieldValidation=Strict",
    "labelSelector=a%20in%20(b,c),!d",
    "labelSelector=((",
    "fieldSelector=metadata.name%3Da,spec.x!%3D1",
    "limit=1",
    "limit=-1",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
    "resourceVersion=0",
    "resourceVersion=99999999999999999999",
    "propagationPolicy=Foreground&gracePeriodSeconds=-3",
    "resourceVersionMatch=Exact&timeoutSeconds=x",
];

/// Initial objects, which are sent in mutated forms.
fn seeds() -> Vec<Value> {
    let container = json!({
        "name": "c", "image": "i", "ports": [{"containerPort": 80, "name": "p"}], "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}, "livenessProbe": {"httpGet": {"port": "p", "path": "/"}},
    });
    let pod = json!({"containers": [container], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}], "restartPolicy": "Always"});
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {"a": {"type": "string", "default": "x"}, "n": {"type": "integer", "minimum": 1, "format": "int32"}},
        "x-kubernetes-validations": [{"rule": "self.a.size() < 9", "message": "m"}],
    }}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}});
    vec![
        json!({"data": {"a": "b"}, "immutable": false, "binaryData": {"b": "AAE="}}),
        json!({"spec": pod.clone()}),
        json!({"spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod.clone()}}}),
        json!({"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}}}),
        json!({"spec": {"ports": [{"port": 80, "targetPort": "x"}], "selector": {"a": "b"}, "clusterIP": "None"}}),
        json!({"spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        }}),
        json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        json!({"spec": {"a": "y", "n": 3}, "status": {"replicas": 1}}),
        json!({"spec": {"replicas": 3, "renewTime": "2026-01-01T00:00:00.000000Z", "holderIdentity": "h"}}),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}, {"op": "test", "path": "/kind", "value": "Pod"}]),
        json!({"deleteOptions": {"preconditions": {"uid": "x"}}, "target": {"kind": "Node", "name": "n"}, "propagationPolicy": "Orphan"}),
    ]
}

/// Replacement values.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        select(vec![
            json!(null),
            json!(true),
            json!(-1),
            json!(0),
            json!(9_223_372_036_854_775_807_i64),
            json!(1e300),
            json!(""),
            json!("ä\u{0}\n${x}"),
            json!("100%"),
            json!([]),
            json!({}),
            json!([null]),
            json!([{}]),
            json!({"$patch": "delete"}),
            json!({"": {"": []}}),
        ]),
        "\\PC{0,12}".prop_map(Value::from),
        (0..70_usize).prop_map(|n| "x".repeat(n * n).into()),
    ]
}

/// One change within a value: the place, the operation, and a value.
type Mutation = (usize, u8, Value);

fn mutate(value: &mut Value, (place, what, with): &Mutation) {
    let mut at = *place;
    let Some(target) = nth(value, &mut at) else { return };
    match (what, target) {
        (0, Value::Object(fields)) => drop(fields.insert("odd".into(), with.clone())),
        (0 | 1, Value::Array(items)) => items.push(items.first().unwrap_or(with).clone()),
        (1, Value::Object(fields)) => {
            if let Some(name) = fields.keys().next().cloned() {
                let moved = fields.remove(&name).unwrap_or_default();
                fields.insert(name + "x", moved);
            }
        }
        (2, target) => *target = json!([target.clone()]),
        (_, target) => *target = with.clone(),
    }
}

fn nth<'v>(value: &'v mut Value, at: &mut usize) -> Option<&'v mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().find_map(|value| nth(value, at)),
        Value::Array(items) => items.iter_mut().find_map(|value| nth(value, at)),
        _ => None,
    }
}

/// A generated request.
#[derive(Clone, Debug)]
struct Sent {
    method: Method,
    url: String,
    content_type: &'static str,
    accept: &'static str,
    body: Vec<u8>,
}

fn sent() -> impl Strategy<Value = Sent> {
    use Method as M;
    let methods = [M::GET, M::POST, M::POST, M::PUT, M::PUT, M::PATCH, M::PATCH, M::PATCH, M::DELETE, M::OPTIONS];
    // Most parts of requests are valid.
    let mostly = || prop::bool::weighted(0.85);
    let place =
        (0..RESOURCES.len(), select(SUBRESOURCES.to_vec()), mostly(), prop::option::of("/[a-zA-Z0-9%./ä]{0,20}"));
    let names = prop_oneof![4 => Just("a"), 1 => select(vec!["b", "widgets.example.com", "A", "x%2Fy", "..", "%ff"])];
    let types = (select(OBJECT_TYPES.to_vec()), select(PATCH_TYPES.to_vec()), mostly());
    let accepts = prop_oneof![4 => Just("application/json"), 1 => select(ACCEPTS.to_vec())];
    let mutations = prop::collection::vec((0..40_usize, 0..5_u8, odd()), 0..4);
    let body = (mostly(), 0..seeds().len(), mostly(), mutations);
    let harm = (0..20_u8, any::<prop::sample::Index>(), any::<u8>());
    let query = prop::collection::vec(select(QUERY.to_vec()), 0..3);
    (select(methods.to_vec()), place, names, (types, accepts), query, body, harm).prop_map(
        |(
            method,
            (resource, part, placed, stray),
            name,
            ((object, patch, typed), accept),
            query,
            body,
            (harm, at, byte),
        )| {
            let resource = RESOURCES[resource];
            let content_type = if typed == (method == Method::PATCH) { patch } else { object };
            let mut url = resource.path(resource.3 == placed);
            let (own, other, named, mutations) = body;
            if method != Method::POST && harm != 4 || !part.is_empty() {
                url += &format!("/{name}/{part}");
                url = url.trim_end_matches('/').to_owned();
            }
            if let (Some(stray), 5) = (stray, harm) {
                url = stray.chars().filter(char::is_ascii).collect();
            }
            if !query.is_empty() {
                url += &format!("?{}", query.join("&"));
            }
            let mut body = seeds().swap_remove(match content_type {
                "application/json-patch+json" => 10,
                _ if own => resource.4,
                _ => other,
            });
            if named {
                resource.head(&mut body, name);
            }
            mutations.iter().for_each(|mutation| mutate(&mut body, mutation));
            let mut body = match content_type {
                "application/vnd.kubernetes.protobuf" => protobuf(resource, &body),
                "application/yaml" => serde_saphyr::to_string(&body).unwrap_or_default().into_bytes(),
                _ => body.to_string().into_bytes(),
            };
            if !body.is_empty() {
                let at = at.index(body.len());
                match harm {
                    0 => body.truncate(at),
                    1 => body[at] = byte,
                    _ => {}
                }
            }
            Sent { method, url, content_type, accept, body }
        },
    )
}

/// Writes a pseudo-message in an envelope: texts, numbers and objects become fields with some number.
fn protobuf(resource: Resource, value: &Value) -> Vec<u8> {
    fn field(number: usize, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![(number << 3 | 2) as u8];
        let mut length = bytes.len();
        while length >= 0x80 {
            out.push((length & 0x7f | 0x80) as u8);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(bytes);
        out
    }
    fn message(value: &Value) -> Vec<u8> {
        match value {
            Value::Object(fields) => {
                fields.values().enumerate().flat_map(|(i, value)| field(i % 15 + 1, &message(value))).collect()
            }
            Value::Array(items) => items.iter().flat_map(|item| field(1, &message(item))).collect(),
            Value::String(text) => text.clone().into_bytes(),
            other => vec![0x08, other.as_i64().unwrap_or(1) as u8 & 0x7f],
        }
    }
    let type_meta = [field(1, resource.api_version().as_bytes()), field(2, resource.1.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &message(value))].concat()
}

async fn send(server: &Server, sent: &Sent) -> Option<Response<Body>> {
    let mut request = Request::new(Full::new(Bytes::from(sent.body.clone())));
    *request.method_mut() = sent.method.clone();
    *request.uri_mut() = sent.url.parse::<Uri>().ok()?;
    request.headers_mut().insert("content-type", HeaderValue::from_static(sent.content_type));
    request.headers_mut().insert("accept", HeaderValue::from_static(sent.accept));
    request.extensions_mut().insert(User::admin());
    Some(server.handle(request).await)
}

/// Sends a request, and checks that the response is well-formed.
async fn check(server: &Server, sent: &Sent) {
    let Some(response) = send(server, sent).await else { return };
    let code = response.status().as_u16();
    let content_type =
        response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    // A watch runs as long as the client listens.
    let body = tokio::time::timeout(Duration::from_secs(5), response.into_body().collect()).await;
    let Ok(Ok(body)) = body else { return };
    let body = body.to_bytes();
    if content_type == "application/json" {
        let value: Value =
            serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{sent:?}: {code}: {error}: {body:?}"));
        let of_objects = RESOURCES.iter().any(|Resource(base, ..)| sent.url.starts_with(&format!("{base}/")));
        assert!(!of_objects || value["kind"].is_string(), "{sent:?}: {code}: {value}");
        if code >= 400 {
            assert_eq!(
                (&value["kind"], &value["status"], &value["code"]),
                (&json!("Status"), &json!("Failure"), &json!(code)),
                "{sent:?}: {value}"
            );
        }
    } else {
        assert!(!body.is_empty() || code == 404, "{sent:?}: {code}");
    }
}

fn plain(method: Method, url: &str, body: Value) -> Sent {
    Sent { method, url: url.into(), content_type: "application/json", accept: "", body: body.to_string().into_bytes() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_answered(requests in prop::collection::vec(sent(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = Clock::new(|| Timestamp::from_second(1_800_000_000).unwrap());
            let server = Server::new(Options::simulated(clock, 1));
            let namespace = json!({"metadata": {"name": "ns"}});
            check(&server, &plain(Method::POST, "/api/v1/namespaces", namespace)).await;
            let account = json!({"metadata": {"name": "default"}});
            check(&server, &plain(Method::POST, "/api/v1/namespaces/ns/serviceaccounts", account)).await;
            for resource in RESOURCES.iter().rev() {
                let mut object = seeds().swap_remove(resource.4);
                resource.head(&mut object, if resource.1 == "CustomResourceDefinition" { "widgets.example.com" } else { "a" });
                check(&server, &plain(Method::POST, &resource.path(resource.3), object)).await;
            }
            for request in &requests {
                check(&server, request).await;
            }
            let alive = send(&server, &plain(Method::GET, "/api/v1/namespaces/kube-system", Value::Null)).await.unwrap();
            prop_assert_eq!(alive.status(), 200);
            Ok(())
        })?;
    }
}
