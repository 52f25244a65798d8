//! Reads that name a version, and lists in pages.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

async fn get(server: &Server, path: &str) -> (u16, Value) {
    send(server, Method::GET, path, "application/json", json!(null)).await
}

#[tokio::test(start_paused = true)]
async fn reads_honor_the_resource_version() {
    let server = server().await;
    let map = json!({"metadata": {"name": "m"}});
    let (_, created) = post(&server, "/api/v1/namespaces/ns/configmaps", map).await;
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    for path in ["/api/v1/namespaces/ns/configmaps/m", "/api/v1/namespaces/ns", "/api/v1/namespaces/ns/status"] {
        for good in ["0", version] {
            assert_eq!(get(&server, &format!("{path}?resourceVersion={good}")).await.0, 200, "{path} {good}");
        }
        let (code, answer) = get(&server, &format!("{path}?resourceVersion=abc")).await;
        let why = "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
        assert_eq!((code, answer["message"].as_str()), (500, Some(why)), "{path}");
        let (code, answer) = get(&server, &format!("{path}?resourceVersion=999999")).await;
        let details =
            (&answer["reason"], &answer["details"]["retryAfterSeconds"], &answer["details"]["causes"][0]["reason"]);
        assert_eq!((code, details), (504, (&json!("Timeout"), &json!(1), &json!("ResourceVersionTooLarge"))), "{path}");
    }
    assert_eq!(get(&server, "/api/v1/namespaces/ns/configmaps/none?resourceVersion=0").await.0, 404);
    assert_eq!(get(&server, "/api/v1/namespaces/ns/configmaps/none?resourceVersion=999999").await.0, 504);
}

#[tokio::test(start_paused = true)]
async fn initial_events_of_a_future_version_fail_within_the_watch() {
    let server = server().await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999";
    for kind in ["configmaps", "pods"] {
        let (code, event) = get(&server, &format!("/api/v1/namespaces/ns/{kind}?{query}")).await;
        assert_eq!((code, &event["type"], &event["object"]["code"]), (200, &json!("ERROR"), &json!(504)), "{kind}");
        assert_eq!(event["object"]["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    }
}

#[tokio::test]
async fn full_page_has_a_continue_token_if_keys_remain() {
    let server = server().await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let map = json!({"metadata": {"name": name, "labels": {"app": app}}});
        post(&server, "/api/v1/namespaces/ns/configmaps", map).await;
    }
    let page = async |query: &str| {
        let (_, list) = get(&server, &format!("/api/v1/namespaces/ns/configmaps?{query}")).await;
        let names: Vec<String> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        (
            names.join(" "),
            list["metadata"]["continue"].as_str().map(str::to_owned),
            list["metadata"]["remainingItemCount"].clone(),
        )
    };
    for selector in ["labelSelector=app=x", "fieldSelector=metadata.name!=c"] {
        let (names, token, remaining) = page(&format!("{selector}&limit=2")).await;
        assert_eq!((names.as_str(), token.is_some(), remaining), ("a b", true, Value::Null), "{selector}");
        let (names, token, _) = page(&format!("{selector}&limit=2&continue={}", token.unwrap())).await;
        assert_eq!((names.as_str(), token), ("", None), "{selector}");
        assert_eq!(page(&format!("{selector}&limit=3")).await.1, None, "{selector}");
    }
    assert_eq!(page("labelSelector=app=y&limit=1").await, ("c".into(), None, Value::Null));
    // A list by name has no further page.
    assert_eq!(page("fieldSelector=metadata.name=a&limit=1").await, ("a".into(), None, Value::Null));
    let (_, everywhere) = get(&server, "/api/v1/configmaps?fieldSelector=metadata.name=a&limit=1").await;
    assert!(everywhere["metadata"]["continue"].is_string(), "{everywhere}");
    let named = "/api/v1/configmaps?fieldSelector=metadata.name=a,metadata.namespace=ns&limit=1";
    assert_eq!(get(&server, named).await.1["metadata"]["continue"], Value::Null);
    let (names, token, remaining) = page("limit=2").await;
    assert_eq!((names.as_str(), token.is_some(), remaining), ("a b", true, json!(1)));
}

#[tokio::test]
async fn forged_continue_tokens_are_rejected() {
    use base64::Engine;
    let server = server().await;
    for (token, why) in [
        (json!({"v": "meta.k8s.io/v1", "rv": 5, "start": ""}), "encoded start key empty (version meta.k8s.io/v1)"),
        (json!({"v": "meta.k8s.io/v1", "rv": 5}), "encoded start key empty (version meta.k8s.io/v1)"),
        (
            json!({"v": "meta.k8s.io/v1", "rv": 0, "start": ""}),
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (json!({"v": "meta.k8s.io/v1", "rv": 5, "start": "../x"}), "../x"),
        (json!({"v": "meta.k8s.io/v1", "rv": 5, "start": "/a//b"}), "/a//b"),
    ] {
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token.to_string());
        let (code, response) = get(&server, &format!("/api/v1/configmaps?continue={token}")).await;
        let expected = format!("invalid continue token: continue key is not valid: {why}");
        assert_eq!((code, &response["message"]), (400, &json!(expected)));
    }
}

#[tokio::test]
async fn duplicate_finalizers_are_retained() {
    let server = server().await;
    let twice = json!(["e.com/a", "e.com/a"]);
    let kinds = [("configmaps", json!({})), ("services", json!({"spec": {"ports": [{"port": 80}]}}))];
    for (kind, mut object) in kinds {
        let url = format!("/api/v1/namespaces/ns/{kind}");
        object["metadata"] = json!({"name": "twice", "finalizers": twice});
        let (code, created) = post(&server, &url, object).await;
        assert_eq!((code, &created["metadata"]["finalizers"]), (201, &twice), "{created}");
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        let (code, changed) =
            send(&server, Method::PATCH, &format!("{url}/twice"), "application/merge-patch+json", patch).await;
        assert_eq!((code, &changed["metadata"]["finalizers"]), (200, &twice), "{changed}");
    }
}

#[tokio::test]
async fn openapi_documents_follow_the_definitions() {
    let server = server().await;
    let described = async |path: &str| get(&server, path).await.1.to_string().contains("\"Hat\"");
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = |name: &str, kind: &str| {
        json!({"metadata": {"name": format!("{name}.x.io")}, "spec": {
            "group": "x.io", "scope": "Namespaced", "names": {"plural": name, "kind": kind}, "versions": [version.clone()]}})
    };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    post(&server, definitions, definition("caps", "Cap")).await;
    for path in ["/openapi/v2", "/openapi/v3/apis/x.io/v1"] {
        assert!(!described(path).await && !described(path).await, "{path}");
    }
    post(&server, definitions, definition("hats", "Hat")).await;
    for path in ["/openapi/v2", "/openapi/v3/apis/x.io/v1"] {
        assert!(described(path).await && described(path).await, "{path}");
    }
}
