//! A minimal ReplicaSet controller: a `Herd` keeps the desired number of pods, like the controller of
//! [ReplicaSets](https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/).
//!
//! The runtime replaces the expectations of that controller: pods with generated names are not created twice,
//! independent of the delay of the watch, and pending deletions are tracked by UID.

use flyball::{Action, Condition, Context, Controller, Operator, Reconcile, Result, slow_start_batch};
use k8s_openapi::api::core::v1::Pod;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Pods of one image.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Herd", namespaced, status = "HerdStatus")]
pub struct HerdSpec {
    /// The desired number.
    pub replicas: usize,
    /// Their image.
    pub image: String,
}

/// The status of the pods.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct HerdStatus {
    /// Pods that are neither finished nor being deleted.
    #[serde(default)]
    pub replicas: usize,
    /// The number of ready pods among them.
    #[serde(default)]
    pub ready: usize,
    /// Conditions.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Limit of pods that are created or deleted at once.
const BURST: usize = 500;
/// The annotation with the deletion cost: lower costs are deleted first.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The reconciler of herds.
#[derive(Clone)]
pub struct Herds;

impl Reconcile for Herds {
    type Resource = Herd;

    async fn reconcile(&self, herd: &Herd, cx: &Context<Herd>) -> Result<Action> {
        let mut pods = cx.children::<Pod>().await?;
        pods.retain(is_active);
        let managed = manage_replicas(herd, &mut pods, cx).await;
        let failure = managed
            .as_ref()
            .err()
            .map(|error| Condition::new("ReplicaFailure", true, "FailedCreateOrDelete").message(error.to_string()));
        let ready = pods.iter().filter(|pod| ready_since(pod).is_some()).count();
        let status = HerdStatus { replicas: pods.len(), ready, conditions: failure.into_iter().collect() };
        cx.set_status(&status).await?;
        managed.map(|()| Action::done())
    }
}

/// Creates missing pods in growing batches, or deletes surplus ones, the least useful ones first.
async fn manage_replicas(herd: &Herd, pods: &mut Vec<Pod>, cx: &Context<Herd>) -> Result<()> {
    if pods.len() < herd.spec.replicas {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"generateName": format!("{}-", herd.name_any()), "labels": {"herd": herd.name_any()}},
            "spec": {"containers": [{"name": "main", "image": herd.spec.image}]},
        }))?;
        let missing = (herd.spec.replicas - pods.len()).min(BURST);
        let (created, result) = slow_start_batch(missing, 1, |_| cx.create(&pod)).await;
        pods.extend(created);
        return result;
    }
    rank(pods);
    let excess = (pods.len() - herd.spec.replicas).min(BURST);
    for victim in pods.drain(..excess) {
        cx.delete(&victim).await?;
    }
    Ok(())
}

/// Sorts pods by deletion order: unscheduled, not running, not ready, lowest deletion cost, most pods of the herd on
/// the same node, shortest time ready, most restarts, and youngest.
fn rank(pods: &mut [Pod]) {
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let mut crowds: BTreeMap<String, usize> = BTreeMap::new();
    for node in pods.iter().filter_map(node) {
        *crowds.entry(node).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let node = node(pod);
        let cost: i32 = pod.annotations().get(COST).and_then(|cost| cost.parse().ok()).unwrap_or_default();
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let ready = ready_since(pod);
        (
            node.is_some(),
            ["Pending", "Unknown", "Running"].iter().position(|known| *known == phase(pod)),
            ready.is_some(),
            cost,
            Reverse(node.and_then(|node| crowds.get(&node).copied())),
            Reverse(ready),
            Reverse(statuses.map(|status| status.restart_count).max()),
            Reverse(pod.metadata.creation_timestamp.clone()),
        )
    });
}

fn is_active(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase(pod), "Succeeded" | "Failed")
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Returns since when a pod has been ready, `None` if it is not.
fn ready_since(pod: &Pod) -> Option<String> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(ready.last_transition_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default())
}

fn main() -> std::process::ExitCode {
    Operator::new("herds").crd(Herd::crd()).controller(Controller::new(Herds).owns::<Pod>()).main()
}
