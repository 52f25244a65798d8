//! Roles and bindings are effective as soon as their writes are acknowledged.

use crate::facts::{post, send, server};
use bytes::Bytes;
use flyball_server::{Server, User};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::json;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns";

async fn may_list(server: &Server, user: &str) -> bool {
    let request = Request::get("/api/v1/namespaces/ns/pods").extension(User::new(user, &[]));
    match server.handle(request.body(Full::new(Bytes::new())).unwrap()).await.status().as_u16() {
        200 => true,
        403 => false,
        code => panic!("{code}"),
    }
}

/// Concurrent writes of bindings: while one request reads the bindings, others are still authorized.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn decisions_reflect_completed_writes() {
    const USERS: usize = 8;
    const ROUNDS: usize = 60;
    let server = server().await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "reader"}, "rules": rules});
    assert_eq!(post(&server, &format!("{RBAC}/roles"), role).await.0, 201);
    let bind = |user: usize| {
        let server = server.clone();
        tokio::spawn(async move {
            let user = format!("user{user}");
            // Long lists are slow to read.
            let others = (0..500).map(|n| json!({"kind": "User", "name": format!("other{n}")}));
            let subjects: Vec<_> = others.chain([json!({"kind": "User", "name": user})]).collect();
            let binding = json!({
                "metadata": {"name": user}, "subjects": subjects,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            });
            let url = format!("{RBAC}/rolebindings/{user}");
            for round in 0..ROUNDS {
                assert_eq!(post(&server, &format!("{RBAC}/rolebindings"), binding.clone()).await.0, 201);
                assert!(may_list(&server, &user).await, "{user} was bound: {round}");
                let (code, answer) = send(&server, Method::DELETE, &url, "application/json", json!({})).await;
                assert_eq!(code, 200, "{answer}");
                assert!(!may_list(&server, &user).await, "{user} was released: {round}");
            }
        })
    };
    for binding in (0..USERS).map(bind).collect::<Vec<_>>() {
        binding.await.unwrap();
    }
}

/// A review of many megabytes of rules lists some of them and is marked incomplete.
#[tokio::test]
async fn rules_review_is_bounded() {
    let server = server().await;
    let review = async || {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let body = json!({"spec": {"namespace": "ns"}}).to_string();
        let request = Request::post(path).header("content-type", "application/json").extension(User::new("ann", &[]));
        let answer = server.handle(request.body(Full::new(Bytes::from(body))).unwrap()).await;
        let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        (bytes.len(), answer["status"].clone())
    };
    let rule =
        |name: String| json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": [name], "verbs": ["get"]});
    let bind = async |role: &str, rules: Vec<serde_json::Value>| {
        let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role});
        let subjects = json!([{"kind": "User", "name": "ann"}]);
        let binding = json!({"metadata": {"name": role}, "subjects": subjects, "roleRef": role_ref});
        let role = json!({"metadata": {"name": role}, "rules": rules});
        assert_eq!(post(&server, &format!("{RBAC}/roles"), role).await.0, 201);
        assert_eq!(post(&server, &format!("{RBAC}/rolebindings"), binding).await.0, 201);
    };
    bind("few", vec![rule("a".into())]).await;
    let (_, status) = review().await;
    assert_eq!((&status["incomplete"], status.get("evaluationError")), (&json!(false), None));
    assert!(status["resourceRules"].as_array().unwrap().contains(&rule("a".into())), "{status}");
    for n in 0..3 {
        bind(&format!("many{n}"), (0..8000).map(|m| rule(format!("{n}-{m}"))).collect()).await;
    }
    let (bytes, status) = review().await;
    assert_eq!(status["incomplete"], true);
    assert_eq!(status["evaluationError"], "the list of rules is truncated");
    assert!((500_000..3_000_000).contains(&bytes), "{bytes}");
}
