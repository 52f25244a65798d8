//! Counts the pods that disruption budgets protect, and the allowed disruptions.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/pods/disruptions/>.

use super::deployment::scaled;
use crate::workload::owners::{self, Selector};
use crate::workload::pods::{self, is_ready};
use crate::workload::selection::{BySelector, Selects, selecting};
use crate::workload::time;
use flyball::{Action, Context, Controller, ObjectKey, Predicate, Reconcile, Resource, Result};
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodStatus, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

/// Timeout between an eviction and the deletion of the pod.
const EVICTION: SignedDuration = SignedDuration::from_mins(2);

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(Budgets)
        .watches::<Pod>(selecting::<PodDisruptionBudget>)
        .index::<BySelector<PodDisruptionBudget>>()
        .watches::<Deployment>(budgets_of_workload)
        .filter::<Deployment>(resized())
        .watches::<ReplicaSet>(budgets_of_workload)
        .filter::<ReplicaSet>(resized())
        .watches::<StatefulSet>(budgets_of_workload)
        .filter::<StatefulSet>(resized())
        .watches::<ReplicationController>(budgets_of_workload)
        .filter::<ReplicationController>(resized())
        .replaces::<PodDisruptionBudget>()
}

/// Passes updates of the size of a workload and of its owners, but not those of its status, which are frequent.
fn resized<T: Resource>() -> Predicate<T> {
    let owners = |old: &T, new: &T| old.meta().owner_references != new.meta().owner_references;
    Predicate::generation().or(Predicate::new(owners))
}

/// Finds the budgets in the namespace of a workload, which may depend on its size.
fn budgets_of_workload<T: Resource>(workload: &T, caches: &flyball::Caches) -> Result<Vec<ObjectKey>> {
    caches.keys::<PodDisruptionBudget>(workload.meta().namespace.as_deref())
}

impl Selects for PodDisruptionBudget {
    fn selector(&self) -> Option<Selector> {
        Selector::new(self.spec.as_ref()?.selector.as_ref())
    }
}

struct Budgets;

impl Reconcile for Budgets {
    type Resource = PodDisruptionBudget;

    async fn reconcile(&self, budget: &PodDisruptionBudget, cx: &Context<PodDisruptionBudget>) -> Result<Action> {
        let selector = budget.selector();
        let protects = |pod: &Pod| selector.as_ref().is_some_and(|selector| selector.matches(pod));
        let pods = cx.filter_map(cx.key().namespace(), |pod| Some(pod).filter(protects).map(required_fields)).await?;
        let before = budget.status.clone().unwrap_or_default();
        let (status, recheck) = match count(budget, &pods, cx).await? {
            Ok((expected, desired)) => status(budget, &pods, expected, desired, cx.now()),
            Err(message) => {
                let mut status = PodDisruptionBudgetStatus { disruptions_allowed: Some(0), ..before.clone() };
                status.observed_generation = budget.metadata.generation;
                put(budget, &mut status, "False", "SyncFailed", message, cx.now());
                (status, None)
            }
        };
        if status != before {
            let changed = PodDisruptionBudget { status: Some(status), ..budget.clone() };
            owners::tolerate(cx.replace_status(&changed).await)?;
        }
        Ok(recheck.map_or_else(Action::done, |wait| Action::requeue_after(wait.unsigned_abs())))
    }
}

/// Keeps only the fields of a pod that the counts depend on: pods may be large, and a budget may protect many.
fn required_fields(pod: Pod) -> Pod {
    let controller = owners::controller_of(&pod).cloned();
    let metadata = ObjectMeta {
        name: pod.metadata.name,
        owner_references: controller.map(|controller| vec![controller]),
        deletion_timestamp: pod.metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    let status = pod.status.map(|status| PodStatus { conditions: status.conditions, ..PodStatus::default() });
    Pod { metadata, spec: None, status }
}

/// Returns the expected and the required healthy number of pods, or the reason why they are unknown.
async fn count(
    budget: &PodDisruptionBudget,
    pods: &[Pod],
    cx: &Context<PodDisruptionBudget>,
) -> Result<Result<(i32, i32), String>> {
    let Some(spec) = &budget.spec else { return Ok(Ok((0, 0))) };
    let there = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let expected = expected(pods, cx).await?;
            Ok(expected.map(|expected| (expected, expected.saturating_sub(scaled(most, expected, true)).max(0))))
        }
        (None, Some(IntOrString::Int(least))) => Ok(Ok((there, *least))),
        (None, Some(least)) => {
            let expected = expected(pods, cx).await?;
            Ok(expected.map(|expected| (expected, scaled(least, expected, true))))
        }
        (None, None) => Ok(Ok((there, 0))),
    }
}

/// Adds up the desired replicas of the pods' controllers.
async fn expected(pods: &[Pod], cx: &Context<PodDisruptionBudget>) -> Result<Result<i32, String>> {
    let mut scales: BTreeMap<String, i32> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = owners::controller_of(pod) else { continue };
        if scales.contains_key(&owner.uid) {
            continue;
        }
        let key = cx.sibling(&owner.name);
        let is_it = |uid: Option<&String>| uid == Some(&owner.uid);
        let scale = match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("apps/v1", "ReplicaSet") => {
                match cx.get::<ReplicaSet>(&key).await?.filter(|set| is_it(set.metadata.uid.as_ref())) {
                    Some(set) => replica_set(&set, cx).await?,
                    None => None,
                }
            }
            ("apps/v1", "StatefulSet") => {
                let set = cx.get::<StatefulSet>(&key).await?.filter(|set| is_it(set.metadata.uid.as_ref()));
                set.and_then(|set| Some((owner.uid.clone(), set.spec?.replicas.unwrap_or(1))))
            }
            ("v1", "ReplicationController") => {
                let set = cx.get::<ReplicationController>(&key).await?.filter(|set| is_it(set.metadata.uid.as_ref()));
                set.and_then(|set| Some((owner.uid.clone(), set.spec?.replicas.unwrap_or(1))))
            }
            _ => None,
        };
        let Some((uid, scale)) = scale else {
            let text = format!("found no controllers for pod \"{}\"", pod.name_any());
            return Ok(Err(text));
        };
        scales.insert(uid, scale);
    }
    Ok(Ok(scales.into_values().fold(0, i32::saturating_add)))
}

/// Returns the deployment behind a replica set with its size, or the set itself.
async fn replica_set(set: &ReplicaSet, cx: &Context<PodDisruptionBudget>) -> Result<Option<(String, i32)>> {
    if let Some(owner) = owners::controller_of(set).filter(|owner| owner.kind == "Deployment") {
        let deployment = cx.get::<Deployment>(&cx.sibling(&owner.name)).await?;
        let deployment = deployment.filter(|deployment| deployment.metadata.uid.as_ref() == Some(&owner.uid));
        return Ok(deployment.and_then(|found| Some((owner.uid.clone(), found.spec?.replicas.unwrap_or(1)))));
    }
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    Ok(set.metadata.uid.clone().map(|uid| (uid, replicas)))
}

/// Counts the healthy pods; returns the status and the delay before evicted pods that still exist are checked again.
fn status(
    budget: &PodDisruptionBudget,
    pods: &[Pod],
    expected: i32,
    desired: i32,
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<SignedDuration>) {
    let before = budget.status.clone().unwrap_or_default();
    let mut disrupted = before.disrupted_pods.clone().unwrap_or_default();
    let staying = pods.iter().filter(|pod| !pods::is_deleting(*pod));
    let staying: BTreeSet<&str> = staying.filter_map(|pod| pod.metadata.name.as_deref()).collect();
    disrupted.retain(|name, since| staying.contains(&**name) && now.duration_since(since.0) < EVICTION);
    let recheck = disrupted.values().map(|since| EVICTION - now.duration_since(since.0)).min();
    let is_healthy = |pod: &&Pod| !pods::is_deleting(*pod) && !disrupted.contains_key(&pod.name_any()) && is_ready(pod);
    let healthy = i32::try_from(pods.iter().filter(is_healthy).count()).unwrap_or(i32::MAX);
    let allowed = if expected <= 0 { 0 } else { healthy.saturating_sub(desired).max(0) };
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: budget.metadata.generation,
        conditions: before.conditions,
    };
    let (holds, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    put(budget, &mut status, holds, reason, String::new(), now);
    (status, recheck)
}

/// Sets the condition `DisruptionAllowed`.
fn put(
    budget: &PodDisruptionBudget,
    status: &mut PodDisruptionBudgetStatus,
    holds: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    let mut condition = Condition {
        type_: "DisruptionAllowed".into(),
        status: holds.into(),
        reason: reason.into(),
        message,
        observed_generation: budget.metadata.generation,
        last_transition_time: time(now),
    };
    match conditions.iter_mut().find(|known| known.type_ == condition.type_) {
        Some(known) => {
            if known.status == condition.status {
                condition.last_transition_time = known.last_transition_time.clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}
