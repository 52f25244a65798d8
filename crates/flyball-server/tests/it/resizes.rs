//! A resize of a pod is subject to the quotas and limit ranges of its namespace.

use crate::send::send;
use flyball_core::Clock;
use flyball_server::{Options, Server};
use http::Method;
use serde_json::{Value, json};

const CORE: &str = "/api/v1/namespaces/default";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

async fn create(server: &Server, plural: &str, object: Value) {
    let (code, answer, _) = send(server, Method::POST, &format!("{CORE}/{plural}"), JSON, object.to_string()).await;
    assert_eq!(code, 201, "{answer}");
}

/// Sets the CPU of the container, and returns the code and message.
async fn resize(server: &Server, cpu: &str) -> (u16, String) {
    let amounts = json!({"cpu": cpu, "memory": "1Mi"});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}});
    let (path, patch) = (format!("{CORE}/pods/p/resize"), json!({"spec": {"containers": [container]}}));
    let (code, answer, _) = send(server, Method::PATCH, &path, MERGE, patch.to_string()).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn resize_is_subject_to_quota_and_limit_range() {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    create(&server, "serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    create(&server, "resourcequotas", json!({"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "2"}}}))
        .await;
    let status = json!({"status": {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "0"}}});
    let path = format!("{CORE}/resourcequotas/q/status");
    assert_eq!(send(&server, Method::PATCH, &path, MERGE, status.to_string()).await.0, 200);
    let amounts = json!({"cpu": "1", "memory": "1Mi"});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}});
    create(&server, "pods", json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}})).await;

    let (code, message) = resize(&server, "3").await;
    assert_eq!(code, 403, "{message}");
    assert!(message.contains("exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=1"), "{message}");
    let used = async || {
        let (_, quota, _) = send(&server, Method::GET, &format!("{CORE}/resourcequotas/q"), JSON, "").await;
        quota["status"]["used"]["requests.cpu"].as_str().unwrap().to_owned()
    };
    assert_eq!(used().await, "1");
    let (code, message) = resize(&server, "1500m").await;
    assert_eq!((code, used().await.as_str()), (200, "1500m"), "{message}");

    let limits = json!([{"type": "Container", "max": {"cpu": "1800m"}}]);
    create(&server, "limitranges", json!({"metadata": {"name": "l"}, "spec": {"limits": limits}})).await;
    let (code, message) = resize(&server, "1900m").await;
    assert_eq!(code, 403, "{message}");
    assert!(message.contains("maximum cpu usage per Container is 1800m, but limit is 1900m"), "{message}");
    let (code, message) = resize(&server, "500m").await;
    assert_eq!((code, used().await.as_str()), (200, "500m"), "{message}");
}
