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
        let (succeeded, failed) =
            (uncounted.succeeded.get_or_insert_default().clone(), uncounted.failed.get_or_insert_default().clone());
        let is_new = |pod: &&Pod| {
            let uid = pod.uid().unwrap_or_default();
            is_tracked(pod) && !succeeded.contains(&uid) && !failed.contains(&uid)
        };
        let of_job = |pod: &Pod| index(pod).filter(|index| (0..completions).contains(index));
        for pod in pods.iter().filter(is_new).filter(|pod| phase(pod) == "Succeeded") {
            // A second pod of one index is not counted.
            if !is_indexed(spec) || of_job(pod).is_some_and(|index| completed.insert(index)) {
                uncounted.succeeded.get_or_insert_default().push(pod.uid().unwrap_or_default());
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
        for pod in pods.iter().filter(is_new).filter(|pod| phase(pod) != "Succeeded") {
            let has_failed = policies::has_failed(spec, pod) || is_ending && is_deleting(pod);
            let uid = pod.uid().unwrap_or_default();
            let waits = waiting.values().any(|waiting| waiting.metadata.uid.as_ref() == Some(&uid));
            if !has_failed || waits {
                continue;
            }
            if policies::counts(spec, pod) && (!is_indexed(spec) || of_job(pod).is_some()) {
                uncounted.failed.get_or_insert_default().push(uid);
            } else {
                ignored.insert(uid);
            }
        }
        let len = |pods: &Option<Vec<String>>| i32::try_from(pods.as_ref().map_or(0, Vec::len)).unwrap_or(i32::MAX);
        let succeeded = match is_indexed(spec) {
            true => completed.len(),
            false => status.succeeded.unwrap_or(0).saturating_add(len(&uncounted.succeeded)),
        };
        let failed = status.failed.unwrap_or(0).saturating_add(len(&uncounted.failed));
        Self { succeeded, failed, completed, lost, waiting, uncounted, ignored }
    }

    pub(super) fn lists(&self, pod: &Pod) -> bool {
        let lists =
            |pods: &Option<Vec<String>>| pods.iter().flatten().any(|uid| Some(uid) == pod.metadata.uid.as_ref());
        lists(&self.uncounted.succeeded) || lists(&self.uncounted.failed)
    }

    /// Returns true if a pod is accounted for, so that its finalizer may be removed.
    pub(super) fn is_done_with(&self, pod: &Pod) -> bool {
        let uid = pod.metadata.uid.as_ref();
        let waits = self.waiting.values().any(|waiting| waiting.metadata.uid.as_ref() == uid);
        // A second pod of a succeeded index is neither counted nor kept.
        let is_ignored = uid.is_some_and(|uid| self.ignored.contains(uid));
        !waits && (pods::is_over(pod) || self.lists(pod) || is_ignored)
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
    pub(super) fn settle(&self, status: &mut JobStatus) {
        let some = |count: i32| (count > 0).then_some(count);
        (status.succeeded, status.failed) = (some(self.succeeded), some(self.failed));
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods::default());
        let completed = self.completed.print();
        status.completed_indexes = (!completed.is_empty()).then_some(completed);
        status.failed_indexes = self.lost.as_ref().map(Indexes::print);
    }
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
