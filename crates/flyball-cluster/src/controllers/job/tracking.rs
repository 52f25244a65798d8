//! The finalizer that ensures that a job counts every pod exactly once.
//!
//! A terminated pod keeps it until the job's status lists the pod as uncounted; then the finalizer is removed, and then
//! the pod is counted. Each step can be resumed after an interruption.

use crate::workload::{owners, references};
use flyball::{Action, Context, Controller, Index, Reconcile, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Removes the finalizer of a pod.
pub(super) async fn untrack<K: flyball::Resource>(pod: &Pod, cx: &Context<K>) -> Result<()> {
    let mut changed = pod.clone();
    changed.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
    if changed != *pod {
        owners::tolerate(cx.replace(&changed).await)?;
    }
    Ok(())
}

/// Creates the controller that removes the finalizer of pods whose job was deleted.
pub(in crate::controllers) fn orphans() -> Controller<impl Reconcile> {
    let pods_of = |job: &Job, caches: &flyball::Caches| {
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let pods = caches.range_by::<TrackedBy>(&uid..=&uid)?.into_iter().map(|(_, pod)| pod);
        Ok(pods.filter(|pod| pod.namespace() == job.metadata.namespace.as_deref()).collect())
    };
    Controller::new(Orphans).watches::<Job>(pods_of).index::<TrackedBy>().replaces::<Pod>().while_deleting()
}

/// Tracked pods by the UID of their controller.
struct TrackedBy;

impl Index for TrackedBy {
    type Resource = Pod;
    type Value = String;

    fn values(pod: &Pod) -> Vec<String> {
        let controller = owners::controller_of(pod).filter(|_| is_tracked(pod));
        controller.map(|controller| controller.uid.clone()).into_iter().collect()
    }
}

struct Orphans;

impl Reconcile for Orphans {
    type Resource = Pod;

    async fn reconcile(&self, pod: &Pod, cx: &Context<Pod>) -> Result<Action> {
        if !is_tracked(pod) {
            return Ok(Action::done());
        }
        let owner = owners::controller_of(pod).filter(|owner| owner.kind == "Job");
        if let Some(owner) = owner {
            let key = cx.sibling(&owner.name);
            let is_it = |job: &Job| job.metadata.uid.as_ref() == Some(&owner.uid);
            if cx.get::<Job>(&key).await?.is_some_and(|job| is_it(&job)) {
                return Ok(Action::done());
            }
            // The cache may be stale: confirm with the API server.
            if references::read(&key, cx).await?.is_some_and(|job| is_it(&job)) {
                return Ok(Action::done());
            }
        }
        untrack(pod, cx).await?;
        Ok(Action::done())
    }
}
