//! Phase and conditions of a pod, derived from the states of its containers.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase>.

use super::containers::{ended, has_begun, has_begun_main, restarts};
use crate::workload::resources::is_sidecar;
use crate::workload::time;
use flyball_core::time::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodSpec, PodStatus};
use std::collections::BTreeMap;

/// Sets phase and conditions; `has_stopped` is set if no container will be started again.
pub(super) fn conclude(pod: &Pod, status: &mut PodStatus, has_stopped: bool, now: Timestamp) {
    let Some(spec) = &pod.spec else { return };
    let overdue = status.reason.as_deref() == Some("DeadlineExceeded");
    let phase = if has_stopped && overdue { "Failed" } else { phase(spec, status, has_stopped) };
    status.phase = Some(phase.into());
    status.observed_generation = pod.metadata.generation;
    let conditions = conditions(pod, spec, status, phase);
    let known = status.conditions.get_or_insert_default();
    for (type_, holds, reason, message) in conditions {
        let holds = if holds { "True" } else { "False" };
        let before = known.iter_mut().find(|condition| condition.type_ == type_);
        let changed = before.as_ref().filter(|before| before.status == holds);
        let condition = PodCondition {
            type_: type_.into(),
            status: holds.into(),
            reason: reason.map(Into::into),
            message,
            last_transition_time: changed.and_then(|before| before.last_transition_time.clone()).or(Some(time(now))),
            observed_generation: pod.metadata.generation,
            ..PodCondition::default()
        };
        match before {
            // The condition of the scheduler takes precedence.
            Some(before) if type_ == "PodScheduled" && before.status == "True" => {}
            Some(before) => *before = condition,
            None => known.push(condition),
        }
    }
}

fn phase(spec: &PodSpec, status: &PodStatus, has_stopped: bool) -> &'static str {
    let statuses: BTreeMap<&str, &ContainerStatus> = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten())
        .map(|status| (status.name.as_str(), status))
        .collect();
    let end = |status: &ContainerStatus| {
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        ended(status).or(last).map(|end| end.exit_code)
    };
    let runs = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
    let mut is_pending = false;
    for container in spec.init_containers.iter().flatten() {
        let Some(status) = statuses.get(container.name.as_str()) else { continue };
        match ended(status) {
            Some(end) if end.exit_code != 0 && !restarts(spec, container, end.exit_code) => return "Failed",
            _ if is_sidecar(container) => is_pending |= end(status).is_none() && status.started != Some(true),
            _ => is_pending |= ended(status).is_none_or(|end| end.exit_code != 0),
        }
    }
    let (mut running, mut failed, mut restarting, mut waiting) = (0, 0, 0, 0);
    for container in &spec.containers {
        let Some(status) = statuses.get(container.name.as_str()) else { continue };
        match end(status) {
            _ if runs(status) => running += 1,
            None => waiting += 1,
            Some(code) => {
                failed += usize::from(code != 0);
                restarting += usize::from(restarts(spec, container, code) && !has_stopped);
            }
        }
    }
    if has_stopped && running == 0 {
        return if failed + waiting > 0 || is_pending { "Failed" } else { "Succeeded" };
    }
    if is_pending || waiting > 0 {
        "Pending"
    } else if running + restarting > 0 {
        "Running"
    } else if failed > 0 {
        "Failed"
    } else {
        "Succeeded"
    }
}

type Condition = (&'static str, bool, Option<&'static str>, Option<String>);

fn conditions(pod: &Pod, spec: &PodSpec, status: &PodStatus, phase: &str) -> Vec<Condition> {
    let names = |names: Vec<&str>| format!("[{}]", names.join(" "));
    let of = |all: &Option<Vec<ContainerStatus>>, name: &str| {
        all.iter().flatten().find(|status| status.name == name).cloned()
    };
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let is_ready = |all: &Option<Vec<ContainerStatus>>, name: &str| of(all, name).is_some_and(|status| status.ready);
    let mut unready: Vec<&str> = sidecars
        .map(|container| container.name.as_str())
        .filter(|name| !is_ready(&status.init_container_statuses, name))
        .collect();
    let main = spec.containers.iter().map(|container| container.name.as_str());
    unready.extend(main.filter(|name| !is_ready(&status.container_statuses, name)));
    let incomplete = spec.init_containers.iter().flatten().filter(|container| {
        !of(&status.init_container_statuses, &container.name).is_some_and(|status| match is_sidecar(container) {
            true => status.started == Some(true),
            false => status.ready,
        })
    });
    let incomplete: Vec<&str> = incomplete.map(|container| container.name.as_str()).collect();
    let (containers_ready, ready) = match phase {
        "Succeeded" => ((false, Some("PodCompleted"), None), (false, Some("PodCompleted"), None)),
        "Failed" => ((false, Some("PodFailed"), None), (false, Some("PodFailed"), None)),
        _ if !unready.is_empty() => {
            let text = Some(format!("containers with unready status: {}", names(unready)));
            ((false, Some("ContainersNotReady"), text.clone()), (false, Some("ContainersNotReady"), text))
        }
        _ => {
            let closed = closed_gates(spec, status);
            let reason = (!closed.is_empty()).then_some("ReadinessGatesNotReady");
            let text = reason.map(|_| closed.join(", "));
            ((true, None, None), (closed.is_empty(), reason, text))
        }
    };
    let initialized = match phase {
        "Succeeded" => (true, Some("PodCompleted"), None),
        _ if has_begun_main(status) || incomplete.is_empty() => (true, None, None),
        _ => (
            false,
            Some("ContainersNotInitialized"),
            Some(format!("containers with incomplete status: {}", names(incomplete))),
        ),
    };
    let has_sandbox = !matches!(phase, "Succeeded" | "Failed") && has_begun(status);
    let scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    vec![
        ("PodReadyToStartContainers", has_sandbox, None, None),
        ("Initialized", initialized.0, initialized.1, initialized.2),
        ("Ready", ready.0, ready.1, ready.2),
        ("ContainersReady", containers_ready.0, containers_ready.1, containers_ready.2),
        ("PodScheduled", scheduled, None, None),
    ]
}

/// Returns the readiness gates that are not met.
fn closed_gates(spec: &PodSpec, status: &PodStatus) -> Vec<String> {
    let mut closed = Vec::new();
    for gate in spec.readiness_gates.iter().flatten() {
        let name = &gate.condition_type;
        match status.conditions.iter().flatten().find(|condition| condition.type_ == *name) {
            None => closed.push(format!("corresponding condition of pod readiness gate {name:?} does not exist.")),
            Some(known) if known.status != "True" => {
                closed.push(format!("the status of pod readiness gate {name:?} is not \"True\", but {}", known.status));
            }
            Some(_) => {}
        }
    }
    closed
}
