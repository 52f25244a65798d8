//! Paths, and the scope of permissions in one namespace.

use crate::facts::{post, server};
use bytes::Bytes;
use flyball_server::{Server, User};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Grants a permission to a user in a namespace.
async fn grant(server: &Server, user: &str, namespace: &str, rules: Value) {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    assert_eq!(post(server, &format!("{RBAC}/namespaces/{namespace}/roles"), role).await.0, 201);
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"kind": "User", "name": user}],
    });
    assert_eq!(post(server, &format!("{RBAC}/namespaces/{namespace}/rolebindings"), binding).await.0, 201);
}

async fn send(server: &Server, user: User, method: &Method, path: &str, body: &Value) -> (u16, String) {
    let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", media).extension(user);
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}

/// Lists the paths of all cluster-scoped resources, with their namespaces cut in.
async fn cluster_scoped(server: &Server, namespace: &str) -> Vec<String> {
    let get = async |path: &str| -> Value {
        let (code, body) =
            send(server, User::new("admin", &["system:masters"]), &Method::GET, path, &json!(null)).await;
        assert_eq!(code, 200, "{path}");
        serde_json::from_str(&body).unwrap()
    };
    let mut versions = vec!["/api/v1".to_owned()];
    for group in get("/apis").await["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let mut paths = Vec::new();
    for version in versions {
        for resource in get(&version).await["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            if resource["namespaced"] == json!(false) && !name.contains('/') {
                paths.push(format!("{version}/namespaces/{namespace}/{name}"));
            }
        }
    }
    paths
}

#[tokio::test(start_paused = true)]
async fn namespaced_roles_grant_nothing_cluster_scoped() {
    let server = server().await;
    for namespace in ["t", "victim"] {
        post(&server, "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
    }
    grant(&server, "ann", "t", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])).await;
    let paths = cluster_scoped(&server, "t").await;
    assert!(paths.len() > 20 && paths.contains(&"/api/v1/namespaces/t/namespaces".to_owned()), "{paths:?}");
    let body = json!({"metadata": {"name": "victim", "labels": {"a": "b"}}});
    let tails = ["", "/victim", "/victim/status", "/victim/finalize", "/t", "?watch=1&timeoutSeconds=1"];
    for path in paths {
        for tail in tails {
            for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                let path = format!("{path}{tail}");
                let (code, response) = send(&server, User::new("ann", &[]), &method, &path, &body).await;

                assert!(matches!(code, 403..=405), "{method} {path}: {code} {response}");
            }
        }
    }
    let (code, _) = send(&server, User::new("ann", &[]), &Method::GET, "/api/v1/namespaces/t", &json!(null)).await;
    assert_eq!(code, 200, "one's own namespace");
}

#[tokio::test(start_paused = true)]
async fn percent_encoded_paths_are_equivalent() {
    let server = server().await;
    for name in ["mine", "crown"] {
        post(&server, "/api/v1/namespaces/ns/secrets", json!({"metadata": {"name": name}})).await;
    }
    let verbs = ["get", "list", "watch"];
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": verbs});
    grant(&server, "ann", "ns", json!([rule])).await;
    for path in ["/api/v1/watch/namespaces/ns/secrets/mine", "/api/v1/namespaces/ns/secrets/mine"] {
        let get = async |path: &str| {
            let path = format!("{path}?timeoutSeconds=1");
            send(&server, User::new("ann", &[]), &Method::GET, &path, &json!(null)).await
        };
        let (code, plain) = get(path).await;
        assert!(code == 200 && plain.contains("mine") && !plain.contains("crown"), "{path}: {code} {plain}");
        for (at, letter) in path.char_indices().filter(|(_, letter)| *letter != '/') {
            let encoded = format!("{}%{:02x}{}", &path[..at], u32::from(letter), &path[at + 1..]);
            assert_eq!(get(&encoded).await, (200, plain.clone()), "{encoded}");
        }
    }
}
