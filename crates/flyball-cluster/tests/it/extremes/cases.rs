//! The fields of built-in kinds with numbers, times and quantities, and their extreme values.

use serde_json::{Value, json};

/// The type of a field.
#[derive(Clone, Copy)]
pub(super) enum Takes {
    Int32,
    Int64,
    /// A number or a percentage.
    Portion,
    Time,
    MicroTime,
    Quantity,
    /// The indexes of a job.
    Indexes,
}

use Takes::*;

impl Takes {
    pub(super) fn extremes(self) -> Vec<Value> {
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

/// A kind, an object of it without name, and the fields to set: status fields through the status subresource.
pub(super) struct Case(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) Value,
    pub(super) &'static [(&'static str, Takes)],
);

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

pub(super) fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": pod_spec()})
}

pub(super) fn selector() -> Value {
    json!({"matchLabels": {"app": "a"}})
}

pub(super) fn job_spec() -> Value {
    json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}})
}

pub(super) fn deployment() -> Case {
    Case(
        "apps/v1",
        "Deployment",
        json!({"spec": {"selector": selector(), "template": template(), "replicas": 2}}),
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
    )
}

pub(super) fn replica_set() -> Case {
    Case(
        "apps/v1",
        "ReplicaSet",
        json!({"spec": {"selector": selector(), "template": template()}}),
        &[
            ("/spec/replicas", Int32),
            ("/spec/minReadySeconds", Int32),
            ("/status/replicas", Int32),
            ("/status/availableReplicas", Int32),
            ("/status/observedGeneration", Int64),
        ],
    )
}

pub(super) fn stateful_set() -> Case {
    Case(
        "apps/v1",
        "StatefulSet",
        json!({"spec": {"selector": selector(), "template": template(), "serviceName": "s", "replicas": 2,
            "podManagementPolicy": "Parallel"}}),
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
    )
}

pub(super) fn daemon_set() -> Case {
    Case(
        "apps/v1",
        "DaemonSet",
        json!({"spec": {"selector": selector(), "template": template()}}),
        &[
            ("/spec/minReadySeconds", Int32),
            ("/spec/revisionHistoryLimit", Int32),
            ("/spec/updateStrategy/rollingUpdate/maxSurge", Portion),
            ("/spec/updateStrategy/rollingUpdate/maxUnavailable", Portion),
            ("/status/desiredNumberScheduled", Int32),
            ("/status/collisionCount", Int32),
        ],
    )
}

pub(super) fn job() -> Case {
    Case(
        "batch/v1",
        "Job",
        json!({"spec": job_spec()}),
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
    )
}

pub(super) fn indexed_job() -> Case {
    Case(
        "batch/v1",
        "Job",
        json!({"spec": {"template": job_spec()["template"], "completionMode": "Indexed", "completions": 3,
            "backoffLimitPerIndex": 1}}),
        &[
            ("/spec/completions", Int32),
            ("/spec/parallelism", Int32),
            ("/spec/maxFailedIndexes", Int32),
            ("/spec/backoffLimitPerIndex", Int32),
            ("/status/completedIndexes", Indexes),
            ("/status/failedIndexes", Indexes),
            ("/status/succeeded", Int32),
        ],
    )
}

pub(super) fn cron_job() -> Case {
    Case(
        "batch/v1",
        "CronJob",
        json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job_spec()}}}),
        &[
            ("/spec/startingDeadlineSeconds", Int64),
            ("/spec/successfulJobsHistoryLimit", Int32),
            ("/spec/failedJobsHistoryLimit", Int32),
            ("/status/lastScheduleTime", Time),
            ("/status/lastSuccessfulTime", Time),
        ],
    )
}

pub(super) fn pod_disruption_budget() -> Case {
    Case(
        "policy/v1",
        "PodDisruptionBudget",
        json!({"spec": {"selector": selector()}}),
        &[
            ("/spec/minAvailable", Portion),
            ("/spec/maxUnavailable", Portion),
            ("/status/disruptedPods/web", Time),
            ("/status/disruptionsAllowed", Int32),
            ("/status/observedGeneration", Int64),
        ],
    )
}

pub(super) fn horizontal_pod_autoscaler() -> Case {
    Case(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "target"},
            "maxReplicas": 3}}),
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
    )
}

pub(super) fn node() -> Case {
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
    )
}

pub(super) fn lease() -> Case {
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
    )
}

pub(super) fn pod() -> Case {
    Case(
        "v1",
        "Pod",
        json!({"metadata": {"labels": {"app": "a"}}, "spec": pod_spec()}),
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
    )
}

pub(super) fn service() -> Case {
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
    )
}

pub(super) fn endpoint_slice() -> Case {
    Case(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        json!({"addressType": "IPv4", "endpoints": [], "ports": [{"port": 1}]}),
        &[("/ports/0/port", Int32)],
    )
}

pub(super) fn persistent_volume_claim() -> Case {
    Case(
        "v1",
        "PersistentVolumeClaim",
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        &[
            ("/spec/resources/requests/storage", Quantity),
            ("/status/capacity/storage", Quantity),
            ("/status/conditions/0/lastTransitionTime", Time),
        ],
    )
}

pub(super) fn namespace() -> Case {
    Case("v1", "Namespace", json!({}), &[("/status/conditions/0/lastTransitionTime", Time)])
}

pub(super) fn resource_quota() -> Case {
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
    )
}

pub(super) fn event() -> Case {
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
    )
}

pub(super) fn controller_revision() -> Case {
    Case(
        "apps/v1",
        "ControllerRevision",
        json!({"metadata": {"labels": {"app": "a"}}, "revision": 1, "data": {}}),
        &[("/revision", Int64)],
    )
}

pub(super) fn service_account() -> Case {
    Case("v1", "ServiceAccount", json!({}), &[("/metadata/generation", Int64)])
}

pub(super) fn secret() -> Case {
    Case("v1", "Secret", json!({"type": "kubernetes.io/service-account-token"}), &[("/metadata/generation", Int64)])
}

pub(super) fn config_map() -> Case {
    Case(
        "v1",
        "ConfigMap",
        json!({}),
        &[("/metadata/generation", Int64), ("/metadata/deletionGracePeriodSeconds", Int64)],
    )
}

pub(super) fn persistent_volume() -> Case {
    Case(
        "v1",
        "PersistentVolume",
        json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}}}),
        &[("/spec/capacity/storage", Quantity), ("/status/lastPhaseTransitionTime", Time)],
    )
}

pub(super) fn replication_controller() -> Case {
    Case(
        "v1",
        "ReplicationController",
        json!({"spec": {"selector": {"app": "a"}, "template": template()}}),
        &[
            ("/spec/replicas", Int32),
            ("/spec/minReadySeconds", Int32),
            ("/status/replicas", Int32),
            ("/status/observedGeneration", Int64),
        ],
    )
}

pub(super) fn limit_range() -> Case {
    let limits = json!([{"type": "Container", "max": {"cpu": "4"}}]);
    Case(
        "v1",
        "LimitRange",
        json!({"spec": {"limits": limits}}),
        &[("/spec/limits/0/max/memory", Quantity), ("/spec/limits/0/default/cpu", Quantity)],
    )
}

pub(super) fn priority_class() -> Case {
    Case("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1}), &[("/value", Int32)])
}

/// Returns an object with a field at a pointer, and its required ancestors and siblings: `0` is the first item of a
/// list.
pub(super) fn with(object: &Value, pointer: &str, value: &Value) -> Value {
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

/// Adds the required fields of conditions, taints, tolerations and container statuses.
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
