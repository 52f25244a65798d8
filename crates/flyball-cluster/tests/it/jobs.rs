//! Jobs with pod failure policies and success policies.

use crate::workloads::{api, create, pods, set_status};
use crate::{cluster, eventually};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

async fn job(client: &Client, more: Value) {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "template": template});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    create::<Job>(client, json!({"metadata": {"name": "j"}, "spec": spec})).await;
}

async fn waiting(client: &Client, index: &str) -> Option<Pod> {
    let pods = pods(client).await;
    pods.into_iter().find(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Pending") && pod.annotations().get(INDEX).is_some_and(|of| of == index)
    })
}

/// Waits for the pod of an index, and ends it with this exit code.
async fn exit(client: &Client, index: &str, code: i32) {
    eventually(&format!("a pod of {index}"), || async { waiting(client, index).await.is_some() }).await;
    let pod = waiting(client, index).await.unwrap();
    let state = json!({"terminated": {"exitCode": code}});
    let container =
        json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    set_status(client, &pod, json!({"phase": phase, "containerStatuses": [container]})).await;
}

async fn condition(client: &Client, kind: &str) -> Option<String> {
    let status = api::<Job>(client).get("j").await.unwrap().status?;
    let condition = status.conditions?.into_iter().find(|condition| condition.type_ == kind)?;
    Some(format!("{}: {}", condition.reason.unwrap_or_default(), condition.message.unwrap_or_default()))
}

#[tokio::test(start_paused = true)]
async fn failed_index_does_not_block_other_indexes() {
    let client = cluster().admin();
    job(&client, json!({"backoffLimitPerIndex": 1})).await;
    exit(&client, "0", 0).await;
    exit(&client, "1", 1).await;
    exit(&client, "1", 1).await;
    exit(&client, "2", 0).await;
    eventually("the end", || async { condition(&client, "Failed").await.is_some() }).await;
    assert_eq!(condition(&client, "Failed").await.unwrap(), "FailedIndexes: Job has failed indexes");
    let status = api::<Job>(&client).get("j").await.unwrap().status.unwrap();
    assert_eq!((status.completed_indexes.as_deref(), status.failed_indexes.as_deref()), (Some("0,2"), Some("1")));
    assert_eq!((status.succeeded, status.failed), (Some(2), Some(2)));
    assert!(pods(&client).await.iter().all(|pod| pod.finalizers().is_empty()));
}

#[tokio::test(start_paused = true)]
async fn failure_policy_ignores_or_fails_by_exit_code() {
    let client = cluster().admin();
    let codes = |code: i32| json!({"operator": "In", "values": [code]});
    let rules = json!([{"action": "Ignore", "onExitCodes": codes(3)}, {"action": "FailJob", "onExitCodes": codes(7)}]);
    job(&client, json!({"backoffLimit": 0, "podFailurePolicy": {"rules": rules}})).await;
    exit(&client, "0", 3).await;
    sleep(Duration::from_secs(60)).await;
    exit(&client, "0", 0).await;
    assert_eq!(condition(&client, "Failed").await, None);
    exit(&client, "1", 7).await;
    eventually("the end", || async { condition(&client, "FailureTarget").await.is_some() }).await;
    let why = condition(&client, "FailureTarget").await.unwrap();
    assert!(why.ends_with("failed with exit code 7 matching FailJob rule at index 1"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn success_policy_ends_the_job_after_one_index() {
    let client = cluster().admin();
    job(&client, json!({"successPolicy": {"rules": [{"succeededIndexes": "2"}]}})).await;
    exit(&client, "2", 0).await;
    eventually("success", || async { condition(&client, "SuccessCriteriaMet").await.is_some() }).await;
    let why = condition(&client, "SuccessCriteriaMet").await.unwrap();
    assert_eq!(why, "SuccessPolicy: Matched rules at index 0");
    eventually("no other pods", || async { pods(&client).await.len() == 1 }).await;
}

#[tokio::test(start_paused = true)]
async fn suspended_job_has_no_pods_and_resumes() {
    let client = cluster().admin();
    job(&client, json!({})).await;
    eventually("three pods", || async { pods(&client).await.len() == 3 }).await;
    let suspend = async |is: bool| {
        let patch = Patch::Merge(json!({"spec": {"suspend": is}}));
        api::<Job>(&client).patch("j", &PatchParams::default(), &patch).await.unwrap();
    };
    suspend(true).await;
    eventually("no pods", || async { pods(&client).await.is_empty() }).await;
    assert_eq!(condition(&client, "Suspended").await.unwrap(), "JobSuspended: Job suspended");
    suspend(false).await;
    eventually("three pods", || async { pods(&client).await.len() == 3 }).await;
    assert_eq!(condition(&client, "Suspended").await.unwrap(), "JobResumed: Job resumed");
}

#[tokio::test(start_paused = true)]
async fn job_of_another_manager_is_ignored() {
    let client = cluster().admin();
    job(&client, json!({"managedBy": "example.com/other"})).await;
    sleep(Duration::from_secs(5)).await;
    assert!(pods(&client).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn job_names_do_not_change_requests() {
    let client = cluster().admin();
    eventually("the account of pods", || async {
        api::<ServiceAccount>(&client).get_opt("default").await.unwrap().is_some()
    })
    .await;
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "?watch=true&x=", "uid": "u", "controller": true});
    let metadata = json!({"name": "p", "finalizers": ["batch.kubernetes.io/job-tracking"], "ownerReferences": [owner]});
    create::<Pod>(&client, json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}})).await;
    let is_tracked = async || {
        let pod = api::<Pod>(&client).get_opt("p").await.unwrap();
        pod.is_some_and(|pod| !pod.finalizers().is_empty())
    };
    eventually("the end of tracking", || async { !is_tracked().await }).await;
}
