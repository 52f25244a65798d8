//! Evictions and the budgets that they count against.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/ns/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets";
const MERGE: &str = "application/merge-patch+json";

async fn pod(server: &Server, ready: bool) {
    let account = json!({"metadata": {"name": "default"}});
    post(server, "/api/v1/namespaces/ns/serviceaccounts", account).await;
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": spec});
    assert_eq!(post(server, PODS, pod).await.0, 201);
    let ready = if ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    assert_eq!(send(server, Method::PATCH, &format!("{PODS}/p/status"), MERGE, status).await.0, 200);
}

async fn budget(server: &Server, policy: Option<&str>, [allowed, current, desired]: [i64; 3]) {
    let selector = json!({"matchLabels": {"app": "x"}});
    let mut budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}});
    if let Some(policy) = policy {
        budget["spec"]["unhealthyPodEvictionPolicy"] = policy.into();
    }
    assert_eq!(post(server, BUDGETS, budget).await.0, 201);
    let status = json!({"status": {
        "disruptionsAllowed": allowed, "currentHealthy": current, "desiredHealthy": desired, "expectedPods": 1, "observedGeneration": 1,
    }});
    assert_eq!(send(server, Method::PATCH, &format!("{BUDGETS}/b/status"), MERGE, status).await.0, 200);
}

async fn evict(server: &Server, query: &str, options: Value) -> u16 {
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": options});
    post(server, &format!("{PODS}/p/eviction{query}"), eviction).await.0
}

#[tokio::test]
async fn eviction_dry_run_does_not_change_the_budget() {
    for (query, options) in [("?dryRun=All", json!({})), ("", json!({"dryRun": ["All"]}))] {
        let server = server().await;
        pod(&server, true).await;
        budget(&server, None, [1, 1, 0]).await;
        let status = async || send(&server, Method::GET, &format!("{BUDGETS}/b"), MERGE, json!({})).await.1;
        let before = status().await;
        assert_eq!(evict(&server, query, options).await, 201);
        assert_eq!(status().await, before);
        assert_eq!(evict(&server, "", json!({})).await, 201);
        assert_eq!(status().await["status"]["disruptionsAllowed"], 0);
    }
}

#[tokio::test]
async fn unready_pods_are_evicted_as_the_policy_allows() {
    let cases = [
        (Some("AlwaysAllow"), false, [0, 0, 1], 201),
        (Some("AlwaysAllow"), true, [0, 1, 1], 429),
        (Some("IfHealthyBudget"), false, [0, 0, 1], 429),
        (Some("IfHealthyBudget"), false, [0, 1, 1], 201),
        (None, false, [0, 0, 1], 429),
        (None, false, [0, 1, 1], 201),
        (None, true, [0, 1, 1], 429),
    ];
    for (policy, ready, counts, expected) in cases {
        let server = server().await;
        pod(&server, ready).await;
        budget(&server, policy, counts).await;
        assert_eq!(evict(&server, "", json!({})).await, expected, "{policy:?} {ready} {counts:?}");
    }
}

#[tokio::test]
async fn preconditions_apply_to_the_pod_at_the_time_of_the_request() {
    let server = server().await;
    pod(&server, true).await;
    // A bound pod remains until its node deletes it.
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(post(&server, &format!("{PODS}/p/binding"), binding).await.0, 201);
    let get = async || send(&server, Method::GET, &format!("{PODS}/p"), MERGE, json!({})).await.1;
    let before = get().await;
    for wrong in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        assert_eq!(evict(&server, "", json!({"preconditions": wrong})).await, 409);
        assert_eq!(get().await, before);
    }
    let version = &before["metadata"]["resourceVersion"];
    assert_eq!(evict(&server, "", json!({"preconditions": {"resourceVersion": version}})).await, 201);
    let after = get().await;
    assert!(after["metadata"]["deletionTimestamp"].is_string(), "{after}");
    let conditions = after["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|condition| condition["type"] == "DisruptionTarget"), "{after}");
}

#[tokio::test]
async fn rejections_name_the_budget_and_its_counts() {
    for (counts, expected) in [
        ([0, 1, 1], "The disruption budget b needs 1 healthy pods and has 1 currently"),
        ([0, 2, 1], "The disruption budget b does not allow evicting pods currently"),
    ] {
        let server = server().await;
        pod(&server, true).await;
        budget(&server, None, counts).await;
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
        let (code, response) = post(&server, &format!("{PODS}/p/eviction"), eviction).await;
        assert_eq!((code, &response["details"]["causes"][0]["message"]), (429, &json!(expected)), "{response}");
    }
}
