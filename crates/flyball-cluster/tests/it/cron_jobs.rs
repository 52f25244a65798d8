//! Scheduled jobs, their history and concurrency policies.

use crate::workloads::{api, create};
use crate::{cluster, eventually};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// 2026-01-01T00:00:00Z, when simulated time begins, in minutes.
const BEGIN: i64 = 1_767_225_600 / 60;

async fn cron_job(client: &Client, more: Value) {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut spec = json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    create::<CronJob>(client, json!({"metadata": {"name": "cj"}, "spec": spec})).await;
}

async fn jobs(client: &Client) -> Vec<String> {
    let jobs = api::<Job>(client).list(&ListParams::default()).await.unwrap().items;
    jobs.iter().filter(|job| job.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect()
}

fn names(minutes: &[i64]) -> Vec<String> {
    minutes.iter().map(|minute| format!("cj-{}", BEGIN + minute)).collect()
}

/// Finishes all active jobs.
async fn end(client: &Client, kind: &str) {
    let now = "2026-01-01T01:00:00Z";
    for job in api::<Job>(client).list(&ListParams::default()).await.unwrap() {
        let mut conditions = vec![json!({"type": kind, "status": "True", "lastTransitionTime": now})];
        let first = if kind == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
        conditions.insert(0, json!({"type": first, "status": "True"}));
        let mut status = json!({"conditions": conditions, "active": 0, "ready": 0});
        if kind == "Complete" {
            status["completionTime"] = now.into();
        }
        let patch = Patch::Merge(json!({"status": status}));
        api::<Job>(client).patch_status(&job.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
}

async fn reasons(client: &Client) -> Vec<String> {
    let events = api::<Event>(client).list(&ListParams::default()).await.unwrap().items;
    events
        .into_iter()
        .filter(|event| event.involved_object.kind.as_deref() == Some("CronJob"))
        .filter_map(|event| event.reason)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn job_is_created_every_minute() {
    let client = cluster().admin();
    cron_job(&client, json!({"timeZone": "Europe/Berlin"})).await;
    sleep(Duration::from_secs(150)).await;
    assert_eq!(jobs(&client).await, names(&[1, 2]));
    let job = api::<Job>(&client).get(&names(&[1])[0]).await.unwrap();
    assert_eq!(job.annotations()["batch.kubernetes.io/cronjob-scheduled-timestamp"], "2026-01-01T01:01:00+01:00");
    let status = api::<CronJob>(&client).get("cj").await.unwrap().status.unwrap();
    assert_eq!(status.active.unwrap().len(), 2);
    assert_eq!(status.last_schedule_time.unwrap().0.to_string(), "2026-01-01T00:02:00Z");
    end(&client, "Complete").await;
    eventually("success", || async {
        let status = api::<CronJob>(&client).get("cj").await.unwrap().status.unwrap();
        status.active.is_none() && status.last_successful_time.is_some()
    })
    .await;
    assert!(reasons(&client).await.contains(&"SawCompletedJob".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn concurrency_policy_is_applied() {
    for (policy, expect) in [("Forbid", names(&[1])), ("Replace", names(&[3])), ("Allow", names(&[1, 2, 3]))] {
        let client = cluster().admin();
        cron_job(&client, json!({"concurrencyPolicy": policy})).await;
        sleep(Duration::from_secs(190)).await;
        assert_eq!(jobs(&client).await, expect, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn finished_jobs_are_limited_by_history() {
    let client = cluster().admin();
    cron_job(&client, json!({"successfulJobsHistoryLimit": 2})).await;
    sleep(Duration::from_secs(1)).await;
    for _ in 0..5 {
        sleep(Duration::from_secs(60)).await;
        end(&client, "Complete").await;
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(jobs(&client).await, names(&[4, 5]));
}

#[tokio::test(start_paused = true)]
async fn missed_run_is_created_once_within_its_deadline() {
    for (deadline, expect) in [(json!(null), names(&[5])), (json!(10), Vec::new())] {
        let client = cluster().admin();
        cron_job(&client, json!({"schedule": "*/5 * * * *", "suspend": true, "startingDeadlineSeconds": deadline}))
            .await;
        sleep(Duration::from_secs(400)).await;
        assert_eq!(jobs(&client).await, Vec::<String>::new());
        let patch = Patch::Merge(json!({"spec": {"suspend": false}}));
        api::<CronJob>(&client).patch("cj", &PatchParams::default(), &patch).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(jobs(&client).await, expect);
    }
}

#[tokio::test(start_paused = true)]
async fn finished_jobs_are_deleted_after_their_ttl() {
    let client = cluster().admin();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"ttlSecondsAfterFinished": 100, "suspend": true, "template": template});
    create::<Job>(&client, json!({"metadata": {"name": "j"}, "spec": spec})).await;
    let conditions = json!([{"type": "FailureTarget", "status": "True"},
        {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions, "startTime": "2026-01-01T00:00:00Z"}}));
    api::<Job>(&client).patch_status("j", &PatchParams::default(), &patch).await.unwrap();
    sleep(Duration::from_secs(90)).await;
    assert_eq!(jobs(&client).await, ["j"]);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(jobs(&client).await, Vec::<String>::new());
}
