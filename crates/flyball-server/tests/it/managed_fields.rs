//! Field ownership in cases that do not follow from the request alone.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// Returns the fields of a manager.
fn owned<'v>(object: &'v Value, manager: &str) -> &'v Value {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter(|entry| entry["manager"] == manager).map(|entry| &entry["fieldsV1"]).next().unwrap_or(&Value::Null)
}

async fn apply(server: &Server, url: &str, manager: &str, object: Value) -> Value {
    let url = format!("{url}?fieldManager={manager}&force=true");
    let (code, answer) = send(server, Method::PATCH, &url, APPLY, object).await;
    assert!(matches!(code, 200 | 201), "{answer}");
    answer
}

#[tokio::test]
async fn writer_of_pod_cidr_owns_pod_cidrs_as_a_set() {
    let server = server().await;
    let both = |block: &str| json!({"f:podCIDR": {}, "f:podCIDRs": {".": {}, format!("v:\"{block}\""): {}}});
    let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}});
    let (code, created) = post(&server, "/api/v1/nodes?fieldManager=maker", node).await;
    assert_eq!((code, &created["spec"]["podCIDRs"]), (201, &json!(["10.0.0.0/24"])), "{created}");
    assert_eq!(owned(&created, "maker"), &json!({"f:spec": both("10.0.0.0/24")}));

    assert_eq!(
        post(&server, "/api/v1/nodes", json!({"metadata": {"name": "bare", "labels": {"a": "b"}}})).await.0,
        201
    );
    let patch = json!({"spec": {"podCIDR": "10.0.1.0/24"}});
    let (code, patched) = send(&server, Method::PATCH, "/api/v1/nodes/bare?fieldManager=allocator", MERGE, patch).await;
    assert_eq!((code, &patched["spec"]["podCIDRs"]), (200, &json!(["10.0.1.0/24"])), "{patched}");
    assert_eq!(owned(&patched, "allocator"), &json!({"f:spec": both("10.0.1.0/24")}));

    let node = json!({"metadata": {"name": "d"}, "spec": {"podCIDRs": ["10.0.2.0/24", "fd00::/64"]}});
    let (code, created) = post(&server, "/api/v1/nodes?fieldManager=maker", node).await;
    assert_eq!((code, &created["spec"]["podCIDR"]), (201, &json!("10.0.2.0/24")), "{created}");
    let set = json!({".": {}, "v:\"10.0.2.0/24\"": {}, "v:\"fd00::/64\"": {}});
    assert_eq!(owned(&created, "maker"), &json!({"f:spec": {"f:podCIDR": {}, "f:podCIDRs": set}}));
}

#[tokio::test]
async fn raw_json_is_one_field() {
    let server = server().await;
    let url = "/apis/apps/v1/namespaces/ns/controllerrevisions";
    let revision = |name: &str, data: Value| json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": name}, "data": data, "revision": 1});
    let all = json!({"f:data": {}, "f:revision": {}});
    for (name, data) in [("map", json!({"spec": {"a": {"b": [1]}}})), ("empty", json!({}))] {
        let (code, created) = post(&server, &format!("{url}?fieldManager=maker"), revision(name, data.clone())).await;
        assert_eq!((code, owned(&created, "maker")), (201, &all), "{created}");
        let applied = apply(&server, &format!("{url}/{name}"), "applier", revision(name, data)).await;
        assert_eq!(owned(&applied, "applier"), &all);
    }
}

#[tokio::test]
async fn bound_object_reference_is_owned_by_field() {
    let server = server().await;
    for (url, object) in [
        ("/api/v1/namespaces/ns/serviceaccounts", json!({"metadata": {"name": "a"}})),
        ("/api/v1/namespaces/ns/secrets", json!({"metadata": {"name": "s"}})),
    ] {
        assert_eq!(post(&server, url, object).await.0, 201);
    }
    let request =
        json!({"spec": {"audiences": ["x"], "boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"}}});
    let url = "/api/v1/namespaces/ns/serviceaccounts/a/token?fieldManager=m";
    let (code, created) = post(&server, url, request).await;
    assert_eq!(code, 201, "{created}");
    let bound = json!({"f:apiVersion": {}, "f:kind": {}, "f:name": {}});
    assert_eq!(owned(&created, "m")["f:spec"]["f:boundObjectRef"], bound, "{created}");
}

/// As in structured-merge-diff: a list that the last applier of its items empties becomes null, which is a value in the
/// version of the apply. In another version, the Go type omits it, so that its owners lose it.
#[tokio::test]
async fn manager_of_another_version_loses_a_null_list() {
    let server = server().await;
    for (name, other, expected) in
        [("same", "v2", json!({"f:metadata": {"f:finalizers": {}}})), ("other", "v1", Value::Null)]
    {
        let scaler = |version: &str, finalizers: Value| {
            let spec = json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}});
            json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": name, "finalizers": finalizers}, "spec": spec})
        };
        let url = |version: &str| format!("/apis/autoscaling/{version}/namespaces/ns/horizontalpodautoscalers/{name}");
        apply(&server, &url("v2"), "one", scaler("v2", json!(["x.io/a"]))).await;
        let mut nothing = scaler(other, Value::Null);
        nothing.as_object_mut().unwrap().remove("spec");
        apply(&server, &url(other), "two", nothing).await;
        let mut without = scaler("v2", Value::Null);
        without["metadata"].as_object_mut().unwrap().remove("finalizers");
        let applied = apply(&server, &url("v2"), "one", without).await;
        assert_eq!(applied["metadata"].get("finalizers"), None, "{applied}");
        assert_eq!(owned(&applied, "two"), &expected, "{name}");
    }
}
