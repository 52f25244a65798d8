//! Status of a rollout.

use super::rolling::total;
use super::{Rollout, replicas};
use crate::workload::owners;
use crate::workload::time;
use flyball::Result;
use flyball_core::time::SignedDuration;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetStatus};
use kube::ResourceExt;
use std::time::Duration;

/// The progress deadline that means no deadline.
const NO_DEADLINE: i32 = i32::MAX;

/// Returns a condition of a deployment.
pub(super) fn find<'a>(deployment: &'a Deployment, kind: &str) -> Option<&'a DeploymentCondition> {
    deployment.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// Sets a condition, unless it exists with the same status and reason.
fn set(conditions: &mut Vec<DeploymentCondition>, mut condition: DeploymentCondition) {
    if let Some(at) = conditions.iter().position(|known| known.type_ == condition.type_) {
        let known = &conditions[at];
        if known.status == condition.status && known.reason == condition.reason {
            return;
        }
        if known.status == condition.status {
            condition.last_transition_time = known.last_transition_time.clone();
        }
        conditions.remove(at);
    }
    conditions.push(condition);
}

impl Rollout<'_> {
    fn condition(&self, kind: &str, status: &str, reason: &str, message: String) -> DeploymentCondition {
        let now = Some(time(self.cx.now()));
        DeploymentCondition {
            type_: kind.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: now.clone(),
            last_update_time: now,
        }
    }

    /// Sets the condition `Progressing`, if the deployment has a progress deadline.
    pub(super) fn progress(&mut self, status: &str, reason: &str, message: String) {
        if self.deadline().is_some() {
            let condition = self.condition("Progressing", status, reason, message);
            set(self.deployment.status.get_or_insert_default().conditions.get_or_insert_default(), condition);
        }
    }

    fn deadline(&self) -> Option<SignedDuration> {
        let seconds = self.spec().progress_deadline_seconds.filter(|seconds| *seconds != NO_DEADLINE);
        seconds.map(|seconds| SignedDuration::from_secs(seconds.into()))
    }

    /// Sets the condition for a paused or resumed rollout.
    pub(super) fn note_pause(&mut self) {
        let reason = find(&self.deployment, "Progressing").and_then(|condition| condition.reason.as_deref());
        let (is_paused, was_paused) = (self.spec().paused == Some(true), reason == Some("DeploymentPaused"));
        match (is_paused, was_paused) {
            _ if reason == Some("ProgressDeadlineExceeded") => {}
            (true, false) => self.progress("Unknown", "DeploymentPaused", "Deployment is paused".into()),
            (false, true) => self.progress("Unknown", "DeploymentResumed", "Deployment is resumed".into()),
            _ => {}
        }
    }

    /// Counts the pods.
    pub(super) fn count(&mut self) {
        let sum = |of: fn(&ReplicaSetStatus) -> i32, sets: &mut dyn Iterator<Item = &ReplicaSet>| -> i32 {
            total(sets.filter_map(|set| set.status.as_ref()).map(of))
        };
        let some = |count: i32| (count > 0).then_some(count);
        let all = total(self.all().map(replicas));
        let available = sum(|status| status.available_replicas.unwrap_or(0), &mut self.all());
        let old = self.deployment.status.clone().unwrap_or_default();
        let mut status = DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: some(sum(|status| status.replicas, &mut self.all())),
            updated_replicas: some(sum(|status| status.replicas, &mut self.new.iter())),
            ready_replicas: some(sum(|status| status.ready_replicas.unwrap_or(0), &mut self.all())),
            available_replicas: some(available),
            unavailable_replicas: some(all.saturating_sub(available)),
            terminating_replicas: Some(sum(|status| status.terminating_replicas.unwrap_or(0), &mut self.all())),
            collision_count: old.collision_count,
            conditions: old.conditions,
        };
        let available = if available >= self.desired().saturating_sub(self.most_unavailable()) {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        let available = self.condition("Available", available.0, available.1, available.2.to_owned());
        set(status.conditions.get_or_insert_default(), available);
        self.deployment.status = Some(status);
    }

    /// Counts the pods, and reports the progress of the rollout.
    pub(super) fn sync_rollout_status(&mut self) {
        self.count();
        let before = self.original.status.clone().unwrap_or_default();
        let now = self.deployment.status.clone().unwrap_or_default();
        let current = find(self.original, "Progressing").cloned();
        let reason = current.as_ref().and_then(|condition| condition.reason.as_deref());
        if self.deadline().is_none() {
            self.conditions().retain(|condition| condition.type_ != "Progressing");
        } else if now.replicas != now.updated_replicas || reason != Some("NewReplicaSetAvailable") {
            let what = match &self.new {
                Some(set) => format!("ReplicaSet \"{}\"", set.name_any()),
                None => format!("Deployment \"{}\"", self.deployment.name_any()),
            };
            if self.is_complete() {
                self.progress("True", "NewReplicaSetAvailable", format!("{what} has successfully progressed."));
            } else if has_progressed(&before, &now) {
                let mut condition =
                    self.condition("Progressing", "True", "ReplicaSetUpdated", format!("{what} is progressing."));
                if let Some(current) = current.filter(|current| current.status == "True") {
                    condition.last_transition_time = current.last_transition_time;
                }
                // Its time is updated, even if nothing else changes.
                self.conditions().retain(|condition| condition.type_ != "Progressing");
                self.conditions().push(condition);
            } else if self.exceeds_progress_deadline() {
                self.progress("False", "ProgressDeadlineExceeded", format!("{what} has timed out progressing."));
            }
        }
        let failure = self.all().filter_map(|set| set.status.as_ref()?.conditions.as_ref());
        let failure = failure.flatten().find(|condition| condition.type_ == "ReplicaFailure").cloned();
        match failure {
            Some(failure) => {
                let (reason, message) = (failure.reason.unwrap_or_default(), failure.message.unwrap_or_default());
                let mut condition = self.condition("ReplicaFailure", &failure.status, &reason, message);
                condition.last_transition_time = failure.last_transition_time;
                set(self.conditions(), condition);
            }
            None => self.conditions().retain(|condition| condition.type_ != "ReplicaFailure"),
        }
    }

    fn conditions(&mut self) -> &mut Vec<DeploymentCondition> {
        self.deployment.status.get_or_insert_default().conditions.get_or_insert_default()
    }

    /// Returns true if all pods are updated and available, and no others exist.
    pub(super) fn is_complete(&self) -> bool {
        let Some(status) = &self.deployment.status else { return false };
        let is_desired = |count: Option<i32>| count.unwrap_or(0) == self.desired();
        is_desired(status.updated_replicas)
            && is_desired(status.replicas)
            && is_desired(status.available_replicas)
            && status.observed_generation >= self.deployment.metadata.generation
    }

    fn exceeds_progress_deadline(&self) -> bool {
        let Some(condition) = find(&self.deployment, "Progressing") else { return false };
        match condition.reason.as_deref() {
            Some("NewReplicaSetAvailable") => false,
            Some("ProgressDeadlineExceeded") => true,
            _ => self.time_to_progress_deadline().is_some_and(|wait| wait <= SignedDuration::ZERO),
        }
    }

    fn time_to_progress_deadline(&self) -> Option<SignedDuration> {
        let updated = find(&self.deployment, "Progressing")?.last_update_time.as_ref()?;
        Some(self.deadline()? - self.cx.now().duration_since(updated.0))
    }

    /// Returns the delay before the check of the progress deadline.
    pub(super) fn wait(&self) -> Option<Duration> {
        let reason = find(&self.deployment, "Progressing")?.reason.as_deref();
        if self.is_complete() || matches!(reason, Some("NewReplicaSetAvailable" | "ProgressDeadlineExceeded")) {
            return None;
        }
        let wait = self.time_to_progress_deadline()?.max(SignedDuration::ZERO) + SignedDuration::from_secs(1);
        Some(wait.unsigned_abs())
    }

    /// Writes the status if it changed since the deployment was read.
    pub(super) async fn write_status(&mut self) -> Result<()> {
        if self.deployment != *self.original
            && let Some(written) = owners::tolerate(self.cx.replace_status(&self.deployment).await)?
        {
            self.deployment = written;
        }
        Ok(())
    }
}

fn has_progressed(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or(0);
    let old = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(now.updated_replicas) > count(before.updated_replicas)
        || old(now) < old(before)
        || count(now.ready_replicas) > count(before.ready_replicas)
        || count(now.available_replicas) > count(before.available_replicas)
}
