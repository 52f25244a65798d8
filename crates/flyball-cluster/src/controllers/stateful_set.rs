//! Manages pods with stable names, in order.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/>.

mod claims;
mod identity;

use super::revisions::{self, History};
use crate::workload::events::Events;
use crate::workload::owners::{self, Orphans, Selector};
use crate::workload::pods::{self, is_active, is_available, is_deleting, is_over, is_ready};
use crate::workload::time;
use flyball::{Action, Context, Controller, Reconcile, Result};
use flyball_core::time::Timestamp;
use identity::{REVISION, ordinal};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Label of a revision with its hash.
const HASH: &str = "controller.kubernetes.io/hash";

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(StatefulSets(Events::new("statefulset-controller")))
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .owns::<PersistentVolumeClaim>()
        .watches::<PersistentVolumeClaim>(claims::sets_of)
        .watches(|pod: &Pod, caches| owners::candidates(pod, caches, selector))
        .index::<Orphans<Pod>>()
        .replaces::<Pod>()
        .replaces::<PersistentVolumeClaim>()
        .index::<Orphans<ControllerRevision>>()
        .replaces::<ControllerRevision>()
        .replaces::<StatefulSet>()
        .while_deleting()
}

fn selector(set: &StatefulSet) -> Option<Selector> {
    Selector::new(set.spec.as_ref().map(|spec| &spec.selector))
}

fn revision(pod: &Pod) -> &str {
    pod.labels().get(REVISION).map_or("", String::as_str)
}

struct StatefulSets(Events);

impl Reconcile for StatefulSets {
    type Resource = StatefulSet;

    async fn reconcile(&self, set: &StatefulSet, cx: &Context<StatefulSet>) -> Result<Action> {
        let (Some(spec), Some(selector)) = (&set.spec, selector(set)) else { return Ok(Action::done()) };
        let claimed: Vec<Pod> = owners::claim(set, &selector, cx).await?;
        let pods = claimed.into_iter().filter_map(|pod| Some((ordinal(set, &pod)?, pod))).collect();
        let status = set.status.clone().unwrap_or_default();
        let collisions = status.collision_count.unwrap_or(0);
        let history = revisions::sync(set, &selector, &spec.template, collisions, HASH, cx).await?;
        let current = status.current_revision.filter(|name| history.find(name).is_some());
        let current = current.unwrap_or_else(|| history.update.name_any());
        let mut step = Step { set, spec, cx, events: &self.0, history, current, pods, remaining: pods::BURST };
        let result = if is_deleting(set) { Ok(()) } else { step.run().await };
        let status = step.status(cx.now());
        if set.status.as_ref() != Some(&status) {
            owners::tolerate(cx.replace_status(&StatefulSet { status: Some(status), ..set.clone() }).await)?;
        }
        result?;
        let used = |name: &str| name == step.current || step.pods.values().any(|pod| revision(pod) == name);
        revisions::truncate(&step.history, spec.revision_history_limit, used, cx).await?;
        if step.remaining == 0 {
            return Ok(Action::requeue_after(pods::NEXT_BURST));
        }
        let pods: Vec<Pod> = step.pods.into_values().collect();
        let wait = pods::next_available(&pods, spec.min_ready_seconds, cx.now());
        Ok(wait
            .map_or_else(Action::done, |wait| Action::requeue_after(wait.unsigned_abs().max(Duration::from_millis(1)))))
    }
}

/// One step of a set towards its desired state.
struct Step<'a> {
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    cx: &'a Context<StatefulSet>,
    events: &'a Events,
    history: History,
    /// The name of the previous revision.
    current: String,
    /// The existing pods, by ordinal.
    pods: BTreeMap<i32, Pod>,
    /// Remaining number of pods that this step may create.
    remaining: usize,
}

impl Step<'_> {
    fn desired_ordinals(&self) -> Range<i32> {
        let start = self.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
        start..start.saturating_add(self.spec.replicas.unwrap_or(1))
    }

    fn is_parallel(&self) -> bool {
        self.spec.pod_management_policy.as_deref() == Some("Parallel")
    }

    fn partition(&self) -> i32 {
        let rolling = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        rolling.and_then(|rolling| rolling.partition).unwrap_or(0)
    }

    fn is_on_delete(&self) -> bool {
        self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete")
    }

    fn is_healthy(&self, pod: &Pod) -> bool {
        is_active(pod) && pods::phase(pod) == "Running" && is_available(pod, self.spec.min_ready_seconds, self.cx.now())
    }

    /// Creates missing pods, deletes surplus pods and replaces outdated ones; one at a time, unless the pod management
    /// is parallel.
    async fn run(&mut self) -> Result<()> {
        for ordinal in self.desired_ordinals() {
            if let Some(pod) = self.pods.get(&ordinal).filter(|pod| is_over(pod)) {
                if !is_deleting(pod) {
                    self.delete(ordinal).await?;
                }
                // The next one is created after this one was deleted.
                if self.is_parallel() {
                    continue;
                }
                return Ok(());
            }
            if !self.pods.contains_key(&ordinal) {
                if self.has_stale_claim(ordinal).await? {
                    return Ok(());
                }
                // The next step continues.
                let Some(remaining) = self.remaining.checked_sub(1) else { return Ok(()) };
                self.remaining = remaining;
                self.create(ordinal).await?;
                if !self.is_parallel() {
                    return Ok(());
                }
            }
            if pods::phase(&self.pods[&ordinal]) == "Pending" {
                self.create_claims(ordinal).await?;
            }
            if !self.is_parallel() && !self.is_healthy(&self.pods[&ordinal]) {
                return Ok(());
            }
            self.keep_claims(ordinal).await?;
        }
        let condemned: Vec<i32> =
            self.pods.keys().rev().copied().filter(|at| !self.desired_ordinals().contains(at)).collect();
        for ordinal in &condemned {
            self.keep_claims(*ordinal).await?;
        }
        let first_unhealthy = condemned.iter().rev().find(|at| !self.is_healthy(&self.pods[at]));
        for ordinal in &condemned {
            let pod = &self.pods[ordinal];
            let waits = is_deleting(pod) || !self.is_healthy(pod) && first_unhealthy != Some(ordinal);
            if !is_deleting(pod) && (self.is_parallel() || !waits) {
                self.delete(*ordinal).await?;
            }
            if !self.is_parallel() {
                return Ok(());
            }
        }
        self.update().await
    }

    /// Replaces the pods of the old template, in reverse order.
    async fn update(&mut self) -> Result<()> {
        if self.is_on_delete() {
            return Ok(());
        }
        for ordinal in (self.first_updated()..self.desired_ordinals().end).rev() {
            let Some(pod) = self.pods.get(&ordinal) else { return Ok(()) };
            if revision(pod) != self.history.update.name_any() && !is_deleting(pod) {
                return self.delete(ordinal).await;
            }
            if !self.is_healthy(pod) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the first ordinal that is updated.
    fn first_updated(&self) -> i32 {
        self.desired_ordinals().start.saturating_add(self.partition())
    }

    async fn create(&mut self, ordinal: i32) -> Result<()> {
        let pod_name = identity::name(self.set, ordinal);
        let (events, cx, set) = (self.events, self.cx, self.set.name_any());
        let created = match self.create_claims(ordinal).await {
            Ok(()) => {
                // Below the partition, and in its first rollout, a set creates pods of the old template.
                let is_below = !self.is_on_delete() && ordinal < self.first_updated();
                let name = if is_below { self.current.clone() } else { self.history.update.name_any() };
                let template = self.history.find(&name).and_then(revisions::template);
                let template = template.unwrap_or_else(|| self.spec.template.clone());
                cx.create(&identity::pod(self.set, self.spec, &template, ordinal, &name)).await
            }
            Err(error) => Err(error),
        };
        match created {
            Ok(pod) => {
                self.pods.insert(ordinal, pod);
                let text = format!("Create Pod {pod_name} in StatefulSet {set} successful");
                events.normal(cx, self.set, "SuccessfulCreate", text).await;
                self.keep_claims(ordinal).await
            }
            Err(error) if error.downcast_ref().is_some_and(flyball::is_namespace_terminating) => Ok(()),
            Err(error) => {
                let why = pods::reason(&error);
                let text = format!("Create Pod {pod_name} in StatefulSet {set} failed error: {why}");
                events.warning(cx, self.set, "FailedCreate", text).await;
                Err(error)
            }
        }
    }

    async fn delete(&mut self, ordinal: i32) -> Result<()> {
        let Some(pod) = self.pods.get_mut(&ordinal) else { return Ok(()) };
        let (name, set) = (pod.name_any(), self.set.name_any());
        match self.cx.delete(pod).await {
            Ok(()) => {
                pod.metadata.deletion_timestamp = Some(time(self.cx.now()));
                let text = format!("Delete Pod {name} in StatefulSet {set} successful");
                self.events.normal(self.cx, self.set, "SuccessfulDelete", text).await;
                Ok(())
            }
            Err(error) => {
                let why = pods::reason(&error);
                let text = format!("Delete Pod {name} in StatefulSet {set} failed error: {why}");
                self.events.warning(self.cx, self.set, "FailedDelete", text).await;
                Err(error)
            }
        }
    }

    fn status(&mut self, now: Timestamp) -> StatefulSetStatus {
        let count = |test: &dyn Fn(&Pod) -> bool| {
            i32::try_from(self.pods.values().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX)
        };
        let some = |count: i32| (count > 0).then_some(count);
        let update = self.history.update.name_any();
        let is_of = |pod: &Pod, name: &str| !is_deleting(pod) && revision(pod) == name;
        let updated = count(&|pod| is_of(pod, &update));
        let replicas = count(&|_| true);
        let ready = count(&|pod| pods::phase(pod) == "Running" && is_ready(pod));
        // Once all pods are new, the new revision is the current one.
        let is_done = updated == replicas && ready == replicas && replicas == self.spec.replicas.unwrap_or(1);
        if is_done && !self.is_on_delete() {
            self.current = update.clone();
        }
        let current = count(&|pod| is_of(pod, &self.current));
        StatefulSetStatus {
            replicas,
            ready_replicas: some(ready),
            available_replicas: Some(count(&|pod| {
                pods::phase(pod) == "Running" && is_available(pod, self.spec.min_ready_seconds, now)
            })),
            current_replicas: some(current),
            updated_replicas: some(updated),
            current_revision: Some(self.current.clone()),
            update_revision: Some(update.clone()),
            collision_count: Some(self.history.collisions),
            observed_generation: self.set.metadata.generation,
            conditions: self.set.status.as_ref().and_then(|status| status.conditions.clone()),
        }
    }
}
