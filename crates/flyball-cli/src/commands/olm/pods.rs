//! The reason why the pods of an operator do not start, on a cluster or on its copy.

use super::unread::Unread;
use crate::cluster::rollout::pod_problem;
use crate::error::{Result, ResultExt};
use flyball_lifecycle::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase};
use flyball_lifecycle::diagnosis::{Cause, Severity};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use std::fmt;

/// Number of restarts from which a container that exits again and again is a problem. A first exit is common, such as
/// before a certificate exists.
const MIN_RESTARTS: i32 = 2;

/// A problem of the pods of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) struct PodProblem {
    deployment: String,
    why: String,
}

impl fmt::Display for PodProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deployment {}: {}", self.deployment, self.why)
    }
}

/// Returns the problem of the pods of an operator as a cause, unless the operator runs.
pub(super) async fn cause(client: &Client, csv: &ClusterServiceVersion, unread: &mut Unread) -> Result<Option<Cause>> {
    if !waits_for_pods(csv) {
        return Ok(None);
    }
    let namespace = csv.namespace().unwrap_or_default();
    let part = format!("the pods in namespace {namespace}: why an operator does not start is unknown");
    let found = unread.or_none(&part, problem(client, csv).await)?.flatten();
    Ok(found.map(|PodProblem { deployment, why }| Cause {
        severity: Severity::Blocking,
        object: format!("Deployment {namespace}/{deployment}"),
        field: String::new(),
        message: why,
        remedy: format!("see its pods and logs: flyball logs deployment/{deployment} -n {namespace}"),
    }))
}

/// Returns true if an operator is not ready because of its Deployments.
pub(in crate::commands) fn waits_for_pods(csv: &ClusterServiceVersion) -> bool {
    let reason = csv.status.reason.as_str();
    match csv.status.phase {
        Phase::InstallReady | Phase::Installing => true,
        Phase::Pending => reason == "NeedsReinstall",
        Phase::Failed => matches!(reason, "InstallCheckFailed" | "ComponentUnhealthy"),
        _ => false,
    }
}

/// Returns the first problem of the pods of an operator: they cannot be created or scheduled, or their containers do
/// not start or do not stay.
pub(in crate::commands) async fn problem(client: &Client, csv: &ClusterServiceVersion) -> Result<Option<PodProblem>> {
    let namespace = csv.namespace().unwrap_or_default();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    for planned in &csv.spec.install.spec.deployments {
        let name = &planned.name;
        let found = deployments.get_opt(name).await.context(format!("cannot read Deployment {name}"))?;
        let Some(deployment) = found else { continue };
        if let Some(problem) = refused(&deployment) {
            return Ok(Some(PodProblem { deployment: name.clone(), why: problem }));
        }
        if let Some(problem) = of_pods(client, &namespace, &deployment).await? {
            return Ok(Some(PodProblem { deployment: name.clone(), why: problem }));
        }
    }
    Ok(None)
}

/// Returns the reason why the pods of a Deployment cannot be created.
fn refused(deployment: &Deployment) -> Option<String> {
    let conditions = deployment.status.as_ref()?.conditions.iter().flatten();
    let mut failed = conditions.filter(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True");
    failed.next().and_then(|condition| condition.message.clone())
}

/// Returns a problem of a pod of a Deployment, with the newest warning about it.
async fn of_pods(client: &Client, namespace: &str, deployment: &Deployment) -> Result<Option<String>> {
    let owned_by = |owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference], uid: &str| {
        owners.iter().any(|owner| owner.uid == uid)
    };
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
    let sets = sets.list(&ListParams::default()).await.context("cannot list the ReplicaSets")?;
    let uid = deployment.uid().unwrap_or_default();
    let sets: Vec<String> =
        sets.iter().filter(|set| owned_by(set.owner_references(), &uid)).filter_map(ResourceExt::uid).collect();
    let labels = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
    let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default().labels(&selector.join(","))).await.context("cannot list the pods")?;
    for pod in pods.iter().filter(|pod| sets.iter().any(|set| owned_by(pod.owner_references(), set))) {
        let Some(problem) = crash_loop(pod).or_else(|| pod_problem(pod).filter(|_| !restarts_first(pod))) else {
            continue;
        };
        match warning(client, namespace, pod).await? {
            // The condition of an unscheduled pod has the text of the event.
            Some(warning) if problem.contains(&warning) => return Ok(Some(problem)),
            Some(warning) => return Ok(Some(format!("{problem}; {warning}"))),
            None if is_starting(pod) => {}
            None => return Ok(Some(problem)),
        }
    }
    Ok(None)
}

/// Returns the containers of a pod that are not ready, with the exit code of each one.
fn exits(pod: &Pod) -> impl Iterator<Item = (&ContainerStatus, i32)> {
    let status = pod.status.iter();
    let containers =
        status.flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses).flatten());
    containers.filter(|container| !container.ready).filter_map(|container| {
        let now = container.state.as_ref().and_then(|state| state.terminated.as_ref());
        let last = || container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        Some((container, now.or_else(last)?.exit_code))
    })
}

/// Returns the container of a pod that exits again and again.
fn crash_loop(pod: &Pod) -> Option<String> {
    let (container, code) =
        exits(pod).find(|(container, code)| *code != 0 && container.restart_count >= MIN_RESTARTS)?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let restarts = container.restart_count;
    Some(format!("container {} of pod {name} exits with code {code}, {restarts} restarts", container.name))
}

/// Returns true if a container of a pod has exited, but not often enough for a problem.
fn restarts_first(pod: &Pod) -> bool {
    let states = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut waiting = states.filter_map(|of| Some((of, of.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?)));
    waiting.any(|(container, reason)| reason == "CrashLoopBackOff" && container.restart_count < MIN_RESTARTS)
}

/// Returns true if the containers of a pod are being created: this is no problem as long as there is no warning.
fn is_starting(pod: &Pod) -> bool {
    let states = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut waiting = states.filter_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    waiting.all(|reason| matches!(reason, "ContainerCreating" | "PodInitializing"))
        && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

/// Returns the newest warning about a pod, such as that a Secret to mount does not exist.
async fn warning(client: &Client, namespace: &str, pod: &Pod) -> Result<Option<String>> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let events = events.list(&ListParams::default()).await.context("cannot list the events")?;
    let is_its = |event: &&Event| event.type_.as_deref() == Some("Warning") && event.involved_object.uid == pod.uid();
    let newest = events.items.iter().filter(is_its).max_by_key(|event| event.metadata.creation_timestamp.clone());
    Ok(newest.and_then(|event| event.message.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "memo-1"}, "spec": {"nodeName": "a", "containers": []},
            "status": {"containerStatuses": [status]},
        }))
        .unwrap()
    }

    #[test]
    fn container_that_exits_repeatedly_is_a_problem() {
        let status = |restarts: i32, state: Value, code: i32, ready: bool| {
            pod(json!({"name": "manager", "restartCount": restarts, "ready": ready, "image": "a", "imageID": "",
                "state": state, "lastState": {"terminated": {"exitCode": code}}}))
        };
        let back_off = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let found = crash_loop(&status(3, back_off.clone(), 2, false)).unwrap();
        assert_eq!(found, "container manager of pod memo-1 exits with code 2, 3 restarts");
        // Between two exits, it runs.
        assert!(crash_loop(&status(3, json!({"running": {}}), 2, false)).is_some());
        assert_eq!(crash_loop(&status(3, json!({"running": {}}), 2, true)), None, "it is ready again");
        assert_eq!(crash_loop(&status(1, back_off.clone(), 2, false)), None);
        assert!(restarts_first(&status(1, back_off.clone(), 2, false)));
        assert!(!restarts_first(&status(3, back_off, 2, false)));
    }

    #[test]
    fn only_versions_that_wait_for_deployments_have_pods() {
        let check = |phase: &str, reason: &str, expected: bool| {
            let csv: ClusterServiceVersion = serde_json::from_value(json!({
                "metadata": {"name": "memo.v1"}, "status": {"phase": phase, "reason": reason},
            }))
            .unwrap();
            assert_eq!(waits_for_pods(&csv), expected, "{phase} {reason}");
        };
        check("Installing", "InstallWaiting", true);
        check("Failed", "InstallCheckFailed", true);
        check("Failed", "InterOperatorGroupOwnerConflict", false);
        check("Succeeded", "InstallSucceeded", false);
    }
}
