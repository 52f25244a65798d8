//! Horizontal pod autoscalers in their two versions, and scales.

use crate::facts::{post, send, server};
use flyball_server::Server;
use http::Method;
use serde_json::{Value, json};

const V1: &str = "/apis/autoscaling/v1/namespaces/ns/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

fn spec(rest: Value) -> Value {
    let mut spec =
        json!({"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}});
    spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    spec
}

fn cpu(percent: i64) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
}

async fn read(server: &Server, url: &str) -> Value {
    send(server, Method::GET, url, MERGE, json!(null)).await.1
}

#[tokio::test]
async fn v1_stores_v2_fields_in_annotations() {
    let server = server().await;
    let external = json!({"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "30"}}});
    let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 60}});
    let scaler = json!({"metadata": {"name": "h", "annotations": {"mine": "x"}}, "spec": spec(json!({"metrics": [external, cpu(60)], "behavior": behavior}))});
    let (code, created) = post(&server, V2, scaler).await;
    assert_eq!(code, 201, "{created}");
    let first = read(&server, &format!("{V1}/h")).await;
    assert_eq!(first["spec"]["targetCPUUtilizationPercentage"], 60);
    let annotations = &first["metadata"]["annotations"];
    let behavior_json = r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15},{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":{"StabilizationWindowSeconds":60,"SelectPolicy":"Max","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null}}"#;
    assert_eq!(annotations[BEHAVIOR], behavior_json);
    let metrics = r#"[{"type":"External","external":{"metricName":"q","targetAverageValue":"30"}}]"#;
    assert_eq!(annotations["autoscaling.alpha.kubernetes.io/metrics"], metrics);
    assert_eq!(annotations["mine"], "x");

    // An update with the read object loses nothing, and `v2` shows only the user's annotations.
    let (code, _) = send(&server, Method::PUT, &format!("{V1}/h"), "application/json", first).await;
    assert_eq!(code, 200);
    let second = read(&server, &format!("{V2}/h")).await;
    assert_eq!(second["metadata"]["annotations"], json!({"mine": "x"}));
    let mut sorted = second["spec"]["metrics"].as_array().unwrap().clone();
    sorted.sort_by_key(|metric| metric["type"].as_str().unwrap().to_owned());
    assert_eq!(sorted, [external, cpu(60)]);
    assert_eq!(second["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"], 60);
    assert_eq!(second["spec"]["behavior"]["scaleUp"]["policies"][0]["value"], 4);
}

#[tokio::test]
async fn v1_stores_status_and_conditions_in_annotations() {
    let server = server().await;
    post(&server, V1, json!({"metadata": {"name": "h"}, "spec": spec(json!({}))})).await;
    let condition = json!({"type": "AbleToScale", "status": "True", "lastTransitionTime": "2027-01-01T00:00:00Z", "reason": "Ready", "message": "m"});
    let current = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "100m"}}});
    let status = json!({"status": {"currentReplicas": 1, "desiredReplicas": 1, "currentMetrics": [current], "conditions": [condition]}});
    let (code, _) = send(&server, Method::PATCH, &format!("{V2}/h/status"), MERGE, status).await;
    assert_eq!(code, 200);
    let first = read(&server, &format!("{V1}/h")).await;
    assert_eq!(
        (&first["spec"]["targetCPUUtilizationPercentage"], &first["status"]["currentCPUUtilizationPercentage"]),
        (&json!(80), &json!(40))
    );
    assert_eq!(
        first["metadata"]["annotations"],
        json!({
            "autoscaling.alpha.kubernetes.io/conditions": r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2027-01-01T00:00:00Z","reason":"Ready","message":"m"}]"#,
            "autoscaling.alpha.kubernetes.io/current-metrics": r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":40,"currentAverageValue":"100m"}}]"#,
        })
    );
}

#[tokio::test]
async fn apply_in_v1_retains_metrics_and_removes_behavior() {
    let server = server().await;
    let apply = async |url: &str, version: &str, rest: Value| {
        let scaler = json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": spec(rest)});
        let (code, applied) = send(&server, Method::PATCH, &format!("{url}/h?fieldManager=m"), APPLY, scaler).await;
        assert!(matches!(code, 200 | 201), "{applied}");
    };
    apply(V2, "v2", json!({"metrics": [cpu(60)], "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}})).await;
    apply(V1, "v1", json!({})).await;
    let second = read(&server, &format!("{V2}/h")).await;
    assert_eq!(second["spec"]["metrics"], json!([cpu(60)]));
    assert_eq!(second["spec"].get("behavior"), None);
}

/// Creates a CRD whose objects have a scale, and one object.
async fn scalable(server: &Server, path: &str, spec: Value) -> String {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({"specReplicasPath": path, "statusReplicasPath": ".status.replicas"});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"scale": scale, "status": {}}});
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let spec_of = json!({"group": "e.com", "scope": "Namespaced", "names": names, "versions": [version]});
    let crd = json!({"metadata": {"name": "widgets.e.com"}, "spec": spec_of});
    assert_eq!(post(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await.0, 201);
    let all = "/apis/e.com/v1/namespaces/ns/widgets";
    let widget = json!({"apiVersion": "e.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    assert_eq!(post(server, &format!("{all}?fieldManager=maker"), widget).await.0, 201);
    format!("{all}/w")
}

#[tokio::test]
async fn apply_to_the_scale_of_a_custom_resource_fails() {
    let server = server().await;
    let widget = scalable(&server, ".spec.size", json!({"size": 1})).await;
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w", "namespace": "ns"}, "spec": {"replicas": 2}});
    let url = format!("{widget}/scale?fieldManager=m");
    let (code, answer) = send(&server, Method::PATCH, &format!("{url}&force=true"), APPLY, scale.clone()).await;
    let why = "failed to convert new object (ns/w; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1";
    assert_eq!((code, answer["message"].as_str()), (500, Some(why)));
    assert_eq!(send(&server, Method::PATCH, &url, APPLY, scale.clone()).await.0, 409);
    // Objects without owners get none.
    let strip = json!({"metadata": {"managedFields": [{}]}});
    assert_eq!(send(&server, Method::PATCH, &widget, MERGE, strip).await.0, 200);
    let (code, answer) = send(&server, Method::PATCH, &url, APPLY, scale).await;
    let message = answer["message"].as_str().unwrap();
    assert_eq!(code, 500);
    assert!(message.starts_with("failed to create manager for existing fields: "), "{message}");
}

#[tokio::test]
async fn body_that_is_no_scale_is_rejected_by_the_scheme_of_custom_resources() {
    let server = server().await;
    let url = format!("{}/scale", scalable(&server, ".spec.size", json!({"size": 1})).await);
    let bodies = [
        json!({"apiVersion": "e.com/v1", "kind": "Widget", "metadata": {"name": "w"}}),
        json!({"apiVersion": "v1", "kind": "List"}),
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"}, "spec": {"replicas": "x"}}),
    ];
    for body in bodies {
        let (code, response) = send(&server, Method::PUT, &url, "application/json", body).await;
        let message = response["message"].as_str().unwrap();
        assert_eq!(code, 400, "{response}");
        assert!(message.starts_with("no kind is registered for the type v1.Scale in scheme "), "{message}");
    }
}

#[tokio::test]
async fn nested_scale_field_is_released_without_a_new_owner() {
    for (path, spec, owned) in
        [(".spec.size", json!({"size": 1}), true), (".spec.in.size", json!({"in": {"size": 1}}), false)]
    {
        let server = server().await;
        let widget = scalable(&server, path, spec).await;
        let change = json!({"spec": {"replicas": 2}});
        let (code, scale) =
            send(&server, Method::PATCH, &format!("{widget}/scale?fieldManager=scaler"), MERGE, change).await;
        assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(2)), "{path}");
        let changed = read(&server, &widget).await;
        let entries = changed["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(entries.iter().any(|entry| entry["subresource"] == "scale"), owned, "{changed}");
        let maker = entries.iter().find(|entry| entry["manager"] == "maker").map(|entry| entry["fieldsV1"].to_string());
        assert!(!maker.unwrap_or_default().contains("f:size"), "{changed}");
    }
}
