//! Properties of pods for workload controllers: activity, readiness and order of deletion.

use super::events::Events;
use flyball::{Context, Index, ObjectKey, Resource, Result, is_namespace_terminating, slow_start_batch};
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of pods that a reconcile creates or deletes.
pub(crate) const BURST: usize = 500;
/// Requeue delay after a reconcile that reached the maximum, in which other objects have their turns.
pub(crate) const NEXT_BURST: Duration = Duration::from_secs(1);
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Returns true if a pod has succeeded or failed.
pub(crate) fn is_over(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(crate) fn is_deleting(object: &impl ResourceExt) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Returns true if a pod is active: neither terminated nor being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_over(pod) && !is_deleting(pod)
}

/// Returns true if a pod is being deleted and has not terminated.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_over(pod) && is_deleting(pod)
}

/// Returns the time since when a pod is ready, if it is.
pub(crate) fn ready_since(pod: &Pod) -> Option<Option<Timestamp>> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(ready.last_transition_time.as_ref().map(|time| time.0))
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// Returns the duration until a pod is available: zero if it is, `None` if it is not ready.
pub(crate) fn until_available(pod: &Pod, min_ready_seconds: Option<i32>, now: Timestamp) -> Option<SignedDuration> {
    let since = ready_since(pod)?;
    let wait = SignedDuration::from_secs(min_ready_seconds.unwrap_or(0).into());
    if wait.is_zero() {
        return Some(SignedDuration::ZERO);
    }
    let passed = now.duration_since(since?);
    Some((wait - passed).max(SignedDuration::ZERO))
}

pub(crate) fn is_available(pod: &Pod, min_ready_seconds: Option<i32>, now: Timestamp) -> bool {
    until_available(pod, min_ready_seconds, now) == Some(SignedDuration::ZERO)
}

/// Returns the shortest duration until one of the pods becomes available.
pub(crate) fn next_available(pods: &[Pod], min_ready_seconds: Option<i32>, now: Timestamp) -> Option<SignedDuration> {
    let waits = pods.iter().filter_map(|pod| until_available(pod, min_ready_seconds, now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// Creates a pod from a template.
pub(crate) fn from_template(template: &PodTemplateSpec, owner: &impl ResourceExt) -> Pod {
    let template_metadata = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(format!("{}-", owner.name_any())),
        labels: template_metadata.labels,
        annotations: template_metadata.annotations,
        finalizers: template_metadata.finalizers,
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// Creates pods in batches that double while creations succeed, so that a rejected creation is not repeated hundreds of
/// times. `pod` gets a number below `count`, and is called when its batch begins: templates may be large.
pub(crate) async fn create<'p, K: Resource>(
    owner: &K,
    count: usize,
    pod: impl Fn(usize) -> Cow<'p, Pod>,
    events: &Events,
    cx: &Context<K>,
) -> (Vec<Pod>, Result<()>) {
    let make = |at| {
        let pod = pod(at);
        async move { cx.create(&*pod).await }
    };
    let (created, result) = slow_start_batch(count.min(BURST), 1, make).await;
    for pod in &created {
        events.normal(cx, owner, "SuccessfulCreate", format!("Created pod: {}", pod.name_any())).await;
    }
    match result {
        // All further creates fail, and existing pods are deleted.
        Err(error) if error.downcast_ref().is_some_and(is_namespace_terminating) => (created, Ok(())),
        Err(error) => {
            events.warning(cx, owner, "FailedCreate", format!("Error creating: {}", reason(&error))).await;
            (created, Err(error))
        }
        Ok(()) => (created, Ok(())),
    }
}

/// Deletes a pod.
pub(crate) async fn delete<K: Resource>(owner: &K, pod: &Pod, events: &Events, cx: &Context<K>) -> Result<()> {
    let deleted = cx.delete(pod).await;
    match &deleted {
        Ok(()) => events.normal(cx, owner, "SuccessfulDelete", format!("Deleted pod: {}", pod.name_any())).await,
        Err(error) => events.warning(cx, owner, "FailedDelete", format!("Error deleting: {}", reason(error))).await,
    }
    deleted
}

/// Returns the error message of the API server, without the client's context.
pub(crate) fn reason(error: &flyball::Error) -> String {
    error.status().map_or_else(|| error.to_string(), |status| status.message.clone())
}

/// Sorts pods by their order of deletion. `crowd` returns the number of the owner's pods on a pod's node.
pub(crate) fn sort_for_deletion(pods: &mut [&Pod], now: Timestamp, crowd: impl Fn(&Pod) -> usize) {
    let phases = |pod: &Pod| match phase(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    let cost = |pod: &Pod| pod.annotations().get(DELETION_COST).and_then(|cost| cost.parse::<i32>().ok()).unwrap_or(0);
    let is_assigned = |pod: &Pod| node(pod).is_some();
    let restarts = |pod: &Pod| {
        let of = |statuses: Option<&Vec<k8s_openapi::api::core::v1::ContainerStatus>>| {
            statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or(0)
        };
        pod.status.as_ref().map_or(0, |status| of(status.container_statuses.as_ref()))
    };
    pods.sort_by(|a, b| {
        let by_ready_time = || match (ready_since(a).flatten(), ready_since(b).flatten()) {
            // Pods that have been ready longer are more reliable; the logarithm makes similar ages equal, so that other
            // criteria apply.
            (Some(a), Some(b)) => age_rank(now, a).cmp(&age_rank(now, b)),
            _ => Ordering::Equal,
        };
        let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| age_rank(now, time.0));
        is_assigned(a)
            .cmp(&is_assigned(b))
            .then_with(|| phases(a).cmp(&phases(b)))
            .then_with(|| is_ready(a).cmp(&is_ready(b)))
            .then_with(|| cost(a).cmp(&cost(b)))
            .then_with(|| Reverse(crowd(a)).cmp(&Reverse(crowd(b))))
            .then_with(by_ready_time)
            .then_with(|| Reverse(restarts(a)).cmp(&Reverse(restarts(b))))
            .then_with(|| created(a).cmp(&created(b)))
            .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
    });
}

/// Ranks by the order of magnitude of an age.
fn age_rank(now: Timestamp, since: Timestamp) -> u32 {
    let age = now.duration_since(since).as_nanos().max(0);
    u128::try_from(age).unwrap_or(0).checked_ilog2().unwrap_or(0)
}

pub(crate) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns the claims that a pod uses, each with its volume.
pub(crate) fn claims(pod: &Pod) -> impl Iterator<Item = (String, &str)> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| {
        let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
        // See <https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming>.
        let own = || volume.ephemeral.as_ref().map(|_| format!("{name}-{}", volume.name));
        Some((claim.or_else(own)?, volume.name.as_str()))
    })
}

/// Pods by the node that they are on.
pub(crate) struct OnNode;

impl Index for OnNode {
    type Resource = Pod;
    type Value = String;

    fn values(pod: &Pod) -> Vec<String> {
        node(pod).map(str::to_owned).into_iter().collect()
    }
}

/// Pods by the claims that they use.
pub(crate) struct UsingClaim;

impl Index for UsingClaim {
    type Resource = Pod;
    type Value = ObjectKey;

    fn values(pod: &Pod) -> Vec<ObjectKey> {
        claims(pod).map(|(claim, _)| ObjectKey::new(pod.metadata.namespace.as_deref(), &claim)).collect()
    }
}

/// Hashes a template for names and labels; the result is stable across runs.
pub(crate) fn hash(template: &impl serde::Serialize, collisions: Option<i32>) -> String {
    let mut text = serde_json::to_string(template).unwrap_or_default();
    if let Some(collisions) = collisions {
        text.push_str(&collisions.to_string());
    }
    let fnv = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // Letters and digits that form no words.
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    fnv.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

/// Returns true if a pod has all labels of a template.
pub(crate) fn has_labels(pod: &Pod, labels: Option<&BTreeMap<String, String>>) -> bool {
    labels.is_none_or(|labels| labels.iter().all(|(key, value)| pod.labels().get(key) == Some(value)))
}
