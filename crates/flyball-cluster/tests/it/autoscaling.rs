//! Autoscaling by metrics that the test sets.

use crate::workloads::{api, create, pods, set_status};
use crate::{cluster, eventually};
use flyball_cluster::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;
use vmgroup::api::vmgroup_v1alpha1::VmGroup;

async fn deployment(client: &Client, replicas: i32) {
    let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    let containers = json!([{"name": "c", "image": "i", "resources": resources}]);
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    create::<Deployment>(client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let count = usize::try_from(replicas).unwrap();
    eventually("pods", || async { pods(client).await.len() == count }).await;
    run(client).await;
}

/// Sets all pods to running for a long time.
async fn run(client: &Client) {
    let long = "2025-01-01T00:00:00Z";
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": long}]);
    for pod in pods(client).await {
        set_status(client, &pod, json!({"phase": "Running", "startTime": long, "conditions": ready})).await;
    }
}

async fn autoscaler(client: &Client, more: Value) {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let mut spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    create::<HorizontalPodAutoscaler>(client, json!({"metadata": {"name": "h"}, "spec": spec})).await;
}

fn cpu(percent: i32) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
}

async fn replicas(client: &Client) -> i32 {
    api::<Deployment>(client).get("web").await.unwrap().spec.unwrap().replicas.unwrap()
}

/// Returns the conditions, each as type, status and reason.
async fn conditions(client: &Client) -> Vec<String> {
    let status = api::<HorizontalPodAutoscaler>(client).get("h").await.unwrap().status.unwrap_or_default();
    let text = |c: &k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition| {
        format!("{}={} {}", c.type_, c.status, c.reason.as_deref().unwrap_or_default())
    };
    status.conditions.iter().flatten().map(text).collect()
}

async fn messages(client: &Client) -> Vec<String> {
    let events = api::<Event>(client).list(&ListParams::default()).await.unwrap().items;
    let ours = events.into_iter().filter(|event| event.involved_object.name.as_deref() == Some("h"));
    ours.map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
}

async fn annotate_pods(client: &Client, annotation: &str, value: &str) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
    for pod in pods(client).await {
        api::<k8s_openapi::api::core::v1::Pod>(client)
            .patch(&pod.name_any(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn deployment_follows_the_usage_of_its_pods() {
    let cluster: Cluster = cluster();
    let client = cluster.admin();
    deployment(&client, 2).await;
    autoscaler(&client, json!({"metrics": cpu(50)})).await;
    sleep(Duration::from_secs(20)).await;
    let missing = "the server could not find the requested resource (get pods.metrics.k8s.io)";
    assert!(messages(&client).await.iter().any(|text| text.contains(missing)));
    assert_eq!(
        conditions(&client).await,
        ["AbleToScale=True SucceededGetScale", "ScalingActive=False FailedGetResourceMetric"]
    );

    annotate_pods(&client, "flyball.dev/cpu-usage", "100m").await;
    eventually("growth", || async { replicas(&client).await == 4 }).await;
    let reason =
        "SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target";
    assert!(messages(&client).await.contains(&reason.to_owned()), "{:?}", messages(&client).await);
    let is = [
        "AbleToScale=True SucceededRescale",
        "ScalingActive=True ValidMetricFound",
        "ScalingLimited=False DesiredWithinRange",
    ];
    assert_eq!(conditions(&client).await, is);
    let status = api::<HorizontalPodAutoscaler>(&client).get("h").await.unwrap().status.unwrap();
    let current = status.current_metrics.unwrap()[0].resource.clone().unwrap().current;
    assert_eq!((current.average_utilization, current.average_value.unwrap().0.as_str()), (Some(100), "100m"));

    // It scales down at the earliest five minutes after the last recommendation of the current size.
    eventually("pods", || async { pods(&client).await.len() == 4 }).await;
    run(&client).await;
    for pod in pods(&client).await {
        cluster.metrics().set("default", "Pod", &pod.name_any(), "cpu-usage", "10m".parse().unwrap());
    }
    sleep(Duration::from_secs(240)).await;
    assert_eq!(replicas(&client).await, 4);
    assert!(conditions(&client).await.contains(&"AbleToScale=True ScaleDownStabilized".to_owned()));
    sleep(Duration::from_secs(90)).await;
    assert_eq!(replicas(&client).await, 1);
}

#[tokio::test(start_paused = true)]
async fn largest_recommendation_of_all_metrics_is_used() {
    let cluster = cluster();
    let client = cluster.admin();
    deployment(&client, 2).await;
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "name": "default"});
    let metrics = json!([
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "ContainerResource", "containerResource": {"container": "c", "name": "memory",
            "target": {"type": "AverageValue", "averageValue": "64Mi"}}},
        {"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": object,
            "target": {"type": "Value", "value": "100"}}},
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}}},
    ]);
    for pod in pods(&client).await {
        cluster.metrics().set("default", "Pod", &pod.name_any(), "metric.rps", "15".parse().unwrap());
        cluster.metrics().set("default", "Pod", &pod.name_any(), "memory-usage.c", "96Mi".parse().unwrap());
    }
    cluster.metrics().set("default", "Namespace", "default", "metric.hits", "150".parse().unwrap());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"flyball.dev/external.queue": "120"}}}));
    Api::<Namespace>::all(client.clone()).patch("default", &PatchParams::default(), &patch).await.unwrap();
    autoscaler(&client, json!({"metrics": metrics})).await;
    eventually("growth", || async { replicas(&client).await == 4 }).await;
    let status = api::<HorizontalPodAutoscaler>(&client).get("h").await.unwrap().status.unwrap();
    let current = serde_json::to_value(status.current_metrics.unwrap()).unwrap();
    let at = |pointer: &str| current.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    assert_eq!(at("/0/pods/current/averageValue"), "15");
    assert_eq!(at("/1/containerResource/current/averageValue"), "96Mi");
    assert_eq!(at("/2/object/current/value"), "150");
    assert_eq!(at("/3/external/current/averageValue"), "60");
    let reason = "SuccessfulRescale: New size: 4; reason: external metric queue(nil) above target";
    assert!(messages(&client).await.contains(&reason.to_owned()), "{:?}", messages(&client).await);
}

#[tokio::test(start_paused = true)]
async fn custom_resource_with_scale_subresource_is_scaled() {
    let client = cluster().admin();
    Api::all(client.clone()).create(&PostParams::default(), &VmGroup::crd()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let group = json!({"metadata": {"name": "vg"}, "spec": {"cpu": 1, "memory": 1, "replicas": 1, "template": "t"}});
    let group: VmGroup = VmGroup { ..serde_json::from_value(group).unwrap() };
    let groups: Api<VmGroup> = api(&client);
    groups.create(&PostParams::default(), &group).await.unwrap();
    let api_version = kube::api::ApiResource::erase::<VmGroup>(&()).api_version;
    let target = json!({"apiVersion": api_version, "kind": "VmGroup", "name": "vg"});
    autoscaler(&client, json!({"scaleTargetRef": target, "minReplicas": 3})).await;
    eventually("three", || async { groups.get("vg").await.unwrap().spec.replicas == 3 }).await;
    let reason = "SuccessfulRescale: New size: 3; reason: Current number of replicas below Spec.MinReplicas";
    assert_eq!(messages(&client).await, [reason]);
}

#[tokio::test(start_paused = true)]
async fn unscalable_target_is_reported() {
    let client = cluster().admin();
    autoscaler(&client, json!({"scaleTargetRef": {"apiVersion": "foo.io/v1", "kind": "Foo", "name": "web"}})).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(messages(&client).await, ["FailedGetScale: no matches for kind \"Foo\" in group \"foo.io\""]);
    assert_eq!(conditions(&client).await, ["AbleToScale=False FailedGetScale"]);
}

#[tokio::test(start_paused = true)]
async fn targets_are_objects_of_the_namespace() {
    let targets = [
        (json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web?x="}), "invalid name \"web?x=\""),
        (json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web#"}), "invalid name \"web#\""),
        (
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "edit"}),
            "kind \"ClusterRole\" is cluster-scoped",
        ),
    ];
    for (target, message) in targets {
        let client = cluster().admin();
        autoscaler(&client, json!({"scaleTargetRef": target})).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(messages(&client).await, [format!("FailedGetScale: {message}")]);
    }
}
