//! Pod failure and success policies of jobs.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy> and
//! <https://kubernetes.io/docs/concepts/workloads/controllers/job/#success-policy>.

use super::indexes::Indexes;
use crate::workload::pods::{is_deleting, phase};
use k8s_openapi::api::batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

/// Returns true if pods are replaced only after they have terminated.
pub(super) fn replaces_failed_only(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// Returns true if a pod has failed. Pods that are being deleted count as failed, since they may never report their
/// end.
pub(super) fn has_failed(spec: &JobSpec, pod: &Pod) -> bool {
    let is_lost = !replaces_failed_only(spec) && is_deleting(pod) && phase(pod) != "Succeeded";
    phase(pod) == "Failed" || is_lost
}

/// Finds the rule that matches a pod, with its index and a description of the match.
fn rule<'a>(spec: &'a JobSpec, pod: &Pod) -> Option<(usize, &'a PodFailurePolicyRule, String)> {
    let rules = spec.pod_failure_policy.as_ref()?.rules.iter().enumerate();
    let place = || format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let status = pod.status.as_ref()?;
    rules.into_iter().find_map(|(number, rule)| {
        if let Some(codes) = &rule.on_exit_codes {
            let containers = [&status.container_statuses, &status.init_container_statuses];
            let mut containers = containers.into_iter().flat_map(|statuses| statuses.iter().flatten());
            let (container, code) = containers.find_map(|container| exit(container, codes))?;
            let what = format!("Container {container} for pod {} failed with exit code {code}", place());
            return Some((number, rule, what));
        }
        let patterns = rule.on_pod_conditions.as_ref()?;
        let meets = |kind: &str, status: &str| {
            patterns
                .iter()
                .any(|pattern| pattern.type_ == kind && pattern.status.as_deref().unwrap_or("True") == status)
        };
        let mut conditions = status.conditions.iter().flatten();
        let condition = conditions.find(|condition| meets(&condition.type_, &condition.status))?;
        Some((number, rule, format!("Pod {} has condition {}", place(), condition.type_)))
    })
}

/// Returns the name and the exit code of a container that a requirement is about.
fn exit<'a>(container: &'a ContainerStatus, codes: &PodFailurePolicyOnExitCodesRequirement) -> Option<(&'a str, i32)> {
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    let is_named = codes.container_name.as_ref().is_none_or(|name| *name == container.name);
    let is_listed = codes.values.contains(&code);
    let matches = match &*codes.operator {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    };
    (is_named && code != 0 && matches).then_some((&container.name, code))
}

fn action<'a>(spec: &'a JobSpec, pod: &Pod) -> Option<&'a str> {
    rule(spec, pod).map(|(_, rule, _)| &*rule.action)
}

/// Returns true if the failure of a pod counts.
pub(super) fn counts(spec: &JobSpec, pod: &Pod) -> bool {
    action(spec, pod) != Some("Ignore")
}

/// Returns true if the failure of a pod makes its index fail, given its number of earlier failures.
pub(super) fn fails_index(spec: &JobSpec, pod: &Pod, failures: i32) -> bool {
    has_failed(spec, pod)
        && match action(spec, pod) {
            Some("FailIndex") => true,
            Some("Ignore") => false,
            _ => spec.backoff_limit_per_index.is_some_and(|limit| failures >= limit),
        }
}

/// Returns the reason if the failure of a pod makes the job fail.
pub(super) fn fails_job(spec: &JobSpec, pods: &[Pod]) -> Option<String> {
    pods.iter().filter(|pod| has_failed(spec, pod)).find_map(|pod| {
        let (number, rule, what) = rule(spec, pod)?;
        (rule.action == "FailJob").then(|| format!("{what} matching {} rule at index {number}", rule.action))
    })
}

/// Returns the reason if a job has succeeded by its success policy.
pub(super) fn has_succeeded(spec: &JobSpec, succeeded: &Indexes) -> Option<String> {
    let rules = &spec.success_policy.as_ref().filter(|_| !succeeded.is_empty())?.rules;
    let enough = |count: Option<i32>, of: i32| count.is_some_and(|count| of >= count);
    let holds = rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(indexes) => {
            let indexes = Indexes::parse(indexes, spec.completions.unwrap_or(i32::MAX));
            let matching = indexes.common(succeeded);
            matching == indexes.len() || enough(rule.succeeded_count, matching)
        }
        None => enough(rule.succeeded_count, succeeded.len()),
    });
    holds.map(|number| format!("Matched rules at index {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(code: i32, condition: &str) -> Pod {
        let state = json!({"terminated": {"exitCode": code}});
        let container =
            json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        let conditions = json!([{"type": condition, "status": "True"}]);
        let status = json!({"phase": "Failed", "containerStatuses": [container], "conditions": conditions});
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "status": status})).unwrap()
    }

    fn spec(rules: Value, success: Value) -> JobSpec {
        let template = json!({"spec": {"containers": []}});
        serde_json::from_value(json!({"completions": 5, "backoffLimitPerIndex": 1, "template": template,
            "podFailurePolicy": {"rules": rules}, "successPolicy": {"rules": success}}))
        .unwrap()
    }

    #[test]
    fn first_matching_rule_decides() {
        let codes = |values: &[i32]| json!({"operator": "In", "values": values});
        let rules = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailIndex", "onExitCodes": codes(&[42])},
            {"action": "FailJob", "onExitCodes": codes(&[7])},
            {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [0]}},
        ]);
        let spec = spec(rules, json!([]));
        assert!(!counts(&spec, &pod(7, "DisruptionTarget")) && counts(&spec, &pod(7, "Ready")));
        assert!(fails_index(&spec, &pod(42, "Ready"), 0));
        assert!(!fails_index(&spec, &pod(1, "Ready"), 0) && fails_index(&spec, &pod(1, "Ready"), 1));
        assert_eq!(fails_job(&spec, &[pod(1, "Ready"), pod(7, "DisruptionTarget")]), None);
        let why = "Container c for pod n/p failed with exit code 7 matching FailJob rule at index 2";
        assert_eq!(fails_job(&spec, &[pod(7, "Ready")]).as_deref(), Some(why));
    }

    #[test]
    fn success_policy_needs_some_indexes() {
        let check = |rules: Value, succeeded: &[i32], expect: Option<&str>| {
            let found = has_succeeded(&spec(json!([]), rules), &succeeded.iter().copied().collect());
            assert_eq!(found.as_deref(), expect, "{succeeded:?}");
        };
        check(json!([{"succeededCount": 2}]), &[1], None);
        check(json!([{"succeededCount": 2}]), &[1, 4], Some("Matched rules at index 0"));
        check(json!([{"succeededCount": 4}, {"succeededIndexes": "0,2-3"}]), &[0, 2], None);
        check(
            json!([{"succeededCount": 4}, {"succeededIndexes": "0,2-3"}]),
            &[0, 2, 3],
            Some("Matched rules at index 1"),
        );
        check(json!([{"succeededIndexes": "0,2-3", "succeededCount": 1}]), &[3], Some("Matched rules at index 0"));
    }
}
