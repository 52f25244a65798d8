//! Taints unhealthy nodes, and evicts their pods after a while.
//!
//! Taints follow the conditions of a node. Nodes without a kubelet have no lease; only the taint of new nodes is
//! removed from them. See <https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller> and
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions>.

use crate::workload::affinity::NOT_READY;
use crate::workload::affinity::tolerates;
use crate::workload::owners::tolerate;
use crate::workload::pods::{self, is_deleting, is_over};
use crate::workload::time;
use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
use flyball_core::time::{SignedDuration, Timestamp, saturating_add};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint, Toleration};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::time::Duration;

const NAMESPACE: &str = "kube-node-lease";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Lease duration in seconds of nodes whose lease has none.
const SILENCE: i32 = 40;
/// Interval of checks of pods on nodes that are not ready.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(Lifecycle)
        .watches_by_key::<Lease>(|lease, _| {
            let is_nodes = lease.namespace() == Some(NAMESPACE);
            Ok(is_nodes.then(|| ObjectKey::new(None, lease.name())).into_iter().collect())
        })
        .reads::<Pod>()
}

struct Lifecycle;

impl Reconcile for Lifecycle {
    type Resource = Node;

    async fn reconcile(&self, node: &Node, cx: &Context<Node>) -> Result<Action> {
        let lease = cx.get::<Lease>(&ObjectKey::new(Some(NAMESPACE), cx.key().name())).await?;
        let Some(expiry) = lease.and_then(lease_expiry) else {
            // New nodes have a taint until their status is known. The status of this one will never be reported.
            if ready(node).is_none() {
                mark(node, "True", cx).await?;
            }
            return Ok(Action::done());
        };
        let is_silent = expiry <= cx.now();
        let ready = ready(node).map_or("Unknown", |condition| condition.status.as_str());
        if is_silent && ready != "Unknown" {
            silence(node, cx).await?;
            return Ok(Action::requeue_after(POLL_INTERVAL));
        }
        let Some(node) = &mark(node, ready, cx).await? else { return Ok(Action::done()) };
        if ready != "True" {
            for pod in pods_on(node, cx).await? {
                mark_unready(&pod, cx).await?;
            }
        }
        let all = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let expelling: Vec<&Taint> = all.into_iter().flatten().filter(|taint| taint.effect == "NoExecute").collect();
        if !expelling.is_empty() {
            for pod in pods_on(node, cx).await? {
                if is_toleration_expired(&pod, &expelling, cx.now()) {
                    evict_pod(&pod, cx).await?;
                }
            }
            return Ok(Action::requeue_after(POLL_INTERVAL));
        }
        let remaining = expiry.duration_since(cx.now()).unsigned_abs();
        Ok(if is_silent { Action::done() } else { Action::requeue_after(remaining.max(Duration::from_millis(1))) })
    }
}

/// Returns the time until which the node counts as alive.
fn lease_expiry(lease: Lease) -> Option<Timestamp> {
    let spec = lease.spec?;
    let seconds = spec.lease_duration_seconds.unwrap_or(SILENCE).max(SILENCE);
    Some(saturating_add(spec.renew_time?.0, SignedDuration::from_secs(seconds.into())))
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

/// Sets all conditions of a node to `Unknown`.
async fn silence(node: &Node, cx: &Context<Node>) -> Result<()> {
    let mut conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    for condition in &mut conditions {
        condition.status = "Unknown".into();
        condition.reason = Some("NodeStatusUnknown".into());
        condition.message = Some("Kubelet stopped posting node status.".into());
        condition.last_transition_time = Some(time(cx.now()));
    }
    let patch = json!({"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}});
    let api = Api::<Node>::all(cx.client().clone());
    tolerate(api.patch_status(cx.key().name(), &params(), &Patch::Strategic(patch)).await.map_err(Into::into))?;
    Ok(())
}

/// Sets the taints of a node by its condition; `None` if the node does not exist.
async fn mark(node: &Node, ready: &str, cx: &Context<Node>) -> Result<Option<Node>> {
    let spec = node.spec.as_ref();
    let before = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
    let mut desired = Vec::new();
    match ready {
        "True" => {}
        "False" => desired.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        _ => desired.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
    }
    if is_cordoned {
        desired.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is_desired = |taint: &Taint| desired.contains(&(taint.key.as_str(), taint.effect.as_str()));
    let is_ours = |taint: &Taint| [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&taint.key.as_str());
    let mut taints: Vec<Taint> = before.iter().filter(|taint| !is_ours(taint) || is_desired(taint)).cloned().collect();
    for (key, effect) in &desired {
        if !taints.iter().any(|taint| taint.key == *key && taint.effect == *effect) {
            let time_added = Some(time(cx.now()));
            taints.push(Taint { key: (*key).into(), effect: (*effect).into(), time_added, ..Taint::default() });
        }
    }
    if taints == before {
        return Ok(Some(node.clone()));
    }
    let taints = (!taints.is_empty()).then_some(taints);
    let meta = json!({"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version});
    let patch = json!({"metadata": meta, "spec": {"taints": taints}});
    let written = Api::<Node>::all(cx.client().clone()).patch(cx.key().name(), &params(), &Patch::Merge(patch)).await;
    let written: Option<Node> = tolerate(written.map_err(Into::into))?;
    Ok(written.inspect(|written| cx.record_write(written)))
}

async fn pods_on(node: &Node, cx: &Context<Node>) -> Result<Vec<Pod>> {
    let on = ListParams::default().fields(&format!("spec.nodeName={}", node.name_any()));
    Ok(Api::<Pod>::all(cx.client().clone()).list(&on).await?.items)
}

/// Sets the condition `Ready` of a pod to false.
async fn mark_unready(pod: &Pod, cx: &Context<Node>) -> Result<()> {
    if is_over(pod) || !pods::is_ready(pod) {
        return Ok(());
    }
    let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": time(cx.now())});
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
    let api = Api::<Pod>::namespaced(cx.client().clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
    tolerate(api.patch_status(&pod.name_any(), &params(), &Patch::Strategic(patch)).await.map_err(Into::into))?;
    Ok(())
}

/// Returns true if the toleration time of a pod has expired.
fn is_toleration_expired(pod: &Pod, taints: &[&Taint], now: Timestamp) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    taints.iter().any(|taint| {
        let matching = tolerations.into_iter().flatten().filter(|toleration| tolerates(toleration, taint));
        // The shortest matching toleration applies; one without an end is the longest.
        let spans: Vec<Option<i64>> = matching.map(|toleration: &Toleration| toleration.toleration_seconds).collect();
        if spans.is_empty() {
            return true;
        }
        let since = taint.time_added.as_ref().map_or(now, |time| time.0);
        let shortest = spans.into_iter().flatten().min();
        shortest.is_some_and(|seconds| now.duration_since(since).as_secs() >= seconds.max(0))
    })
}

async fn evict_pod(pod: &Pod, cx: &Context<Node>) -> Result<()> {
    if is_deleting(pod) || is_over(pod) {
        return Ok(());
    }
    let api = Api::<Pod>::namespaced(cx.client().clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": time(cx.now()),
    });
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
    tolerate(api.patch_status(&pod.name_any(), &params(), &Patch::Strategic(patch)).await.map_err(Into::into))?;
    let preconditions = Some(Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() });
    let delete = DeleteParams { preconditions, ..DeleteParams::default() };
    tolerate(api.delete(&pod.name_any(), &delete).await.map_err(Into::into))?;
    Ok(())
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(super::MANAGER.into()), ..PatchParams::default() }
}
