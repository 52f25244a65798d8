//! The failures of each index, for a job with a backoff limit per index.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/job/#backoff-limit-per-index>. A failed pod has
//! annotations with the number of earlier failures of its index; it is kept until its replacement has them.

use super::indexes::Indexes;
use super::pod_facts::{self, index};
use super::policies;
use flyball_core::time::Timestamp;
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::time::Duration;

const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

fn number(pod: &Pod, annotation: &str) -> i32 {
    pod.annotations().get(annotation).and_then(|text| text.parse().ok()).filter(|count| *count >= 0).unwrap_or(0)
}

/// Returns the number of earlier failures of a pod's index.
pub(super) fn failures(pod: &Pod) -> i32 {
    number(pod, FAILURES)
}

/// Finds the failed pods that wait for their replacement: the last one of each index.
pub(super) fn waiting(spec: &JobSpec, pods: &[Pod], done: &Indexes) -> BTreeMap<i32, Pod> {
    let mut waiting: BTreeMap<i32, Pod> = BTreeMap::new();
    let is_done = |index: &i32| done.contains(*index) || Some(*index) >= spec.completions;
    for pod in pods.iter().filter(|pod| policies::has_failed(spec, pod)) {
        let Some(index) = index(pod).filter(|index| !is_done(index)) else { continue };
        let rank = |pod: &Pod| {
            (number(pod, FAILURES).saturating_add(number(pod, IGNORED)), pod_facts::end(pod, Timestamp::MAX))
        };
        if waiting.get(&index).is_none_or(|other| rank(other) <= rank(pod)) {
            waiting.insert(index, pod.clone());
        }
    }
    waiting
}

/// Returns the back-off before the next pod of an index.
pub(super) fn backoff(last: Option<&Pod>, now: Timestamp) -> Option<Duration> {
    let last = last?;
    let failures = number(last, FAILURES).saturating_add(number(last, IGNORED)).saturating_add(1);
    pod_facts::backoff(u32::try_from(failures).unwrap_or(0), pod_facts::end(last, now), now)
}

/// Annotates a pod with the number of failures of its index.
pub(super) fn annotate(pod: &mut Pod, spec: &JobSpec, last: Option<&Pod>) {
    let (mut failures, mut ignored) = (0, 0);
    if let Some(last) = last {
        (failures, ignored) = (number(last, FAILURES), number(last, IGNORED));
        let which = if policies::counts(spec, last) { &mut failures } else { &mut ignored };
        *which = which.saturating_add(1);
    }
    let annotations = pod.annotations_mut();
    annotations.insert(FAILURES.into(), failures.to_string());
    if ignored > 0 {
        annotations.insert(IGNORED.into(), ignored.to_string());
    }
}
