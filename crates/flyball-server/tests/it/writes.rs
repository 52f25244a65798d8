//! The log of writes.

use crate::facts::server;
use bytes::Bytes;
use flyball_server::{Server, User};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

async fn request(server: &Server, user: User, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let built = Request::builder().method(method).uri(path).header("content-type", media);
    let built = built.header("user-agent", "kubectl/v1.36 (linux)").extension(user);
    let response = server.handle(built.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn writes_name_their_user_program_and_manager() {
    let server = server().await;
    let admin = || User::new("anna", &["system:masters"]);
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "confidential"}});
    let (code, created) = request(&server, admin(), Method::POST, maps, &map).await;
    assert_eq!(code, 201, "{created}");
    let change = json!({"data": {"k": "secret"}});
    let (_, changed) = request(&server, admin(), Method::PATCH, &format!("{maps}/a?fieldManager=edit"), &change).await;
    // A write without a change is not recorded.
    request(&server, admin(), Method::PATCH, &format!("{maps}/a?fieldManager=other"), &change).await;
    let page = "/debug/api/writes?group=&resource=configmaps&namespace=default&name=a";
    let (code, found) = request(&server, admin(), Method::GET, page, &Value::Null).await;
    assert_eq!(code, 200);
    let writes = found["writes"].as_array().unwrap();
    let of = |write: &Value| {
        ["revision", "user", "agent", "manager", "verb"]
            .map(|field| write[field].as_str().unwrap_or_default().to_owned())
    };
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let expected = |object: &Value, manager: &str, verb: &str| {
        [revision(object), "anna".into(), "kubectl/v1.36 (linux)".into(), manager.into(), verb.into()]
    };
    assert_eq!(writes.len(), 2, "{found}");
    assert_eq!(
        (of(&writes[0]), of(&writes[1])),
        (expected(&changed, "edit", "patch"), expected(&created, "kubectl", "create"))
    );
    assert!(!found.to_string().contains("confidential"));
    let (code, _) =
        request(&server, User::new("guest", &["system:authenticated"]), Method::GET, page, &Value::Null).await;
    assert_eq!(code, 403);
}

#[tokio::test(start_paused = true)]
async fn readers_of_the_metrics_of_operators_do_not_see_writes() {
    let server = server().await;
    let admin = || User::new("anna", &["system:masters"]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    // The role OPERATOR-metrics-reader of an operator.
    let urls = ["/metrics", "/debug/flyball", "/debug/flyball/*"];
    let role = json!({"metadata": {"name": "reader"}, "rules": [{"nonResourceURLs": urls, "verbs": ["get"]}]});
    let binding = json!({
        "metadata": {"name": "reader"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "reader"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "prometheus"}],
    });
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let (code, created) = request(&server, admin(), Method::POST, &format!("{rbac}/{plural}"), &object).await;
        assert_eq!(code, 201, "{created}");
    }
    let query = "group=rbac.authorization.k8s.io&resource=clusterroles&namespace=&name=reader";
    let prometheus = || User::new("prometheus", &["system:authenticated"]);
    assert_eq!(request(&server, prometheus(), Method::GET, "/metrics", &Value::Null).await.0, 200);
    for path in ["/debug/api/writes", "/debug/flyball/writes", "/debug/flyball/../api/writes"] {
        let (code, found) = request(&server, prometheus(), Method::GET, &format!("{path}?{query}"), &Value::Null).await;
        assert!(matches!(code, 403 | 404) && found["writes"].is_null(), "{path}: {code} {found}");
    }
    let (code, found) =
        request(&server, admin(), Method::GET, &format!("/debug/api/writes?{query}"), &Value::Null).await;
    assert_eq!((code, found["writes"].as_array().map(Vec::len)), (200, Some(1)), "{found}");
}
