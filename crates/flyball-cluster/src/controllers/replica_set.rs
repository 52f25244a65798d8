//! Maintains the number of pods of replica sets, and of replication controllers, their predecessors.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/>.

mod kinds;

use crate::workload::events::Events;
use crate::workload::owners::{self, Orphans};
use crate::workload::pods::{self, BURST, NEXT_BURST, is_active, is_available, is_ready, is_terminating};
use crate::workload::selection::{BySelector, candidates};
use crate::workload::time;
use flyball::{Action, Context, Controller, Reconcile, Result};
use flyball_core::time::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kinds::{DesiredPods, Replicates};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::time::Duration;

/// Creates the controller of replica sets.
pub(super) fn controller() -> Controller<impl Reconcile> {
    of::<ReplicaSet>("replicaset-controller")
}

/// Creates the controller of replication controllers.
pub(super) fn replication_controllers() -> Controller<impl Reconcile> {
    of::<ReplicationController>("replication-controller")
}

fn of<K: Replicates>(component: &'static str) -> Controller<ReplicaSetReconciler<K>> {
    Controller::new(ReplicaSetReconciler { events: Events::new(component), kind: PhantomData })
        .owns::<Pod>()
        .watches::<Pod>(candidates::<K>)
        .index::<BySelector<K>>()
        .index::<Orphans<Pod>>()
        .replaces::<Pod>()
        .replaces::<K>()
        .while_deleting()
}

struct ReplicaSetReconciler<K> {
    events: Events,
    kind: PhantomData<fn(K)>,
}

impl<K: Replicates> Reconcile for ReplicaSetReconciler<K> {
    type Resource = K;

    async fn reconcile(&self, set: &K, cx: &Context<K>) -> Result<Action> {
        let (Some(desired), Some(selector)) = (set.desired(), set.selector()) else { return Ok(Action::done()) };
        let mut pods: Vec<Pod> = owners::claim(set, &selector, cx).await?;
        let managed = match pods::is_deleting(set) {
            true => Ok(false),
            false => manage(set, &desired, &mut pods, &self.events, cx).await,
        };
        let status = status(set, &desired, &pods, managed.as_ref().err(), cx.now());
        if set.status().as_ref() != Some(&status) {
            owners::tolerate(cx.replace_status(&set.with_status(status)).await)?;
        }
        if managed? {
            return Ok(Action::requeue_after(NEXT_BURST));
        }
        let wait = pods::next_available(&pods, desired.min_ready_seconds, cx.now());
        Ok(wait
            .map_or_else(Action::done, |wait| Action::requeue_after(wait.unsigned_abs().max(Duration::from_millis(1)))))
    }
}

/// Creates missing pods, or deletes surplus ones; returns true if there are more of them.
async fn manage<K: Replicates>(
    set: &K,
    desired: &DesiredPods,
    pods: &mut Vec<Pod>,
    events: &Events,
    cx: &Context<K>,
) -> Result<bool> {
    let mut active: Vec<&Pod> = pods.iter().filter(|pod| is_active(pod)).collect();
    let missing = desired.replicas.saturating_sub(active.len());
    if missing > 0 {
        let pod = pods::from_template(&desired.template, set);
        let (created, result) = pods::create(set, missing, |_| Cow::Borrowed(&pod), events, cx).await;
        pods.extend(created);
        return result.map(|()| missing > BURST).map_err(|error| error.context("FailedCreate"));
    }
    let excess = active.len() - desired.replicas;
    if excess == 0 {
        return Ok(false);
    }
    let mut crowds: BTreeMap<&str, usize> = BTreeMap::new();
    for node in active.iter().filter_map(|pod| pods::node(pod)) {
        *crowds.entry(node).or_default() += 1;
    }
    let crowd = |pod: &Pod| pods::node(pod).and_then(|node| crowds.get(node)).copied().unwrap_or(0);
    pods::sort_for_deletion(&mut active, cx.now(), crowd);
    let (mut deleted, mut result) = (BTreeSet::new(), Ok(excess > BURST));
    for pod in &active[..excess.min(BURST)] {
        match pods::delete(set, pod, events, cx).await {
            Ok(()) => drop(deleted.insert(pod.metadata.uid.clone())),
            Err(error) => result = result.and(Err(error.context("FailedDelete"))),
        }
    }
    pods.retain(|pod| !deleted.contains(&pod.metadata.uid));
    result
}

fn status<K: Replicates>(
    set: &K,
    desired: &DesiredPods,
    pods: &[Pod],
    failure: Option<&flyball::Error>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let active: Vec<&Pod> = pods.iter().filter(|pod| is_active(pod)).collect();
    let count =
        |test: &dyn Fn(&Pod) -> bool| i32::try_from(active.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX);
    let some = |count: i32| (count > 0).then_some(count);
    let labels = desired.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let mut conditions = set.status().unwrap_or_default().conditions.unwrap_or_default();
    let known = conditions.iter().position(|condition| condition.type_ == "ReplicaFailure");
    match (failure.map(ToString::to_string), known) {
        (Some(text), None) => {
            let (reason, message) = text.split_once(": ").unwrap_or(("FailedCreate", &text));
            conditions.push(ReplicaSetCondition {
                type_: "ReplicaFailure".into(),
                status: "True".into(),
                reason: Some(reason.into()),
                message: Some(message.into()),
                last_transition_time: Some(time(now)),
            });
        }
        (None, Some(at)) => drop(conditions.remove(at)),
        _ => {}
    }
    let terminating = i32::try_from(pods.iter().filter(|pod| is_terminating(pod)).count()).ok();
    ReplicaSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: some(count(&|pod| pods::has_labels(pod, labels))),
        ready_replicas: some(count(&is_ready)),
        available_replicas: some(count(&|pod| is_available(pod, desired.min_ready_seconds, now))),
        terminating_replicas: terminating.filter(|_| K::TELLS_TERMINATING),
        observed_generation: set.meta().generation,
        conditions: (!conditions.is_empty()).then_some(conditions),
    }
}
