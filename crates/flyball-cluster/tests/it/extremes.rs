//! The largest, smallest and oddest values that the schemas of built-in kinds accept harm no controller.

use crate::{cluster_of, eventually, namespace};
use flyball_cluster::{Cluster, Controllers, Nodes, Options, simulated_clock};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

/// What a field takes.
#[derive(Clone, Copy)]
enum Takes {
    Int32,
    Int64,
    /// A number or a share.
    Portion,
    Time,
    MicroTime,
    Quantity,
    /// The indexes of a job.
    Indexes,
}

use Takes::*;

impl Takes {
    fn extremes(self) -> Vec<Value> {
        let ints = [i64::from(i32::MIN), -1, 0, 1, i64::from(i32::MAX)];
        match self {
            Int32 => ints.map(Value::from).into(),
            Int64 => ints.into_iter().chain([i64::MIN, i64::MAX]).map(Value::from).collect(),
            Portion => {
                let shares = ["0%", "100%", "101%", "2147483647%", "99999999999999999999%", "-1%"];
                ints.into_iter().map(Value::from).chain(shares.map(Value::from)).collect()
            }
            Time => ["0001-01-01T00:00:00Z", "9999-12-30T22:00:00Z", "9999-12-31T23:59:59Z"].map(Value::from).into(),
            MicroTime => {
                let times =
                    ["0001-01-01T00:00:00.000000Z", "9999-12-30T22:00:00.000000Z", "9999-12-31T23:59:59.999999Z"];
                times.map(Value::from).into()
            }
            Quantity => {
                let texts = ["0", "1n", "-1", "9223372036854775807", "-9223372036854775808", "9999999999999999999999E"];
                texts.into_iter().chain(["1e-9", "8Ei", "1E18"]).map(Value::from).collect()
            }
            Indexes => {
                ["0-2147483646", "2147483647", "0-99999999999", "5-1", "-1", "0,2,4-2147483646"].map(Value::from).into()
            }
        }
    }
}

/// A kind, an object of it without name, and the fields to set in it: those of its status on the status alone.
struct Case(&'static str, &'static str, Value, &'static [(&'static str, Takes)]);

fn cases() -> Vec<Case> {
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod});
    let selector = json!({"matchLabels": {"app": "a"}});
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    let mut indexed = job.clone();
    indexed["completionMode"] = "Indexed".into();
    indexed["completions"] = 3.into();
    indexed["backoffLimitPerIndex"] = 1.into();
    let mut parallel = json!({"selector": selector, "template": template, "serviceName": "s", "replicas": 2});
    parallel["podManagementPolicy"] = "Parallel".into();
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let scaled =
        json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "target"}, "maxReplicas": 3});
    vec![
        Case(
            "apps/v1",
            "Deployment",
            json!({"spec": {"selector": selector, "template": template, "replicas": 2}}),
            &[
                ("/spec/replicas", Int32),
                ("/spec/minReadySeconds", Int32),
                ("/spec/revisionHistoryLimit", Int32),
                ("/spec/progressDeadlineSeconds", Int32),
                ("/spec/strategy/rollingUpdate/maxSurge", Portion),
                ("/spec/strategy/rollingUpdate/maxUnavailable", Portion),
                ("/spec/template/spec/terminationGracePeriodSeconds", Int64),
                ("/status/replicas", Int32),
                ("/status/updatedReplicas", Int32),
                ("/status/availableReplicas", Int32),
                ("/status/unavailableReplicas", Int32),
                ("/status/collisionCount", Int32),
                ("/status/observedGeneration", Int64),
            ],
        ),
        Case(
            "apps/v1",
            "ReplicaSet",
            json!({"spec": {"selector": selector, "template": template}}),
            &[
                ("/spec/replicas", Int32),
                ("/spec/minReadySeconds", Int32),
                ("/status/replicas", Int32),
                ("/status/availableReplicas", Int32),
                ("/status/observedGeneration", Int64),
            ],
        ),
        Case(
            "apps/v1",
            "StatefulSet",
            json!({"spec": parallel}),
            &[
                ("/spec/replicas", Int32),
                ("/spec/minReadySeconds", Int32),
                ("/spec/revisionHistoryLimit", Int32),
                ("/spec/ordinals/start", Int32),
                ("/spec/updateStrategy/rollingUpdate/partition", Int32),
                ("/spec/updateStrategy/rollingUpdate/maxUnavailable", Portion),
                ("/status/replicas", Int32),
                ("/status/collisionCount", Int32),
                ("/status/observedGeneration", Int64),
            ],
        ),
        Case(
            "apps/v1",
            "DaemonSet",
            json!({"spec": {"selector": selector, "template": template}}),
            &[
                ("/spec/minReadySeconds", Int32),
                ("/spec/revisionHistoryLimit", Int32),
                ("/spec/updateStrategy/rollingUpdate/maxSurge", Portion),
                ("/spec/updateStrategy/rollingUpdate/maxUnavailable", Portion),
                ("/status/desiredNumberScheduled", Int32),
                ("/status/collisionCount", Int32),
            ],
        ),
        Case(
            "batch/v1",
            "Job",
            json!({"spec": job}),
            &[
                ("/spec/parallelism", Int32),
                ("/spec/completions", Int32),
                ("/spec/backoffLimit", Int32),
                ("/spec/activeDeadlineSeconds", Int64),
                ("/spec/ttlSecondsAfterFinished", Int32),
                ("/status/startTime", Time),
                ("/status/active", Int32),
                ("/status/succeeded", Int32),
                ("/status/failed", Int32),
                ("/status/ready", Int32),
                ("/status/terminating", Int32),
                ("/status/completedIndexes", Indexes),
            ],
        ),
        Case(
            "batch/v1",
            "Job",
            json!({"spec": indexed}),
            &[
                ("/spec/completions", Int32),
                ("/spec/parallelism", Int32),
                ("/spec/maxFailedIndexes", Int32),
                ("/spec/backoffLimitPerIndex", Int32),
                ("/status/completedIndexes", Indexes),
                ("/status/failedIndexes", Indexes),
                ("/status/succeeded", Int32),
            ],
        ),
        Case(
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}}),
            &[
                ("/spec/startingDeadlineSeconds", Int64),
                ("/spec/successfulJobsHistoryLimit", Int32),
                ("/spec/failedJobsHistoryLimit", Int32),
                ("/status/lastScheduleTime", Time),
                ("/status/lastSuccessfulTime", Time),
            ],
        ),
        Case(
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"selector": selector}}),
            &[
                ("/spec/minAvailable", Portion),
                ("/spec/maxUnavailable", Portion),
                ("/status/disruptedPods/web", Time),
                ("/status/disruptionsAllowed", Int32),
                ("/status/observedGeneration", Int64),
            ],
        ),
        Case(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": scaled}),
            &[
                ("/spec/minReplicas", Int32),
                ("/spec/maxReplicas", Int32),
                ("/spec/metrics", Int32),
                ("/spec/behavior/scaleDown/stabilizationWindowSeconds", Int32),
                ("/spec/behavior/scaleUp/stabilizationWindowSeconds", Int32),
                ("/spec/behavior/scaleUp/tolerance", Quantity),
                ("/status/lastScaleTime", Time),
                ("/status/currentReplicas", Int32),
                ("/status/desiredReplicas", Int32),
            ],
        ),
        Case(
            "v1",
            "Node",
            json!({}),
            &[
                ("/status/capacity/cpu", Quantity),
                ("/status/allocatable/memory", Quantity),
                ("/status/allocatable/pods", Quantity),
                ("/status/conditions/0/lastHeartbeatTime", Time),
                ("/status/conditions/0/lastTransitionTime", Time),
                ("/spec/taints/0/timeAdded", Time),
            ],
        ),
        Case(
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"holderIdentity": "h"}}),
            &[
                ("/spec/leaseDurationSeconds", Int32),
                ("/spec/leaseTransitions", Int32),
                ("/spec/renewTime", MicroTime),
                ("/spec/acquireTime", MicroTime),
            ],
        ),
        Case(
            "v1",
            "Pod",
            json!({"metadata": {"labels": {"app": "a"}}, "spec": pod}),
            &[
                ("/spec/activeDeadlineSeconds", Int64),
                ("/spec/terminationGracePeriodSeconds", Int64),
                ("/spec/priority", Int32),
                ("/spec/containers/0/resources/requests/cpu", Quantity),
                ("/spec/containers/0/resources/limits/memory", Quantity),
                ("/spec/tolerations/0/tolerationSeconds", Int64),
                ("/spec/containers/0/readinessProbe/periodSeconds", Int32),
                ("/status/startTime", Time),
                ("/status/conditions/0/lastTransitionTime", Time),
                ("/status/containerStatuses/0/restartCount", Int32),
                ("/status/containerStatuses/0/state/terminated/finishedAt", Time),
                ("/status/containerStatuses/0/state/terminated/exitCode", Int32),
            ],
        ),
        Case(
            "v1",
            "Service",
            json!({"spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}),
            &[
                ("/spec/ports/0/port", Int32),
                ("/spec/ports/0/targetPort", Portion),
                ("/spec/ports/0/nodePort", Int32),
                ("/spec/sessionAffinityConfig/clientIP/timeoutSeconds", Int32),
                ("/spec/healthCheckNodePort", Int32),
            ],
        ),
        Case(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [], "ports": [{"port": 1}]}),
            &[("/ports/0/port", Int32)],
        ),
        Case(
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": claim}),
            &[
                ("/spec/resources/requests/storage", Quantity),
                ("/status/capacity/storage", Quantity),
                ("/status/conditions/0/lastTransitionTime", Time),
            ],
        ),
        Case("v1", "Namespace", json!({}), &[("/status/conditions/0/lastTransitionTime", Time)]),
        Case(
            "v1",
            "ResourceQuota",
            json!({"spec": {"hard": {"configmaps": "100"}}}),
            &[
                ("/spec/hard/requests.cpu", Quantity),
                ("/spec/hard/count~1deployments.apps", Quantity),
                ("/spec/hard/requests.storage", Quantity),
                ("/status/used/configmaps", Quantity),
                ("/status/hard/configmaps", Quantity),
            ],
        ),
        Case(
            "v1",
            "Event",
            json!({"involvedObject": {"namespace": "extremes"}, "reason": "R", "message": "m"}),
            &[
                ("/count", Int32),
                ("/firstTimestamp", Time),
                ("/lastTimestamp", Time),
                ("/eventTime", MicroTime),
                ("/series/count", Int32),
            ],
        ),
        Case(
            "apps/v1",
            "ControllerRevision",
            json!({"metadata": {"labels": {"app": "a"}}, "revision": 1, "data": {}}),
            &[("/revision", Int64)],
        ),
        Case("v1", "ServiceAccount", json!({}), &[("/metadata/generation", Int64)]),
        Case(
            "v1",
            "Secret",
            json!({"type": "kubernetes.io/service-account-token"}),
            &[("/metadata/generation", Int64)],
        ),
    ]
}

/// Returns an object with a field at a pointer, and all that has to be around it: `0` is the first item of a list.
fn with(object: &Value, pointer: &str, value: &Value) -> Value {
    let mut object = object.clone();
    let mut at = &mut object;
    for part in pointer.split('/').skip(1).map(|part| part.replace("~1", "/")) {
        at = match part.as_str() {
            "0" => {
                if !at.is_array() {
                    *at = json!([{}]);
                }
                &mut at[0]
            }
            name => &mut at[name],
        };
    }
    *at = value.clone();
    fill(&mut object);
    object
}

/// Adds what lists of conditions, taints, tolerations and container statuses cannot be without.
fn fill(object: &mut Value) {
    for (pointer, more) in [
        ("/status/conditions/0", json!({"type": "Ready", "status": "True", "reason": "R", "message": "m"})),
        ("/spec/taints/0", json!({"key": "k", "effect": "NoExecute"})),
        ("/spec/tolerations/0", json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})),
        ("/spec/containers/0/readinessProbe", json!({"httpGet": {"port": 1}})),
        ("/spec/sessionAffinityConfig", json!({})),
        ("/status/containerStatuses/0", json!({"name": "c", "image": "i", "imageID": "", "ready": false})),
        ("/status/containerStatuses/0/state/terminated", json!({"exitCode": 1})),
        ("/series", json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"})),
    ] {
        if let Some(fields) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            for (name, value) in more.as_object().unwrap() {
                fields.entry(name).or_insert_with(|| value.clone());
            }
        }
    }
    if let Some(statuses) = object.pointer_mut("/status/containerStatuses/0").and_then(Value::as_object_mut) {
        statuses.entry("restartCount").or_insert(json!(0));
    }
    if object.pointer("/spec/sessionAffinityConfig").is_some() {
        object["spec"]["sessionAffinity"] = "ClientIP".into();
    }
}

const NAMESPACE: &str = "extremes";

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

/// Writes an extreme, by making an object and by changing one; returns how many of these writes were accepted.
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

/// Makes a cluster whose controllers run, and the list of their panics so far.
fn watched_cluster() -> (Cluster, Arc<Mutex<Vec<String>>>, tokio::task::JoinHandle<()>) {
    let panics = Arc::<Mutex<Vec<String>>>::default();
    let told = panics.clone();
    let cluster = Cluster::new(Options::simulated(simulated_clock(), 1))
        .with_certificate("a certificate")
        .on_panic(move |place, text| told.lock().unwrap().push(format!("{place}: {text}")));
    let running = cluster.clone();
    let controllers = tokio::spawn(async move { running.run(&Controllers::all()).await });
    (cluster, panics, controllers)
}

#[tokio::test(start_paused = true)]
async fn no_extreme_value_makes_a_controller_panic() {
    let (cluster, panics, controllers) = watched_cluster();
    let client = cluster.admin();
    Nodes::new("node", 1).add_to(&client).await.unwrap();
    namespace(&client, NAMESPACE).await;
    // Two billion replicas are made step by step, but for this they would be made for a long time.
    let quota = json!({"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "20", "count/jobs.batch": "200"}}});
    let quotas = api_of(&client, "v1", "ResourceQuota").await;
    quotas.create(&PostParams::default(), &object("v1", "ResourceQuota", "pods", quota)).await.unwrap();
    for (number, case) in cases().iter().enumerate() {
        let Case(api_version, kind, _, fields) = case;
        let api = api_of(&client, api_version, kind).await;
        let (mut accepted, mut names) = (0, 0);
        for (pointer, takes) in *fields {
            for value in takes.extremes() {
                names += 1;
                accepted += write(&api, case, &format!("x{number}-{names}"), pointer, &value).await;
            }
            sleep(Duration::from_secs(2)).await;
        }
        // The objects themselves are valid: something of each kind has to get through.
        assert!(accepted > 0, "{kind}: none of {names} values is accepted");
        sleep(Duration::from_secs(90)).await;
        assert_eq!(*panics.lock().unwrap(), [""; 0], "{kind}");
        assert!(!controllers.is_finished(), "{kind}: the controllers have ended");
        // What is deleted is looked at once more.
        if *kind != "Namespace" {
            let own = ListParams::default();
            for found in api.list(&own).await.unwrap() {
                let name = found.metadata.name.unwrap_or_default();
                if name.starts_with(&format!("x{number}-")) {
                    let _ = api.delete(&name, &kube::api::DeleteParams::default()).await;
                }
            }
        }
    }
    sleep(Duration::from_secs(300)).await;
    assert_eq!(*panics.lock().unwrap(), [""; 0]);
    assert!(!controllers.is_finished(), "the controllers have ended");
}

#[tokio::test(start_paused = true)]
async fn a_set_of_two_billion_pods_grows_step_by_step() {
    let client = cluster_of(Options::simulated(simulated_clock(), 1)).admin();
    namespace(&client, NAMESPACE).await;
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"metadata": {"name": "s"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template,
        "serviceName": "s", "podManagementPolicy": "Parallel", "replicas": i32::MAX}});
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), NAMESPACE);
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    // The status is written at the end of a step.
    eventually("the end of a step", || async {
        sets.get("s").await.unwrap().status.is_some_and(|status| status.replicas >= 500)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_of_two_billion_indexes_runs_those_that_are_left() {
    let client = cluster_of(Options::simulated(simulated_clock(), 1)).admin();
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
