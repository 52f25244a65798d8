//! What the pods of a job have come to.

use super::indexes;
use super::tracking::is_tracked;
use crate::controllers::pods::{self, is_active, is_deleting, phase};
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::collections::BTreeSet;

pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The first wait after a pod failed; it doubles with each further one.
const BACKOFF: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

pub(super) fn index(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok()
}

fn replaces_failed_only(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// The counts of a job, those included that its status does not tell yet.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// The indexes that have succeeded, of an indexed job.
    pub(super) completed: BTreeSet<i32>,
    /// The pods that are to be counted.
    pub(super) uncounted: UncountedTerminatedPods,
}

impl Counts {
    /// Counts. With `is_ending`, pods that are being deleted have failed, whatever becomes of them.
    pub(super) fn of(job: &Job, spec: &JobSpec, pods: &[Pod], is_ending: bool) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let mut uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let completions = spec.completions.unwrap_or(i32::MAX);
        let mut completed = indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), completions);
        let (succeeded, failed) =
            (uncounted.succeeded.get_or_insert_default().clone(), uncounted.failed.get_or_insert_default().clone());
        for pod in pods.iter().filter(|pod| is_tracked(pod)) {
            let uid = pod.uid().unwrap_or_default();
            if succeeded.contains(&uid) || failed.contains(&uid) {
                continue;
            }
            match phase(pod) {
                "Succeeded" if is_indexed(spec) => {
                    let index = index(pod).filter(|index| *index < completions);
                    // A second pod of one index counts for nothing.
                    if index.is_some_and(|index| completed.insert(index)) {
                        uncounted.succeeded.get_or_insert_default().push(uid);
                    }
                }
                "Succeeded" => uncounted.succeeded.get_or_insert_default().push(uid),
                "Failed" => uncounted.failed.get_or_insert_default().push(uid),
                _ if is_deleting(pod) && (is_ending || !replaces_failed_only(spec)) => {
                    uncounted.failed.get_or_insert_default().push(uid);
                }
                _ => {}
            }
        }
        let len = |pods: &Option<Vec<String>>| i32::try_from(pods.as_ref().map_or(0, Vec::len)).unwrap_or(i32::MAX);
        let succeeded = match is_indexed(spec) {
            true => i32::try_from(completed.len()).unwrap_or(i32::MAX),
            false => status.succeeded.unwrap_or(0) + len(&uncounted.succeeded),
        };
        Self { succeeded, failed: status.failed.unwrap_or(0) + len(&uncounted.failed), completed, uncounted }
    }

    pub(super) fn lists(&self, pod: &Pod) -> bool {
        let lists =
            |pods: &Option<Vec<String>>| pods.iter().flatten().any(|uid| Some(uid) == pod.metadata.uid.as_ref());
        lists(&self.uncounted.succeeded) || lists(&self.uncounted.failed)
    }

    pub(super) fn has_uncounted(&self) -> bool {
        [&self.uncounted.succeeded, &self.uncounted.failed].iter().any(|pods| pods.iter().flatten().next().is_some())
    }

    /// Writes into a status which pods are to be counted.
    pub(super) fn list(&self, status: &mut JobStatus) {
        let some = |pods: &Option<Vec<String>>| pods.clone().filter(|pods| !pods.is_empty());
        let (succeeded, failed) = (some(&self.uncounted.succeeded), some(&self.uncounted.failed));
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods { succeeded, failed });
    }

    /// Writes the counts into a status, once the pods have lost their finalizer.
    pub(super) fn settle(&self, status: &mut JobStatus) {
        let some = |count: i32| (count > 0).then_some(count);
        (status.succeeded, status.failed) = (some(self.succeeded), some(self.failed));
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods::default());
        let completed = indexes::print(&self.completed);
        status.completed_indexes = (!completed.is_empty()).then_some(completed);
    }
}

/// Returns how long a job has to wait for its next pod: the longer, the more pods failed since the last one succeeded.
pub(super) fn backoff(pods: &[Pod], now: Timestamp) -> Option<SignedDuration> {
    let ended =
        |wanted: &'static str| pods.iter().filter(move |pod| phase(pod) == wanted).map(move |pod| end(pod, now));
    let success = ended("Succeeded").max();
    let failures: Vec<Timestamp> =
        ended("Failed").filter(|time| success.is_none_or(|success| *time > success)).collect();
    let last = failures.iter().max()?;
    let doublings = u32::try_from(failures.len() - 1).unwrap_or(u32::MAX).min(6);
    let wait = (BACKOFF * (1 << doublings)).min(LONGEST_BACKOFF) - now.duration_since(*last);
    (wait > SignedDuration::ZERO).then_some(wait)
}

/// Returns when a pod ended, as well as can be told.
fn end(pod: &Pod, now: Timestamp) -> Timestamp {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
    let finished =
        containers.filter_map(|container| container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let unready = conditions.filter(|condition| condition.type_ == "Ready" && condition.status == "False");
    let unready = unready.filter_map(|condition| condition.last_transition_time.as_ref()).next();
    let meta = &pod.metadata;
    let time = finished.max().or(unready).or(meta.deletion_timestamp.as_ref()).or(meta.creation_timestamp.as_ref());
    time.map_or(now, |time| time.0.min(now))
}

/// Counts the pods that run, are ready, and are on their way out.
pub(super) fn running(pods: &[Pod]) -> (i32, i32, i32) {
    let count =
        |test: &dyn Fn(&Pod) -> bool| i32::try_from(pods.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX);
    (count(&is_active), count(&|pod| is_active(pod) && pods::is_ready(pod)), count(&pods::is_terminating))
}

/// Returns how many pods should run.
pub(super) fn wanted(spec: &JobSpec, counts: &Counts, active: i32) -> i32 {
    let parallelism = spec.parallelism.unwrap_or(1);
    match spec.completions {
        _ if spec.suspend == Some(true) => 0,
        None if counts.succeeded > 0 => active.min(parallelism),
        None => parallelism,
        Some(completions) => (completions - counts.succeeded).clamp(0, parallelism),
    }
}

/// Returns how many of the pods on their way out keep their places.
pub(super) fn held(spec: &JobSpec, terminating: i32) -> i32 {
    if replaces_failed_only(spec) { terminating } else { 0 }
}
