//! Extreme values that the schemas of built-in kinds accept harm no controller.

mod cases;

use crate::{cluster, eventually, namespace};
use cases::{Case, job_spec, selector, template, with};
use flyball_cluster::{Cluster, Controllers, Nodes, Options, simulated_clock};
use futures_util::TryStreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const NAMESPACE: &str = "extremes";

/// Maximum number of pods, and of jobs, that the controllers may create in a test: two billion replicas would take too
/// long.
const MAX_PODS: usize = 20;
const MAX_JOBS: usize = 10;

async fn api_of(client: &Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::gvk(group, version, kind)).await.unwrap();
    match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), NAMESPACE, &resource),
    }
}

fn object(api_version: &str, kind: &str, name: &str, mut fields: Value) -> DynamicObject {
    (fields["apiVersion"], fields["kind"]) = (api_version.into(), kind.into());
    fields["metadata"]["name"] = name.into();
    if kind == "Event" {
        (fields["involvedObject"]["kind"], fields["involvedObject"]["name"]) = ("Pod".into(), "p".into());
        fields["metadata"]["namespace"] = NAMESPACE.into();
    }
    if fields["type"] == "kubernetes.io/service-account-token" {
        fields["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
    }
    serde_json::from_value(fields).unwrap()
}

/// Writes an extreme value in a create and in an update; returns the number of accepted writes.
async fn write(api: &Api<DynamicObject>, case: &Case, name: &str, pointer: &str, value: &Value) -> usize {
    let Case(api_version, kind, plain, _) = case;
    let (extreme, is_status) = (with(plain, pointer, value), pointer.starts_with("/status"));
    let creation = PostParams::default();
    if !is_status {
        let created = api.create(&creation, &object(api_version, kind, &format!("{name}-made"), extreme.clone())).await;
        let _ = api.create(&creation, &object(api_version, kind, name, plain.clone())).await;
        let mut change = extreme;
        change.as_object_mut().unwrap().remove("metadata");
        let changed = api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
        return usize::from(created.is_ok()) + usize::from(changed.is_ok());
    }
    let _ = api.create(&creation, &object(api_version, kind, name, plain.clone())).await;
    let change = json!({"status": extreme["status"]});
    usize::from(api.patch_status(name, &PatchParams::default(), &Patch::Merge(change)).await.is_ok())
}

/// Creates a cluster with some controllers, and the list of their panics.
fn watched_cluster(controllers: &str) -> (Cluster, Arc<Mutex<Vec<String>>>, JoinHandle<()>) {
    let panics = Arc::<Mutex<Vec<String>>>::default();
    let log = panics.clone();
    let cluster = Cluster::new(Options::simulated(simulated_clock(), 1))
        .with_certificate("a certificate")
        .on_panic(move |place, text| log.lock().unwrap().push(format!("{place}: {text}")));
    // Without an account in its namespace, no pod can be created.
    let controllers: Controllers = format!("{controllers},serviceaccount-controller").parse().unwrap();
    let running = cluster.clone();
    let controllers = tokio::spawn(async move { running.run(&controllers).await });
    (cluster, panics, controllers)
}

/// Creates the namespace of the test, and waits until pods can be created.
async fn begin(client: &Client) {
    namespace(client, NAMESPACE).await;
    let accounts = api_of(client, "v1", "ServiceAccount").await;
    eventually("an account", || async { accounts.get_opt("default").await.unwrap().is_some() }).await;
}

/// Limits pods and jobs by a quota that admission charges, and that is never recounted.
async fn limit(client: &Client, pods: usize) {
    let hard = json!({"pods": pods.to_string(), "count/jobs.batch": MAX_JOBS.to_string()});
    let quotas = api_of(client, "v1", "ResourceQuota").await;
    let quota = object("v1", "ResourceQuota", "limit", json!({"spec": {"hard": hard}}));
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    let status = json!({"status": {"hard": hard, "used": {"pods": "0", "count/jobs.batch": "0"}}});
    quotas.patch_status("limit", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Counts the objects that controllers created.
async fn object_count(client: &Client) -> usize {
    let mut count = 0;
    for (api_version, kind) in [
        ("v1", "Pod"),
        ("v1", "Endpoints"),
        ("v1", "Secret"),
        ("batch/v1", "Job"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "ControllerRevision"),
        ("discovery.k8s.io/v1", "EndpointSlice"),
    ] {
        count +=
            api_of(client, api_version, kind).await.list_metadata(&ListParams::default()).await.unwrap().items.len();
    }
    count
}

/// Sets each field of a kind to each extreme value while its controllers run.
async fn play(case: Case, controllers: &str) {
    let (cluster, panics, running) = watched_cluster(controllers);
    let client = cluster.admin();
    let Case(api_version, kind, plain, fields) = &case;
    if controllers.contains("kubelet") || *kind == "DaemonSet" {
        Nodes::new("node", 1).add_to(&client).await.unwrap();
    }
    begin(&client).await;
    limit(&client, MAX_PODS).await;
    if *kind == "HorizontalPodAutoscaler" {
        let target = json!({"spec": {"selector": selector(), "template": template(), "replicas": 1}});
        let deployments = api_of(&client, "apps/v1", "Deployment").await;
        deployments.create(&PostParams::default(), &object("apps/v1", "Deployment", "target", target)).await.unwrap();
    }
    let api = api_of(&client, api_version, kind).await;
    let (mut accepted, mut names) = (0, 0);
    for (pointer, takes) in *fields {
        for value in takes.extremes() {
            names += 1;
            accepted += write(&api, &case, &format!("x{names}"), pointer, &value).await;
        }
        sleep(Duration::from_secs(1)).await;
    }
    // The objects themselves are valid: some values of each kind must be accepted.
    assert!(accepted > 0, "{kind}: none of {names} values is accepted");
    sleep(Duration::from_secs(90)).await;
    // Two objects of each name, each with at most two dependents: a replica set and a revision, slices and endpoints.
    let (created, most) = (object_count(&client).await, 6 * names + MAX_PODS + MAX_JOBS);
    assert!(created <= most, "{kind}: {created} objects came of {names} values");
    // Deleted objects are reconciled once more.
    for found in api.list_metadata(&ListParams::default()).await.unwrap() {
        let name = found.metadata.name.unwrap_or_default();
        if name.starts_with('x') {
            let _ = api.delete(&name, &DeleteParams::background()).await;
        }
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*panics.lock().unwrap(), [""; 0], "{kind} as {plain}");
    assert!(!running.is_finished(), "{kind}: the controllers have ended");
}

/// One test for each kind, with its controllers.
macro_rules! extremes {
    ($($case:ident: $controllers:literal;)+) => {
        mod of {
            use super::{cases, play};
            $(
                #[tokio::test(start_paused = true)]
                async fn $case() {
                    play(cases::$case(), $controllers).await;
                }
            )+
        }
    };
}

extremes! {
    deployment: "deployment-controller,replicaset-controller";
    replica_set: "replicaset-controller";
    stateful_set: "statefulset-controller";
    daemon_set: "daemonset-controller";
    job: "job-controller,ttl-after-finished-controller";
    indexed_job: "job-controller,ttl-after-finished-controller";
    cron_job: "cronjob-controller,job-controller";
    pod_disruption_budget: "disruption-controller";
    horizontal_pod_autoscaler: "horizontal-pod-autoscaler-controller,deployment-controller";
    node: "kubelet,node-lifecycle-controller,kube-scheduler,daemonset-controller";
    lease: "kubelet,node-lifecycle-controller";
    pod: "kube-scheduler,kubelet,pod-garbage-collector-controller,endpointslice-controller";
    service: "endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller,service-lb-controller";
    endpoint_slice: "endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller";
    persistent_volume_claim: "persistentvolume-binder-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller,volume-provisioner";
    namespace: "namespace-controller,serviceaccount-controller";
    resource_quota: "resourcequota-controller";
    event: "garbage-collector-controller";
    controller_revision: "statefulset-controller,daemonset-controller";
    service_account: "serviceaccount-controller,serviceaccount-token-controller";
    secret: "serviceaccount-token-controller";
    config_map: "garbage-collector-controller";
    persistent_volume: "persistentvolume-binder-controller,persistentvolume-protection-controller,volume-provisioner";
    replication_controller: "replicationcontroller-controller";
    limit_range: "replicaset-controller";
    priority_class: "kube-scheduler";
}

/// Maximum number of pods that one step of a controller creates.
const STEP: i64 = 500;
/// Quota of pods: more than one step.
const MAX_HUGE_PODS: i64 = STEP + 20;

/// Creates a workload of two billion pods, and returns the number of pods after each step.
async fn steps(api_version: &str, kind: &str, controllers: &str, spec: Value, count: &str) -> Vec<i64> {
    let (cluster, panics, _running) = watched_cluster(controllers);
    let client = cluster.admin();
    begin(&client).await;
    limit(&client, usize::try_from(MAX_HUGE_PODS).unwrap()).await;
    let api = api_of(&client, api_version, kind).await;
    let huge = object(api_version, kind, "huge", json!({"spec": spec}));
    let began = api.create(&PostParams::default(), &huge).await.unwrap().metadata.resource_version.unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(*panics.lock().unwrap(), [""; 0], "{kind}");
    let changes = api.watch(&WatchParams::default().timeout(1), &began).await.unwrap();
    let count = |event: WatchEvent<DynamicObject>| match event {
        WatchEvent::Modified(object) => object.data["status"][count].as_i64(),
        _ => None,
    };
    changes.map_ok(count).try_filter_map(async |count| Ok(count)).try_collect().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_billion_pods_are_created_in_steps() {
    let replicated = json!({"selector": selector(), "template": template(), "replicas": i32::MAX});
    let mut set = replicated.clone();
    (set["serviceName"], set["podManagementPolicy"]) = ("s".into(), "Parallel".into());
    let mut job = job_spec();
    (job["parallelism"], job["completions"]) = (i32::MAX.into(), i32::MAX.into());
    for (api_version, kind, controllers, spec, count) in [
        ("apps/v1", "ReplicaSet", "replicaset-controller", replicated.clone(), "replicas"),
        ("apps/v1", "StatefulSet", "statefulset-controller", set, "replicas"),
        ("batch/v1", "Job", "job-controller", job, "active"),
    ] {
        let steps = steps(api_version, kind, controllers, spec, count).await;
        let grown = steps.iter().scan(0, |before, now| Some(now - std::mem::replace(before, *now)));
        assert!(grown.max() <= Some(STEP) && steps.iter().max() > Some(&STEP), "{kind}: {steps:?}");
    }
    // The replica set of a deployment creates the pods.
    let controllers = "deployment-controller,replicaset-controller";
    let steps = steps("apps/v1", "Deployment", controllers, replicated, "replicas").await;
    assert!((STEP..=MAX_HUGE_PODS).contains(steps.iter().max().unwrap()), "Deployment: {steps:?}");
}

#[tokio::test(start_paused = true)]
async fn job_of_two_billion_indexes_runs_the_remaining_ones() {
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
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let found = pods.list(&ListParams::default()).await.unwrap();
    let index = |pod: &Pod| {
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
