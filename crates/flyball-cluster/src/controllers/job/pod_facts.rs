//! Facts of a single pod of a job: its index, its end, and the back-off after it.

use flyball::Backoff;
use flyball_core::time::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::time::Duration;

pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const BACKOFF: Backoff = Backoff { base_delay: Duration::from_secs(10), max_delay: Duration::from_mins(10) };

pub(super) fn index(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok()
}

/// Returns the remaining back-off after a number of failures, the last of which was at `last`.
pub(super) fn backoff(failures: u32, last: Timestamp, now: Timestamp) -> Option<Duration> {
    let elapsed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
    let rest = BACKOFF.after(failures).checked_sub(elapsed);
    rest.filter(|rest| failures > 0 && !rest.is_zero())
}

/// Returns the best known end time of a pod.
pub(super) fn end(pod: &Pod, now: Timestamp) -> Timestamp {
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
