//! Impersonation of other users.

use crate::facts::{post, server};
use bytes::Bytes;
use flyball_server::{Server, User};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Grants a permission to a user in all namespaces.
async fn grant(server: &Server, user: &str, name: &str, rules: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    assert_eq!(post(server, &format!("{RBAC}/clusterroles"), role).await.0, 201);
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": user}],
    });
    assert_eq!(post(server, &format!("{RBAC}/clusterrolebindings"), binding).await.0, 201);
}

async fn get(server: &Server, user: &str, path: &str, headers: &[(&'static str, &str)]) -> (u16, String) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.extension(User::new(user, &[])).body(Full::new(Bytes::new())).unwrap();
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    (code, body["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn forbidden_impersonation_names_the_target_of_the_request() {
    let server = server().await;
    let cases = [
        (
            "/api/v1/namespaces/ns/pods",
            "jane",
            "pods is forbidden: User \"joe\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"ns\"",
        ),
        (
            "/apis/apps/v1/namespaces/ns/deployments/d/scale",
            "jane",
            "deployments.apps \"d\" is forbidden: User \"joe\" cannot impersonate-on:user-info:get resource \"deployments/scale\" in API group \"apps\" in the namespace \"ns\"",
        ),
        (
            "/api/v1/nodes",
            "system:serviceaccount:ns:robot",
            "nodes is forbidden: User \"joe\" cannot impersonate-on:serviceaccount:list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "/api/v1/nodes",
            "system:node:n1",
            "nodes is forbidden: User \"joe\" cannot impersonate-on:arbitrary-node:list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "/api/v1/nodes",
            "system:serviceaccount:not-one",
            "nodes is forbidden: User \"joe\" cannot impersonate-on:user-info:list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        ("/healthz", "jane", "forbidden: User \"joe\" cannot impersonate-on:user-info:get path \"/healthz\""),
    ];
    for (path, user, message) in cases {
        assert_eq!(get(&server, "joe", path, &[("impersonate-user", user)]).await, (403, message.to_owned()));
    }
    // Only the old verb allows a service account with groups.
    let headers = [("impersonate-user", "system:serviceaccount:ns:robot"), ("impersonate-group", "g")];
    let (code, message) = get(&server, "joe", "/api/v1/nodes", &headers).await;
    assert_eq!(code, 403);
    assert!(
        message.starts_with("serviceaccounts \"robot\" is forbidden: User \"joe\" cannot impersonate resource"),
        "{message}"
    );
}

#[tokio::test]
async fn legacy_impersonation_is_rejected_with_its_message() {
    let server = server().await;
    let rules =
        json!([{"apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"], "verbs": ["impersonate"]}]);
    grant(&server, "joe", "old", rules).await;
    grant(&server, "jane", "nodes", json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}])).await;
    assert_eq!(get(&server, "joe", "/api/v1/nodes", &[("impersonate-user", "jane")]).await.0, 200);
    let (code, message) = get(&server, "joe", "/api/v1/nodes", &[("impersonate-user", "jack")]).await;
    let why = "users \"jack\" is forbidden: User \"joe\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
    assert_eq!((code, message.as_str()), (403, why));
}

#[tokio::test]
async fn constrained_impersonation_allows_only_named_actions() {
    let server = server().await;
    let rules = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["users", "groups"], "verbs": ["impersonate:user-info"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["impersonate-on:user-info:list"]},
    ]);
    grant(&server, "joe", "new", rules).await;
    grant(&server, "jane", "nodes", json!([{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}]))
        .await;
    let jane = [("impersonate-user", "jane")];
    assert_eq!(get(&server, "joe", "/api/v1/nodes", &jane).await.0, 200);
    let (code, message) = get(&server, "joe", "/api/v1/pods", &jane).await;
    assert_eq!(code, 403);
    assert!(message.contains("cannot impersonate-on:user-info:list resource \"pods\""), "{message}");
    let masters = [("impersonate-user", "jane"), ("impersonate-group", "system:masters")];
    let (code, message) = get(&server, "joe", "/api/v1/nodes", &masters).await;
    assert_eq!(code, 403);
    assert!(message.ends_with("impersonating the system:masters group is not allowed"), "{message}");
}
