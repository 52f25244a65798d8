//! Readiness of objects: the rules of [kstatus](https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus),
//! and those of `kubectl rollout status` for workloads.

use serde_json::Value;

/// The kinds with rules of their own.
const BUILT_IN: [(&str, &str); 9] = [
    ("", "PersistentVolumeClaim"),
    ("", "Pod"),
    ("", "Service"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
];

/// Returns the reason why an object is not ready, `None` if it is ready.
///
/// Deployments, StatefulSets, DaemonSets and ReplicaSets are ready when their newest pods are available and no older
/// ones exist, pods when they are ready or succeeded, jobs when they are complete, claims when they are bound, load
/// balancers when they have an address, CRDs when they are established. Other objects, such as custom resources, are
/// ready unless their condition `Ready` or `Available` is not true. No object is ready while its condition
/// `Reconciling` or `Stalled` is true, or its status is of another generation.
pub(super) fn waits_for(group: &str, kind: &str, object: &Value) -> Option<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    if object["metadata"].get("deletionTimestamp").is_some() {
        return Some("being deleted".into());
    }
    let (generation, observed) = (object["metadata"]["generation"].as_i64(), status.get("observedGeneration"));
    if let (Some(generation), Some(observed)) = (generation, observed.and_then(Value::as_i64))
        && observed != generation
    {
        return Some(format!("observedGeneration is {observed}, not {generation}"));
    }
    for (reason, what) in [("Reconciling", "reconciling"), ("Stalled", "stalled")] {
        if let Some(found) = condition(status, reason).filter(|condition| condition["status"] == "True") {
            return Some(describe(what, found));
        }
    }
    let desired = spec.get("replicas").and_then(Value::as_i64).unwrap_or(1);
    // Kinds of other groups have the same names, such as the Service of Knative.
    let kind = if BUILT_IN.contains(&(group, kind)) { kind } else { "" };
    match kind {
        // These kinds set observedGeneration with their first status.
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" if observed.is_none() => Some("no status yet".into()),
        "Deployment" => failed(status, "Progressing", "False")
            .or_else(|| fewer(status, "updatedReplicas", desired, "updated"))
            .or_else(|| more(status, "replicas", number(status, "updatedReplicas")))
            .or_else(|| fewer(status, "availableReplicas", desired, "available")),
        "StatefulSet" => {
            let partition = number(&spec["updateStrategy"]["rollingUpdate"], "partition");
            let rolls = spec["updateStrategy"]["type"] != "OnDelete";
            let newest = if rolls { (desired - partition).max(0) } else { 0 };
            let is_new = status["updateRevision"] == status["currentRevision"];
            fewer(status, "replicas", desired, "made")
                .or_else(|| more(status, "replicas", desired))
                .or_else(|| fewer(status, "readyReplicas", desired, "ready"))
                .or_else(|| if is_new { None } else { fewer(status, "updatedReplicas", newest, "updated") })
        }
        "DaemonSet" => {
            let desired = number(status, "desiredNumberScheduled");
            let rolls = spec["updateStrategy"]["type"] != "OnDelete";
            fewer(status, "updatedNumberScheduled", if rolls { desired } else { 0 }, "updated")
                .or_else(|| fewer(status, "numberAvailable", desired, "available"))
        }
        "ReplicaSet" => {
            more(status, "replicas", desired).or_else(|| fewer(status, "availableReplicas", desired, "available"))
        }
        "Pod" if status["phase"] == "Succeeded" => None,
        "Pod" => unmet(status, "Ready", true),
        "Job" => failed(status, "Failed", "True").or_else(|| unmet(status, "Complete", true)),
        "PersistentVolumeClaim" if status["phase"] != "Bound" => Some("not bound".into()),
        "Service" if spec["type"] == "LoadBalancer" => {
            let addresses = status["loadBalancer"]["ingress"].as_array();
            addresses.is_none_or(Vec::is_empty).then(|| "no address".into())
        }
        "CustomResourceDefinition" => unmet(status, "Established", true),
        _ => unmet(status, "Ready", false).or_else(|| unmet(status, "Available", false)),
    }
}

fn number(of: &Value, field: &str) -> i64 {
    of[field].as_i64().unwrap_or_default()
}

fn fewer(status: &Value, field: &str, desired: i64, what: &str) -> Option<String> {
    let current = number(status, field);
    (current < desired).then(|| format!("{current} of {desired} replicas are {what}"))
}

fn more(status: &Value, field: &str, desired: i64) -> Option<String> {
    let surplus = number(status, field) - desired;
    (surplus > 0).then(|| format!("{surplus} surplus replicas still exist"))
}

fn condition<'s>(status: &'s Value, kind: &str) -> Option<&'s Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Returns the reason why a condition is not true; a missing one may be required or not.
fn unmet(status: &Value, kind: &str, needed: bool) -> Option<String> {
    match condition(status, kind) {
        Some(condition) if condition["status"] == "True" => None,
        Some(condition) => Some(describe(&format!("not {kind}"), condition)),
        None => needed.then(|| format!("not {kind}")),
    }
}

/// Returns the reason why an object has failed permanently.
fn failed(status: &Value, kind: &str, when: &str) -> Option<String> {
    condition(status, kind)
        .filter(|condition| condition["status"] == when)
        .map(|condition| describe("failed", condition))
}

fn describe(what: &str, condition: &Value) -> String {
    match ["message", "reason"].into_iter().find_map(|field| condition[field].as_str().filter(|text| !text.is_empty()))
    {
        Some(why) => format!("{what}: {why}"),
        None => what.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unready_objects_state_the_reason() {
        let conditions = |kind, status| json!({"conditions": [{"type": kind, "status": status, "reason": "R"}]});
        let rolled = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3});
        let with = |more: Value| {
            let mut status = rolled.clone();
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            status
        };
        let cases = [
            ("Deployment", json!({}), Some("no status yet")),
            ("Deployment", json!({"observedGeneration": 1}), Some("observedGeneration is 1, not 2")),
            ("Deployment", rolled.clone(), None),
            ("Deployment", with(json!({"updatedReplicas": 1})), Some("1 of 3 replicas are updated")),
            ("Deployment", with(json!({"replicas": 4})), Some("1 surplus replicas still exist")),
            ("Deployment", with(json!({"availableReplicas": 0})), Some("0 of 3 replicas are available")),
            ("Deployment", with(conditions("Progressing", "False")), Some("failed: R")),
            ("StatefulSet", with(json!({"readyReplicas": 2})), Some("2 of 3 replicas are ready")),
            (
                "StatefulSet",
                with(json!({"readyReplicas": 3, "updateRevision": "b", "updatedReplicas": 2})),
                Some("2 of 3 replicas are updated"),
            ),
            ("StatefulSet", with(json!({"readyReplicas": 3, "updateRevision": "b"})), None),
            (
                "DaemonSet",
                with(json!({"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1})),
                Some("1 of 2 replicas are available"),
            ),
            ("ReplicaSet", rolled.clone(), None),
            ("Pod", conditions("Ready", "False"), Some("not Ready: R")),
            ("Pod", json!({"phase": "Succeeded"}), None),
            ("Job", json!({}), Some("not Complete")),
            ("Job", conditions("Failed", "True"), Some("failed: R")),
            ("Job", conditions("Complete", "True"), None),
            ("PersistentVolumeClaim", json!({"phase": "Pending"}), Some("not bound")),
            ("ConfigMap", Value::Null, None),
            ("Widget", conditions("Ready", "Unknown"), Some("not Ready: R")),
            ("Widget", conditions("Other", "False"), None),
            ("Widget", json!({}), None),
            ("Widget", conditions("Ready", "True"), None),
            ("Widget", conditions("Ready", "False"), Some("not Ready: R")),
            ("Widget", conditions("Reconciling", "True"), Some("reconciling: R")),
            ("Widget", conditions("Reconciling", "False"), None),
            ("Widget", conditions("Stalled", "True"), Some("stalled: R")),
            ("Widget", json!({"observedGeneration": 1}), Some("observedGeneration is 1, not 2")),
            ("Widget", json!({"observedGeneration": 3}), Some("observedGeneration is 3, not 2")),
            ("Widget", json!({"observedGeneration": "2"}), None),
            ("ConfigMap", conditions("Stalled", "True"), Some("stalled: R")),
            ("Deployment", with(conditions("Reconciling", "True")), Some("reconciling: R")),
        ];
        for (kind, status, why) in cases {
            let object = json!({"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status});
            let group = BUILT_IN.iter().find(|(_, known)| *known == kind).map_or("", |(group, _)| group);
            assert_eq!(waits_for(group, kind, &object).as_deref(), why, "{kind} {status}");
        }
        // The fields of custom resources with the names of built-in kinds have no meaning.
        for (group, kind) in [("batch.volcano.sh", "Job"), ("serving.knative.dev", "Service"), ("example.com", "Pod")] {
            let object = json!({"spec": {"type": "LoadBalancer"}, "status": {"phase": "Failed"}});
            assert_eq!(waits_for(group, kind, &object), None, "{kind}");
            let object = json!({"status": conditions("Ready", "False")});
            assert_eq!(waits_for(group, kind, &object).as_deref(), Some("not Ready: R"), "{kind}");
        }
        let service = json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {}}});
        assert_eq!(waits_for("", "Service", &service).as_deref(), Some("no address"));
        let going = json!({"metadata": {"deletionTimestamp": "now"}});
        assert_eq!(waits_for("", "ConfigMap", &going).as_deref(), Some("being deleted"));
    }
}
