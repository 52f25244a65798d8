//! Extreme values that the schemas of built-in kinds accept harm no controller.

use crate::{cluster, eventually, namespace};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const NAMESPACE: &str = "extremes";

#[tokio::test(start_paused = true)]
async fn a_job_of_two_billion_indexes_runs_those_that_are_left() {
    let client = cluster().admin();
    namespace(&client, NAMESPACE).await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template, "completionMode": "Indexed",
        "completions": i32::MAX, "parallelism": 3, "suspend": true}});
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    let patch = async |patch: Value, is_status: bool| {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match is_status {
            true => jobs.patch_status("j", &params, &patch).await,
            false => jobs.patch("j", &params, &patch).await,
        }
        .unwrap()
    };
    patch(json!({"status": {"completedIndexes": "0-2147483640,2147483643"}}), true).await;
    patch(json!({"spec": {"suspend": false}}), false).await;
    eventually("pods", || async { jobs.get("j").await.unwrap().status.is_some_and(|status| status.active == Some(3)) })
        .await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, NAMESPACE);
    let found = pods.list(&ListParams::default()).await.unwrap();
    let index = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.metadata.annotations.as_ref().and_then(|all| all.get("batch.kubernetes.io/job-completion-index").cloned())
    };
    let mut indexes: Vec<String> = found.iter().filter_map(index).collect();
    indexes.sort();
    assert_eq!(indexes, ["2147483641", "2147483642", "2147483644"]);
    assert_eq!(
        jobs.get("j").await.unwrap().status.unwrap().completed_indexes.as_deref(),
        Some("0-2147483640,2147483643")
    );
}
