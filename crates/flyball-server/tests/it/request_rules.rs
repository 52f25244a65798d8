//! Requests that are read, or refused, in ways that one would not think of.

use crate::facts::{post, send, server};
use bytes::Bytes;
use flyball_server::{Server, User};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const APPLY: &str = "application/apply-patch+yaml";

async fn raw(
    server: &Server,
    method: Method,
    url: &str,
    headers: &[(&'static str, &'static str)],
    body: &str,
) -> (u16, HeaderMap, Value) {
    let mut request = Request::new(Full::new(Bytes::from(body.to_owned())));
    *request.method_mut() = method;
    *request.uri_mut() = url.parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    request.extensions_mut().insert(User::admin());
    let response = server.handle(request).await;
    let (code, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = Value::from(String::from_utf8_lossy(&body).into_owned());
    (code, headers, serde_json::from_slice(&body).unwrap_or(text))
}

#[tokio::test]
async fn the_first_document_of_a_body_is_taken() {
    let server = server().await;
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ";
    for (name, body) in [
        ("a", format!("{head}a\n---\n{head}z\n")),
        ("b", format!("# comment\n---\n{head}b\n--- {{}}\n")),
        ("c", format!("%YAML 1.2\n---\n{head}c\n...\nnot: [yaml\n")),
        ("d", format!("{head}d\ndata:\n  k: |\n    x\n    ---\n    y\n---\nother: 1\n")),
    ] {
        let (code, _, made) = raw(&server, Method::POST, MAPS, &[("content-type", "application/yaml")], &body).await;
        assert_eq!((code, made["metadata"]["name"].as_str()), (201, Some(name)), "{made}");
        let url = format!("{MAPS}/{name}?fieldManager=m&force=true");
        assert_eq!(raw(&server, Method::PATCH, &url, &[("content-type", APPLY)], &body).await.0, 200);
    }
    let (_, _, map) = raw(&server, Method::GET, &format!("{MAPS}/d"), &[], "").await;
    assert_eq!(map["data"], json!({"k": "x\n---\ny\n"}));
}

#[tokio::test]
async fn a_conflict_is_told_of_before_a_key_that_stands_twice() {
    let server = server().await;
    let body =
        |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  k: old\n  k: {value}\n");
    let plain = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  k: one\n";
    let apply = async |manager: &str, body: &str| {
        let url = format!("{MAPS}/m?fieldManager={manager}&fieldValidation=Strict");
        raw(&server, Method::PATCH, &url, &[("content-type", APPLY)], body).await
    };
    assert_eq!(apply("first", plain).await.0, 201);
    assert_eq!(apply("second", &body("two")).await.0, 409);
    let (code, _, told) = apply("second", &body("one")).await;
    assert!(code == 400 && told["message"].as_str().unwrap().contains("strict decoding YAML"), "{told}");
    assert_eq!(raw(&server, Method::GET, &format!("{MAPS}/m"), &[], "").await.2["data"], json!({"k": "one"}));
}

#[tokio::test]
async fn options_of_lists_are_judged_one_after_the_other() {
    let server = server().await;
    let cases = [
        (
            "resourceVersionMatch=Exact&sendInitialEvents=true",
            vec![
                (
                    "resourceVersionMatch",
                    "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                ),
                ("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"),
            ],
        ),
        (
            "watch=1&resourceVersionMatch=Exact",
            vec![
                (
                    "resourceVersionMatch",
                    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ),
                ("resourceVersionMatch", "Unsupported value: \"Exact\": supported values: \"NotOlderThan\""),
            ],
        ),
    ];
    for (query, expected) in cases {
        for path in [MAPS, "/api/v1/nodes", "/apis/apps/v1/deployments"] {
            let (code, _, told) = raw(&server, Method::GET, &format!("{path}?{query}"), &[], "").await;
            let causes: Vec<(&str, &str)> = told["details"]["causes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|cause| (cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap()))
                .collect();
            assert_eq!((code, causes), (422, expected.clone()), "{path}?{query}");
        }
    }
}

#[tokio::test]
async fn who_cannot_read_an_answer_is_told_of_all_that_there_are() {
    let server = server().await;
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let all = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for path in [MAPS, "/apis/apps/v1/deployments"] {
        let refuse = async |query: &str, accept: &'static str| {
            let (code, _, told) = raw(&server, Method::GET, &format!("{path}{query}"), &[("accept", accept)], "").await;
            assert_eq!(code, 406);
            told.to_string()
        };
        let told = refuse("?watch=1", "application/yaml").await;
        assert!(told.contains(&format!("types are accepted: {streams}")), "{told}");
        for query in ["", "?watch=1"] {
            let told = refuse(query, "text/html").await;
            assert!(told.contains(&format!("{all}, {streams}")), "{told}");
        }
    }
    let (_, _, told) = raw(&server, Method::GET, &format!("{MAPS}/x"), &[("accept", "text/html")], "").await;
    assert!(told.to_string().contains(all) && !told.to_string().contains("stream=watch"), "{told}");
}

#[tokio::test]
async fn an_old_table_without_rows_has_none() {
    let server = server().await;
    for (version, rows) in [("v1beta1", Value::Null), ("v1", json!([]))] {
        let accept = if version == "v1" {
            "application/json;as=Table;v=v1;g=meta.k8s.io"
        } else {
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
        };
        for path in ["/api/v1/namespaces/ns/secrets", "/api/v1/namespaces/ns/pods"] {
            let (code, _, table) = raw(&server, Method::GET, path, &[("accept", accept)], "").await;
            assert_eq!((code, &table["rows"]), (200, &rows), "{table}");
        }
    }
}

async fn pod(server: &Server, name: &str, node: Option<&str>) {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    let account = json!({"metadata": {"name": "default"}});
    post(server, "/api/v1/namespaces/ns/serviceaccounts", account).await;
    let (code, told) = post(server, "/api/v1/namespaces/ns/pods", pod).await;
    assert_eq!(code, 201, "{told}");
}

#[tokio::test]
async fn commands_need_another_protocol_and_no_logs_are_no_text() {
    let server = server().await;
    pod(&server, "bound", Some("n")).await;
    pod(&server, "free", None).await;
    let pods = "/api/v1/namespaces/ns/pods";
    for action in ["exec", "attach", "portforward"] {
        let (code, _, told) = raw(&server, Method::POST, &format!("{pods}/bound/{action}"), &[], "").await;
        assert_eq!((code, told["message"].as_str()), (400, Some("Upgrade request required")), "{action}");
    }
    let (code, headers, _) = raw(&server, Method::GET, &format!("{pods}/free/log"), &[], "").await;
    assert_eq!((code, headers.get("content-type")), (204, None));
}

#[tokio::test]
async fn evictions_of_the_old_version_are_still_read() {
    let server = server().await;
    pod(&server, "p", None).await;
    for (version, kind, expected) in
        [("policy/v1alpha1", "Eviction", 400), ("policy/v1beta1", "Binding", 400), ("policy/v1beta1", "Eviction", 201)]
    {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "p"}});
        let (code, told) = post(&server, "/api/v1/namespaces/ns/pods/p/eviction", body).await;
        assert_eq!(code, expected, "{version}: {told}");
    }
}

#[tokio::test]
async fn a_token_bound_to_another_object_names_its_kind() {
    let server = server().await;
    pod(&server, "x", None).await;
    post(&server, "/api/v1/namespaces/ns/secrets", json!({"metadata": {"name": "x"}})).await;
    for kind in ["Pod", "Secret"] {
        let reference = json!({"kind": kind, "apiVersion": "v1", "name": "x", "uid": "other"});
        let request = json!({"spec": {"audiences": [], "boundObjectRef": reference}});
        let url = "/api/v1/namespaces/ns/serviceaccounts/default/token";
        let (code, told) = post(&server, url, request).await;
        assert_eq!((code, told["details"]["kind"].as_str()), (409, Some(kind)), "{told}");
    }
}

#[tokio::test]
async fn a_wrong_scale_is_refused_as_a_scale() {
    let server = server().await;
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (plural, kind) in
        [("deployments", "Deployment"), ("replicasets", "ReplicaSet"), ("statefulsets", "StatefulSet")]
    {
        let url = format!("/apis/apps/v1/namespaces/ns/{plural}");
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod, "serviceName": "s"});
        let (code, told) = post(&server, &url, json!({"metadata": {"name": "x"}, "spec": spec})).await;
        assert_eq!(code, 201, "{kind}: {told}");
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "x"}, "spec": {"replicas": -1}});
        let (code, told) =
            send(&server, Method::PATCH, &format!("{url}/x/scale?fieldManager=m&force=true"), APPLY, scale).await;
        let message = told["message"].as_str().unwrap();
        assert!(code == 422 && message.starts_with("Scale.autoscaling \"x\" is invalid: spec.replicas"), "{told}");
    }
}
