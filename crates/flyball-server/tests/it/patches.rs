//! Patches in which the real server is unexpectedly lenient, or has unusual error messages.

use crate::send::send;
use flyball_core::Clock;
use flyball_server::{Options, Server};
use http::Method;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const SECRET: &str = "/api/v1/namespaces/default/secrets/s";
const MAP: &str = "/api/v1/namespaces/default/configmaps/m";

async fn server() -> Server {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    for (path, object) in [
        ("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}, "data": {"a": "YQ=="}})),
        ("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "m"}, "data": {"a": "b"}})),
    ] {
        assert_eq!(send(&server, Method::POST, path, JSON, object.to_string()).await.0, 201);
    }
    server
}

#[tokio::test]
async fn operation_without_value_stores_empty_bytes() {
    let server = server().await;
    let patch = json!([{"op": "add", "path": "/data/k"}]).to_string();
    for path in [&format!("{SECRET}?dryRun=All"), SECRET] {
        let (code, response, _) = send(&server, Method::PATCH, path, JSON_PATCH, patch.clone()).await;
        assert_eq!((code, &response["data"]), (200, &json!({"a": "YQ==", "k": ""})), "{response}");
    }
    assert_eq!(send(&server, Method::GET, SECRET, JSON, "").await.1["data"], json!({"a": "YQ==", "k": ""}));
}

#[tokio::test]
async fn empty_path_is_the_whole_object() {
    let server = server().await;
    let (_, mut map, _) = send(&server, Method::GET, MAP, JSON, "").await;
    map["data"] = json!({"other": "c"});
    let patch = json!([{"op": "replace", "path": "", "value": map}]).to_string();
    let (code, response, _) = send(&server, Method::PATCH, MAP, JSON_PATCH, patch).await;
    assert_eq!((code, &response["data"]), (200, &json!({"other": "c"})), "{response}");
}

#[tokio::test]
async fn path_prefix_before_the_first_slash_is_ignored() {
    let server = server().await;
    let patch = json!([{"op": "add", "path": "data/k", "value": "v"}]).to_string();
    let (code, response, warnings) = send(&server, Method::PATCH, MAP, JSON_PATCH, patch).await;
    assert_eq!((code, &response["data"]), (200, &json!({"a": "b"})), "{response}");
    assert_eq!(warnings, [r#"299 - "unknown field \"k\"""#]);
}

#[tokio::test]
async fn incomplete_retain_keys_are_a_bad_request() {
    let server = server().await;
    let patch = json!({"data": {"$retainKeys": ["x"], "k": "v"}}).to_string();
    let (code, response, _) = send(&server, Method::PATCH, MAP, STRATEGIC, patch).await;
    assert_eq!((code, &response["message"]), (400, &json!("invalid patch format of retainKeys")), "{response}");
    assert_eq!(response["reason"], "BadRequest");
}

#[tokio::test]
async fn patch_may_change_the_version_of_an_object() {
    let server = server().await;
    let (v1, v2) = ("/apis/autoscaling/v1/namespaces/default", "/apis/autoscaling/v2/namespaces/default");
    let scaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef":
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let path = format!("{v2}/horizontalpodautoscalers");
    let (code, response, _) = send(&server, Method::POST, &path, JSON, scaler.to_string()).await;
    assert_eq!(code, 201, "{response}");
    let patch =
        json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 5, "targetCPUUtilizationPercentage": 7}});
    let (code, response, warnings) = send(&server, Method::PATCH, &format!("{path}/h"), MERGE, patch.to_string()).await;
    assert_eq!((code, &response["apiVersion"]), (200, &json!("autoscaling/v2")), "{response}");
    assert_eq!(response["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 7, "{response}");
    let unknown = ["spec.metrics", "status.currentMetrics"];
    assert_eq!(warnings, unknown.map(|field| format!(r#"299 - "unknown field \"{field}\"""#)));
    let bad = json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 0}}).to_string();
    let (code, response, _) = send(&server, Method::PATCH, &format!("{path}/h"), MERGE, bad).await;
    assert_eq!((code, &response["details"]["kind"]), (422, &json!("HorizontalPodAutoscaler")), "{response}");
    let (_, response, _) = send(&server, Method::GET, &format!("{v1}/horizontalpodautoscalers/h"), JSON, "").await;
    assert_eq!(response["spec"]["maxReplicas"], 5, "{response}");
    let other = json!({"apiVersion": "autoscaling/v9"}).to_string();
    let (code, response, _): (u16, Value, _) = send(&server, Method::PATCH, &format!("{path}/h"), MERGE, other).await;
    assert!(code == 422 && response["message"].as_str().unwrap().contains("patch: Invalid value"), "{response}");
}

#[tokio::test]
async fn patch_to_another_version_of_a_custom_resource_is_decoded_in_that_version() {
    let server = server().await;
    let version = |name: &str, field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "string"}}});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
    };
    let names = json!({"plural": "shops", "singular": "shop", "kind": "Shop", "listKind": "ShopList"});
    let spec = json!({"group": "a.example", "scope": "Cluster", "names": names,
        "versions": [version("v1", "old"), version("v2", "new")]});
    let crd = json!({"metadata": {"name": "shops.a.example"}, "spec": spec});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&server, Method::POST, crds, JSON, crd.to_string()).await.0, 201);
    let shop = json!({"apiVersion": "a.example/v1", "kind": "Shop", "metadata": {"name": "s"}, "spec": {"old": "x"}});
    let shops = "/apis/a.example/v1/shops";
    assert_eq!(send(&server, Method::POST, shops, JSON, shop.to_string()).await.0, 201);
    let patch = json!({"apiVersion": "a.example/v2", "spec": {"new": "y"}}).to_string();
    for (query, message, expected) in [
        ("", "must be a.example/v1", vec![r#"299 - "unknown field \"spec.old\"""#]),
        ("?fieldValidation=Strict", r#"strict decoding error: unknown field "spec.old""#, vec![]),
        ("?fieldValidation=Ignore", "must be a.example/v1", vec![]),
    ] {
        let path = format!("{shops}/s{query}");
        let (code, response, warnings) = send(&server, Method::PATCH, &path, MERGE, patch.clone()).await;
        assert!(code == 422 && response["message"].as_str().unwrap().contains(message), "{query}: {response}");
        assert_eq!(warnings, expected, "{query}");
    }
}
