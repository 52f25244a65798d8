//! Deletes pods whose node no longer exists.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection>.

use crate::workload::owners::tolerate;
use crate::workload::pods::{self, OnNode, is_deleting, is_over};
use crate::workload::{references, time};
use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
use flyball_core::time::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Quarantine of missing nodes, which may come back.
const QUARANTINE: Duration = Duration::from_secs(40);

/// Creates the controller.
pub(super) fn pods() -> Controller<impl Reconcile> {
    let controller = Controller::new(Orphans::default()).name("orphaned-pods").while_deleting().index::<OnNode>();
    controller.watches_by_key::<Node>(|node, caches| {
        // Nodes change often, but are rarely deleted.
        if caches.get::<Node>(node)?.is_some() {
            return Ok(Vec::new());
        }
        let name = node.name().to_owned();
        Ok(caches.range_by::<OnNode>(&name..=&name)?.into_iter().map(|(_, pod)| pod).collect())
    })
}

#[derive(Default)]
struct Orphans {
    /// The missing nodes, with the time when they were found missing.
    missing: Mutex<BTreeMap<String, Timestamp>>,
}

impl Orphans {
    fn missing_since(&self, node: &str, is_there: bool, now: Timestamp) -> Option<Timestamp> {
        let mut missing = self.missing.lock();
        if is_there {
            missing.remove(node);
            return None;
        }
        // Old entries are not needed by any pod.
        missing.retain(|_, since| now.duration_since(*since).unsigned_abs() < 10 * QUARANTINE);
        Some(*missing.entry(node.to_owned()).or_insert(now))
    }
}

impl Reconcile for Orphans {
    type Resource = Pod;

    async fn reconcile(&self, pod: &Pod, cx: &Context<Pod>) -> Result<Action> {
        let Some(name) = pods::node(pod) else {
            if is_deleting(pod) {
                remove(pod, cx).await?;
            }
            return Ok(Action::done());
        };
        let key = ObjectKey::new(None, name);
        let is_there = cx.get::<Node>(&key).await?.is_some();
        let Some(since) = self.missing_since(name, is_there, cx.now()) else { return Ok(Action::done()) };
        let remaining = QUARANTINE.saturating_sub(cx.now().duration_since(since).unsigned_abs());
        if !remaining.is_zero() {
            return Ok(Action::requeue_after(remaining));
        }
        // The deletion is final, so confirm with the API server.
        if references::read::<_, Node>(&key, cx).await?.is_some() {
            return Ok(Action::requeue_after(QUARANTINE));
        }
        if !is_over(pod) {
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists", "lastTransitionTime": time(cx.now()),
            });
            let patch = json!({
                "metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed", "conditions": [condition]},
            });
            let params = PatchParams { field_manager: Some(super::MANAGER.into()), ..PatchParams::default() };
            let written = api(cx).patch_status(cx.key().name(), &params, &Patch::Strategic(patch)).await;
            if let Some(written) = tolerate(written.map_err(Into::into))? {
                cx.record_write(&written);
            }
        }
        remove(pod, cx).await?;
        Ok(Action::done())
    }
}

fn api(cx: &Context<Pod>) -> Api<Pod> {
    Api::namespaced(cx.client().clone(), cx.key().namespace().unwrap_or_default())
}

async fn remove(pod: &Pod, cx: &Context<Pod>) -> Result<()> {
    let preconditions = Some(Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() });
    let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
    tolerate(api(cx).delete(cx.key().name(), &params).await.map_err(Into::into))?;
    Ok(())
}
