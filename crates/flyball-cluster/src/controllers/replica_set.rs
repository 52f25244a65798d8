//! Keeps as many pods as a replica set asks for.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/>.

use super::owners::{self, Selector};
use super::pods::{self, BURST, is_active, is_available, is_ready, is_terminating};
use flyball::{Action, Context, Controller, Reconcile, Result};
use flyball_core::time::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::time::Duration;

/// Makes the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(ReplicaSets)
        .owns::<Pod>()
        .watches(|pod: &Pod, caches| owners::candidates(pod, caches, selector))
        .replaces::<Pod>()
        .replaces::<ReplicaSet>()
        .while_deleting()
}

fn selector(set: &ReplicaSet) -> Option<Selector> {
    Selector::new(set.spec.as_ref().map(|spec| &spec.selector))
}

struct ReplicaSets;

impl Reconcile for ReplicaSets {
    type Resource = ReplicaSet;

    async fn reconcile(&self, set: &ReplicaSet, cx: &Context<ReplicaSet>) -> Result<Action> {
        let Some(selector) = selector(set) else { return Ok(Action::done()) };
        let mut pods: Vec<Pod> = owners::claim(set, &selector, cx).await?;
        let managed = if pods::is_deleting(set) { Ok(()) } else { manage(set, &mut pods, cx).await };
        let status = status(set, &pods, managed.as_ref().err().map(ToString::to_string), cx.now());
        if set.status.as_ref() != Some(&status) {
            owners::tolerate(cx.replace_status(&ReplicaSet { status: Some(status), ..set.clone() }).await)?;
        }
        managed?;
        let min_ready = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        let wait = pods::next_available(&pods, min_ready, cx.now());
        Ok(wait
            .map_or_else(Action::done, |wait| Action::requeue_after(wait.unsigned_abs().max(Duration::from_millis(1)))))
    }
}

/// Makes the pods that are missing, or deletes those that are too many.
async fn manage(set: &ReplicaSet, pods: &mut Vec<Pod>, cx: &Context<ReplicaSet>) -> Result<()> {
    let Some(spec) = &set.spec else { return Ok(()) };
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let mut active: Vec<Pod> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
    if active.len() < wanted {
        let missing = (wanted - active.len()).min(BURST);
        let template = spec.template.clone().unwrap_or_default();
        let (made, result) = pods::create(&vec![pods::from_template(&template, set); missing], cx).await;
        pods.extend(made);
        return result.map_err(|error| error.context("FailedCreate"));
    }
    let mut crowds: BTreeMap<String, usize> = BTreeMap::new();
    for node in active.iter().filter_map(pods::node) {
        *crowds.entry(node.to_owned()).or_default() += 1;
    }
    let crowd = |pod: &Pod| pods::node(pod).and_then(|node| crowds.get(node)).copied().unwrap_or(0);
    let excess = (active.len() - wanted).min(BURST);
    pods::sort_for_deletion(&mut active, cx.now(), crowd);
    let mut result = Ok(());
    for pod in &active[..excess] {
        match cx.delete(pod).await {
            Ok(()) => pods.retain(|other| other.metadata.uid != pod.metadata.uid),
            Err(error) => result = result.and(Err(error.context("FailedDelete"))),
        }
    }
    result
}

fn status(set: &ReplicaSet, pods: &[Pod], failure: Option<String>, now: Timestamp) -> ReplicaSetStatus {
    let spec = set.spec.clone().unwrap_or_default();
    let active: Vec<&Pod> = pods.iter().filter(|pod| is_active(pod)).collect();
    let count =
        |test: &dyn Fn(&Pod) -> bool| i32::try_from(active.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX);
    let some = |count: i32| (count > 0).then_some(count);
    let labels = spec.template.as_ref().and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    let mut conditions = set.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    let known = conditions.iter().position(|condition| condition.type_ == "ReplicaFailure");
    match (failure, known) {
        (Some(text), None) => {
            let (reason, message) = text.split_once(": ").unwrap_or(("FailedCreate", &text));
            conditions.push(ReplicaSetCondition {
                type_: "ReplicaFailure".into(),
                status: "True".into(),
                reason: Some(reason.into()),
                message: Some(message.into()),
                last_transition_time: Some(pods::time(now)),
            });
        }
        (None, Some(at)) => drop(conditions.remove(at)),
        _ => {}
    }
    ReplicaSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: some(count(&|pod| pods::has_labels(pod, labels))),
        ready_replicas: some(count(&is_ready)),
        available_replicas: some(count(&|pod| is_available(pod, spec.min_ready_seconds, now))),
        terminating_replicas: i32::try_from(pods.iter().filter(|pod| is_terminating(pod)).count()).ok(),
        observed_generation: set.metadata.generation,
        conditions: (!conditions.is_empty()).then_some(conditions),
    }
}
