//! Syncs a pod as a kubelet does: containers start, become ready, exit and restart. All state is in the status of the
//! pod.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/>.

use super::containers::{ended, has_begun, restarts};
use super::environment::ReferencedObjects;
use super::program::{Exit, KILLED, Launch, Program, ProgramState, RunningContainer, StartResult, TERMINATED};
use super::status;
use crate::workload::pods::is_deleting;
use crate::workload::resources::is_sidecar;
use crate::workload::time;
use flyball::Backoff;
use flyball_core::time::{SignedDuration, Timestamp, saturating_add};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodIP, PodSpec, PodStatus,
};
use kube::ResourceExt;
use std::time::Duration;

/// Back-off before the second restart and later ones; the first one is immediate.
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_secs(10), max_delay: Duration::from_mins(5) };
/// Run time after which the back-off starts over.
const BACKOFF_RESET: SignedDuration = SignedDuration::from_mins(10);
/// Interval of syncs while an object is missing.
const RESYNC_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// Input of one sync.
pub(super) struct PodSync<'a> {
    pub(super) pod: &'a Pod,
    pub(super) program: &'a dyn Program,
    pub(super) referenced: &'a ReferencedObjects,
    pub(super) host_ip: &'a str,
    pub(super) pod_ip: String,
    pub(super) now: Timestamp,
}

/// Result of one sync.
#[derive(Debug, Default)]
pub(super) struct PodSyncResult {
    pub(super) status: PodStatus,
    /// Time of the next sync.
    pub(super) due: Option<Timestamp>,
    pub(super) events: Vec<PodEvent>,
    /// An object that the pod refers to does not exist.
    pub(super) is_missing_object: bool,
    /// The pod is being deleted and no container runs.
    pub(super) has_stopped: bool,
}

/// An event about the pod.
#[derive(Debug, PartialEq)]
pub(super) struct PodEvent {
    pub(super) is_warning: bool,
    pub(super) reason: &'static str,
    pub(super) text: String,
}

impl PodSyncResult {
    fn normal(&mut self, reason: &'static str, text: impl Into<String>) {
        self.events.push(PodEvent { is_warning: false, reason, text: text.into() });
    }

    fn warning(&mut self, reason: &'static str, text: impl Into<String>) {
        self.events.push(PodEvent { is_warning: true, reason, text: text.into() });
    }

    fn requeue_at(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.into()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn terminated(exit: &Exit, started: Option<Timestamp>, id: Option<String>) -> ContainerState {
    let reason = if exit.code == 0 { "Completed" } else { "Error" };
    let terminated = ContainerStateTerminated {
        exit_code: exit.code,
        reason: Some(reason.into()),
        started_at: started.map(time),
        finished_at: Some(time(exit.at)),
        container_id: id,
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

/// Returns the last termination of a waiting or terminated container.
fn last_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    ended(status).or_else(|| status.last_state.as_ref()?.terminated.as_ref())
}

/// Returns the delay before a container that ran for `ran` is started again, after this many restarts.
fn back_off(restarts: i32, ran: SignedDuration) -> Duration {
    match u32::try_from(restarts) {
        Ok(restarts) if restarts > 0 && ran < BACKOFF_RESET => BACKOFF.after(restarts),
        _ => Duration::ZERO,
    }
}

impl PodSync<'_> {
    /// Syncs the pod.
    pub(super) fn sync_pod(&self) -> PodSyncResult {
        let mut result =
            PodSyncResult { status: self.pod.status.clone().unwrap_or_default(), ..PodSyncResult::default() };
        let Some(spec) = &self.pod.spec else { return result };
        let stopping = is_deleting(self.pod) || self.is_overdue(spec, &mut result);
        self.admit(spec, &mut result);
        let before = result.status.clone();
        let known = |all: &Option<Vec<ContainerStatus>>, name: &str| {
            all.iter().flatten().find(|status| status.name == name).cloned()
        };
        let unmounted = self.referenced.unmounted_volume_reason(self.pod).filter(|_| !has_begun(&before) && !stopping);
        if let Some(why) = &unmounted {
            result.warning("FailedMount", why.clone());
            result.is_missing_object = true;
            result.requeue_at(self.now + RESYNC_INTERVAL);
        }
        let mut may_start = unmounted.is_none() && !stopping;
        let mut since = before.start_time.as_ref().map_or(self.now, |time| time.0);
        let mut init = Vec::new();
        for container in spec.init_containers.iter().flatten() {
            let status = known(&before.init_container_statuses, &container.name);
            let status = status.unwrap_or_else(|| initial_status(container, "PodInitializing"));
            let status = self.sync_container(spec, container, status, since, may_start, stopping, &mut result);
            let is_done = match is_sidecar(container) {
                true => status.started == Some(true),
                false => ended(&status).is_some_and(|end| end.exit_code == 0),
            };
            if let Some(end) = ended(&status).and_then(|end| end.finished_at.as_ref()) {
                since = since.max(end.0);
            }
            may_start &= is_done;
            init.push(status);
        }
        let first = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        let mut main = Vec::new();
        for container in &spec.containers {
            let status =
                known(&before.container_statuses, &container.name).unwrap_or_else(|| initial_status(container, first));
            main.push(self.sync_container(spec, container, status, since, may_start, stopping, &mut result));
        }
        // Sidecars stop with the other containers.
        let is_over = spec
            .containers
            .iter()
            .zip(&main)
            .all(|(container, status)| ended(status).is_some_and(|end| !restarts(spec, container, end.exit_code)));
        if is_over && !stopping {
            for (container, status) in spec.init_containers.iter().flatten().zip(&mut init) {
                if is_sidecar(container) && ended(status).is_none() {
                    *status = terminated_status(status.clone(), &Exit { code: 0, at: self.now });
                }
            }
        }
        let runs = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
        let has_stopped = stopping && !init.iter().chain(&main).any(runs);
        result.has_stopped = has_stopped && is_deleting(self.pod);
        result.status.init_container_statuses = (!init.is_empty()).then_some(init);
        result.status.container_statuses = Some(main);
        status::conclude(self.pod, &mut result.status, has_stopped, self.now);
        if has_stopped {
            result.due = None;
        }
        result
    }

    /// Records the start time of the pod on its node, and its addresses.
    fn admit(&self, spec: &PodSpec, result: &mut PodSyncResult) {
        let status = &mut result.status;
        if status.start_time.is_none() {
            status.start_time = Some(time(self.now));
        }
        status.host_ip = Some(self.host_ip.to_owned());
        status.host_ips = Some(vec![HostIP { ip: self.host_ip.to_owned() }]);
        if status.pod_ip.is_none() {
            let address = if spec.host_network == Some(true) { self.host_ip.to_owned() } else { self.pod_ip.clone() };
            status.pod_ips = Some(vec![PodIP { ip: address.clone() }]);
            status.pod_ip = Some(address);
        }
    }

    /// Returns true if the pod has exceeded its `activeDeadlineSeconds`.
    fn is_overdue(&self, spec: &PodSpec, result: &mut PodSyncResult) -> bool {
        let Some(seconds) = spec.active_deadline_seconds else { return false };
        let since = result.status.start_time.as_ref().map_or(self.now, |time| time.0);
        let due = since.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(since);
        if due > self.now {
            result.requeue_at(due);
            return false;
        }
        result.status.reason = Some("DeadlineExceeded".into());
        result.status.message = Some("Pod was active on the node longer than the specified deadline".into());
        true
    }

    /// Advances a container as far as possible at this time.
    #[expect(clippy::too_many_arguments, reason = "the inputs of one container, with a single caller")]
    fn sync_container(
        &self,
        spec: &PodSpec,
        container: &Container,
        mut status: ContainerStatus,
        since: Timestamp,
        may_start: bool,
        stopping: bool,
        result: &mut PodSyncResult,
    ) -> ContainerStatus {
        loop {
            let state = status.state.clone().unwrap_or_default();
            if let Some(running) = &state.running {
                if !stopping && container.image.as_deref().unwrap_or_default() != status.image {
                    let text = format!("Container {} definition changed, will be restarted", container.name);
                    result.normal("Killing", text);
                    status = terminated_status(status, &Exit { code: TERMINATED, at: self.now });
                    continue;
                }
                let id = status.container_id.clone().unwrap_or_default();
                let started = running.started_at.as_ref().map_or(self.now, |time| time.0);
                let attempt = status.restart_count;
                let running = RunningContainer { pod: self.pod, container, attempt, id: &id, started };
                match self.observe(&running, spec, stopping) {
                    ProgramState::Exited(exit) => {
                        if stopping {
                            result.normal("Killing", format!("Stopping container {}", container.name));
                        }
                        status = terminated_status(status, &exit);
                    }
                    ProgramState::Running { is_ready, until } => {
                        status.ready = is_ready;
                        status.started = Some(is_ready || container.startup_probe.is_none());
                        until.into_iter().for_each(|until| result.requeue_at(until));
                        return status;
                    }
                }
                continue;
            }
            if stopping {
                if ended(&status).is_none() {
                    status = unknown_status(status);
                }
                return status;
            }
            let end = last_end(&status).cloned();
            if let Some(end) = &end {
                if ended(&status).is_some() && !restarts(spec, container, end.exit_code) {
                    status.ready = end.exit_code == 0
                        && spec.init_containers.iter().flatten().any(|init| init.name == container.name);
                    return status;
                }
                if let Some(due) = self.back_off(container, &mut status, end, result) {
                    result.requeue_at(due);
                    return status;
                }
            } else if !may_start {
                return status;
            }
            if !self.start(container, &mut status, since, end.is_some(), result) {
                return status;
            }
        }
    }

    fn observe(&self, running: &RunningContainer<'_>, spec: &PodSpec, stopping: bool) -> ProgramState {
        if !stopping {
            return self.program.observe(running, self.now);
        }
        let grace =
            self.pod.metadata.deletion_grace_period_seconds.or(spec.termination_grace_period_seconds).unwrap_or(30);
        let grace = SignedDuration::from_secs(grace.max(0));
        let began = self.pod.metadata.deletion_timestamp.as_ref().map_or(self.now, |at| saturating_add(at.0, -grace));
        match self.program.stop(running, began.max(running.started), grace, self.now) {
            // The grace period is over: the container is killed.
            ProgramState::Running { .. } if saturating_add(began, grace) <= self.now => {
                ProgramState::Exited(Exit { code: KILLED, at: self.now })
            }
            observed => observed,
        }
    }

    /// Delays the restart of a terminated container; returns the time of the restart, if it is in the future.
    fn back_off(
        &self,
        container: &Container,
        status: &mut ContainerStatus,
        end: &ContainerStateTerminated,
        result: &mut PodSyncResult,
    ) -> Option<Timestamp> {
        // A container with a new image has not failed yet.
        if ended(status).is_some() && container.image.as_deref().unwrap_or_default() != status.image {
            return None;
        }
        let finished = end.finished_at.as_ref().map_or(self.now, |time| time.0);
        let ran = end.started_at.as_ref().map_or(SignedDuration::ZERO, |time| finished.duration_since(time.0));
        let wait = back_off(status.restart_count, ran);
        let due = saturating_add(finished, SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX));
        if due <= self.now {
            return None;
        }
        let pod = format!(
            "{}_{}({})",
            self.pod.name_any(),
            self.pod.namespace().unwrap_or_default(),
            self.pod.uid().unwrap_or_default()
        );
        if ended(status).is_some() {
            result.warning("BackOff", format!("Back-off restarting failed container {} in pod {pod}", container.name));
            let span = match (wait.as_secs() / 60, wait.as_secs() % 60) {
                (0, seconds) => format!("{seconds}s"),
                (minutes, seconds) => format!("{minutes}m{seconds}s"),
            };
            let text = format!("back-off {span} restarting failed container={} pod={pod}", container.name);
            status.last_state = status.state.take();
            status.state = Some(waiting("CrashLoopBackOff", Some(text)));
        }
        Some(due)
    }

    /// Starts a container; returns true if it runs now.
    fn start(
        &self,
        container: &Container,
        status: &mut ContainerStatus,
        since: Timestamp,
        again: bool,
        result: &mut PodSyncResult,
    ) -> bool {
        let env = match self.referenced.environment(self.pod, container) {
            Ok(env) => env,
            Err(error) => {
                result.warning("Failed", format!("Error: {error}"));
                result.is_missing_object = true;
                result.requeue_at(self.now + RESYNC_INTERVAL);
                status.state = Some(waiting(error.reason(), Some(error.to_string())));
                return false;
            }
        };
        let attempt = status.restart_count + i32::from(again);
        let launch = Launch { pod: self.pod, container, attempt, env: &env, since, now: self.now };
        match self.program.start(&launch) {
            Ok(StartResult::Started(id)) => {
                let image = container.image.clone().unwrap_or_default();
                if !again {
                    result.normal("Pulled", format!("Container image {image:?} already present on machine"));
                }
                result.normal("Created", "Container created");
                result.normal("Started", "Container started");
                if ended(status).is_some() {
                    status.last_state = status.state.take();
                }
                let running = ContainerStateRunning { started_at: Some(time(self.now)) };
                status.state = Some(ContainerState { running: Some(running), ..ContainerState::default() });
                status.restart_count = attempt;
                status.image = image.clone();
                status.image_id = format!("{image}@simulated");
                status.container_id = Some(id);
                true
            }
            Ok(StartResult::NotYet(until)) => {
                result.requeue_at(until);
                false
            }
            Err(error) => {
                result.warning("Failed", format!("Error: {}", error.message));
                result.requeue_at(self.now + RESYNC_INTERVAL);
                status.state = Some(waiting(&error.reason, Some(error.message)));
                false
            }
        }
    }
}

/// Creates the initial status of a container.
fn initial_status(container: &Container, reason: &str) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        last_state: Some(ContainerState::default()),
        started: Some(false),
        state: Some(waiting(reason, None)),
        ..ContainerStatus::default()
    }
}

fn terminated_status(mut status: ContainerStatus, exit: &Exit) -> ContainerStatus {
    let running = status.state.as_ref().and_then(|state| state.running.as_ref());
    let started = running.and_then(|running| running.started_at.as_ref()).map(|time| time.0);
    status.state = Some(terminated(exit, started, status.container_id.clone()));
    (status.ready, status.started) = (false, Some(false));
    status
}

/// Status of a container that does not exist when its pod is stopped.
fn unknown_status(mut status: ContainerStatus) -> ContainerStatus {
    let terminated = ContainerStateTerminated {
        exit_code: KILLED,
        reason: Some("ContainerStatusUnknown".into()),
        message: Some("The container could not be located when the pod was terminated".into()),
        ..ContainerStateTerminated::default()
    };
    status.state = Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() });
    (status.ready, status.started) = (false, Some(false));
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::program::SimulatedProgram;
    use flyball_core::Rng;
    use serde_json::json;

    #[test]
    fn extreme_grace_periods_end() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (grace, at) in [
            (i64::MAX, "9999-12-30T22:00:00Z"),
            (400_000_000_000, "9999-12-30T22:00:00Z"),
            (i64::MIN, "2026-01-01T00:00:00Z"),
            (i64::MAX, "2026-01-01T00:00:00Z"),
        ] {
            let running = json!({"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": "simulated://7fffffffffffffff", "state": {"running": {"startedAt": "2025-12-31T00:00:00Z"}}});
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": "u", "deletionTimestamp": at, "deletionGracePeriodSeconds": grace},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
                "status": {"phase": "Running", "containerStatuses": [running]},
            }))
            .unwrap();
            let program = SimulatedProgram::new(Default::default(), &Rng::from_seed(1));
            let referenced = ReferencedObjects::default();
            let sync = PodSync {
                pod: &pod,
                program: &program,
                referenced: &referenced,
                host_ip: "1.1.1.1",
                pod_ip: "2.2.2.2".into(),
                now,
            };
            assert!(sync.sync_pod().has_stopped, "{grace}");
        }
    }
}
