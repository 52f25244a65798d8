//! Counts of the pods of a job.

use super::indexes::Indexes;
use super::pod_facts::{self, index};
use super::policies::{self, replaces_failed_only};
use super::retries;
use super::tracking::is_tracked;
use crate::workload::pods::{self, is_active, is_deleting, phase};
use flyball_core::time::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// Maximum number of pods that are in a status to be counted, as in kube-controller-manager: the others follow once
/// these are counted, so that the status stays small.
const MAX_UNCOUNTED: usize = 500;

/// The counts of a job, including those that are not in its status yet.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// The indexes that have succeeded, of an indexed job.
    pub(super) completed: Indexes,
    /// The indexes that have failed, for a job with a backoff limit per index.
    pub(super) lost: Option<Indexes>,
    /// The pods that failed and are kept until their index has another one.
    pub(super) waiting: BTreeMap<i32, Pod>,
    /// The pods that are to be counted.
    pub(super) uncounted: UncountedTerminatedPods,
    /// The UIDs of the pods that are to be counted.
    listed: BTreeSet<String>,
    /// The pods that ended and are not counted yet, since there are too many.
    postponed: BTreeSet<String>,
    /// The failed pods that do not count.
    ignored: BTreeSet<String>,
}

impl Counts {
    /// Counts. With `is_ending`, all pods that are being deleted count as failed.
    pub(super) fn of(job: &Job, spec: &JobSpec, pods: &[Pod], is_ending: bool) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let mut uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let completions = spec.completions.unwrap_or(i32::MAX);
        let mut completed = Indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), completions);
        let uids = [&uncounted.succeeded, &uncounted.failed].into_iter().flatten().flatten();
        let mut listed: BTreeSet<String> = uids.cloned().collect();
        let is_listed =
            |pod: &Pod, listed: &BTreeSet<String>| pod.metadata.uid.as_ref().is_some_and(|uid| listed.contains(uid));
        let mut postponed = BTreeSet::new();
        let of_job = |pod: &Pod| index(pod).filter(|index| (0..completions).contains(index));
        for pod in pods.iter().filter(|pod| is_tracked(pod) && phase(pod) == "Succeeded") {
            if is_listed(pod, &listed) {
                continue;
            }
            let uid = pod.uid().unwrap_or_default();
            if listed.len() >= MAX_UNCOUNTED {
                postponed.insert(uid);
                continue;
            }
            // A second pod of one index is not counted.
            if !is_indexed(spec) || of_job(pod).is_some_and(|index| completed.insert(index)) {
                listed.insert(uid.clone());
                uncounted.succeeded.get_or_insert_default().push(uid);
            }
        }
        let lost = (is_indexed(spec) && spec.backoff_limit_per_index.is_some()).then(|| {
            let mut lost = Indexes::parse(status.failed_indexes.as_deref().unwrap_or_default(), completions);
            let tracked = pods.iter().filter(|pod| is_tracked(pod));
            let failing = tracked.filter(|pod| policies::fails_index(spec, pod, retries::failures(pod)));
            lost.extend(failing.filter_map(of_job));
            lost
        });
        let waiting = match &lost {
            Some(lost) if !is_ending => {
                let active = pods.iter().filter(|pod| is_active(pod)).filter_map(index);
                retries::waiting(spec, pods, &completed.union(lost).union(&active.collect()))
            }
            _ => BTreeMap::new(),
        };
        let mut ignored = BTreeSet::new();
        for pod in pods.iter().filter(|pod| is_tracked(pod) && phase(pod) != "Succeeded") {
            let has_failed = policies::has_failed(spec, pod) || is_ending && is_deleting(pod);
            if is_listed(pod, &listed) || !has_failed || is_waiting(&waiting, pod) {
                continue;
            }
            let uid = pod.uid().unwrap_or_default();
            if !policies::counts(spec, pod) || is_indexed(spec) && of_job(pod).is_none() {
                ignored.insert(uid);
            } else if listed.len() >= MAX_UNCOUNTED {
                postponed.insert(uid);
            } else {
                listed.insert(uid.clone());
                uncounted.failed.get_or_insert_default().push(uid);
            }
        }
        let len = |pods: &Option<Vec<String>>| i32::try_from(pods.as_ref().map_or(0, Vec::len)).unwrap_or(i32::MAX);
        let succeeded = match is_indexed(spec) {
            true => completed.len(),
            false => status.succeeded.unwrap_or(0).saturating_add(len(&uncounted.succeeded)),
        };
        let failed = status.failed.unwrap_or(0).saturating_add(len(&uncounted.failed));
        Self { succeeded, failed, completed, lost, waiting, uncounted, listed, postponed, ignored }
    }

    pub(super) fn lists(&self, pod: &Pod) -> bool {
        pod.metadata.uid.as_ref().is_some_and(|uid| self.listed.contains(uid))
    }

    /// Returns true if a pod is accounted for, so that its finalizer may be removed.
    pub(super) fn is_accounted_for(&self, pod: &Pod) -> bool {
        let is_among = |pods: &BTreeSet<String>| pod.metadata.uid.as_ref().is_some_and(|uid| pods.contains(uid));
        // A second pod of a succeeded index is neither counted nor kept.
        let is_done = pods::is_over(pod) || self.lists(pod) || is_among(&self.ignored);
        is_done && !is_waiting(&self.waiting, pod) && !is_among(&self.postponed)
    }

    /// Returns true if there are pods that the next sync counts.
    pub(super) fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    pub(super) fn has_uncounted(&self) -> bool {
        [&self.uncounted.succeeded, &self.uncounted.failed].iter().any(|pods| pods.iter().flatten().next().is_some())
    }

    /// Writes the uncounted pods to a status.
    pub(super) fn list(&self, status: &mut JobStatus) {
        let some = |pods: &Option<Vec<String>>| pods.clone().filter(|pods| !pods.is_empty());
        let (succeeded, failed) = (some(&self.uncounted.succeeded), some(&self.uncounted.failed));
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods { succeeded, failed });
    }

    /// Writes the counts to a status, after the finalizers of the pods were removed.
    pub(super) fn write_to_status(&self, status: &mut JobStatus) {
        let some = |count: i32| (count > 0).then_some(count);
        (status.succeeded, status.failed) = (some(self.succeeded), some(self.failed));
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods::default());
        let completed = self.completed.print();
        status.completed_indexes = (!completed.is_empty()).then_some(completed);
        status.failed_indexes = self.lost.as_ref().map(Indexes::print);
    }
}

/// Returns true if a pod is kept until its index has another one.
fn is_waiting(waiting: &BTreeMap<i32, Pod>, pod: &Pod) -> bool {
    let known = index(pod).and_then(|index| waiting.get(&index));
    known.is_some_and(|known| known.metadata.uid == pod.metadata.uid)
}

/// Returns the back-off before the next pod, which grows with the failures since the last success.
pub(super) fn backoff(pods: &[Pod], now: Timestamp) -> Option<Duration> {
    let finished = |expected: &'static str| {
        pods.iter().filter(move |pod| phase(pod) == expected).map(move |pod| pod_facts::end(pod, now))
    };
    let success = finished("Succeeded").max();
    let failures: Vec<Timestamp> =
        finished("Failed").filter(|time| success.is_none_or(|success| *time > success)).collect();
    let last = failures.iter().max()?;
    pod_facts::backoff(u32::try_from(failures.len()).unwrap_or(u32::MAX), *last, now)
}

/// Counts the active, the ready and the terminating pods.
pub(super) fn running(pods: &[Pod]) -> (i32, i32, i32) {
    let count =
        |test: &dyn Fn(&Pod) -> bool| i32::try_from(pods.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX);
    (count(&is_active), count(&|pod| is_active(pod) && pods::is_ready(pod)), count(&pods::is_terminating))
}

/// Returns the desired number of active pods.
pub(super) fn desired(spec: &JobSpec, counts: &Counts, active: i32) -> i32 {
    let parallelism = spec.parallelism.unwrap_or(1).max(0);
    match spec.completions {
        _ if spec.suspend == Some(true) => 0,
        None if counts.succeeded > 0 => active.min(parallelism),
        None => parallelism,
        Some(completions) => completions.saturating_sub(counts.succeeded).clamp(0, parallelism),
    }
}

/// Returns the number of terminating pods that still count as active.
pub(super) fn reserved(spec: &JobSpec, terminating: i32) -> i32 {
    if replaces_failed_only(spec) { terminating } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::tracking::FINALIZER;
    use super::*;
    use serde_json::json;

    #[test]
    fn status_lists_a_limited_number_of_ended_pods() {
        let pods: Vec<Pod> = (0..3 * MAX_UNCOUNTED)
            .map(|n| {
                let phase = if n % 2 == 0 { "Succeeded" } else { "Failed" };
                let metadata = json!({"name": format!("p{n}"), "uid": format!("u{n}"), "finalizers": [FINALIZER]});
                serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap()
            })
            .collect();
        let spec: JobSpec =
            serde_json::from_value(json!({"completions": 10_000, "template": {"spec": {"containers": []}}})).unwrap();
        let (mut job, mut rest) = (Job::default(), pods.clone());
        let mut rounds = 0;
        while !rest.is_empty() {
            let counts = Counts::of(&job, &spec, &rest, false);
            counts.list(job.status.get_or_insert_default());
            let uncounted = job.status.as_ref().and_then(|status| status.uncounted_terminated_pods.clone()).unwrap();
            let listed = [uncounted.succeeded, uncounted.failed].into_iter().flatten().flatten().count();
            assert_eq!((listed, counts.has_postponed()), (MAX_UNCOUNTED, rest.len() > MAX_UNCOUNTED));
            rest.retain(|pod| !counts.is_accounted_for(pod));
            counts.write_to_status(job.status.get_or_insert_default());
            rounds += 1;
        }
        let status = job.status.unwrap();
        let ended = i32::try_from(pods.len() / 2).unwrap();
        assert_eq!((rounds, status.succeeded, status.failed), (3, Some(ended), Some(ended)));
    }
}
