//! Runs one pod of a daemon set on every matching node.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/>.

mod backoff;
mod nodes;
mod placement;
mod rolling;

use super::deployment::scaled;
use super::revisions;
use crate::workload::events::Events;
use crate::workload::owners::{self, Orphans, Selector};
use crate::workload::pods::{self, is_available, is_deleting, is_over, is_ready};
use crate::workload::selection::{BySelector, Selects, candidates};
use crate::workload::time;
use backoff::Backoffs;
use flyball::{Action, Context, Controller, Predicate, Reconcile, Result};
use flyball_core::time::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use nodes::{NodeDecision, target};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

const HASH: &str = "controller-revision-hash";
/// The template generation, an annotation of the set and a label of its pods; replaced by hashes.
const GENERATION: (&str, &str) = ("deprecated.daemonset.template.generation", "pod-template-generation");

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    let daemons = DaemonSets { events: Events::new("daemonset-controller"), backoffs: Backoffs::default() };
    let is_moved = Predicate::labels().or(Predicate::new(|old: &Node, new: &Node| old.spec != new.spec));
    Controller::new(daemons)
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .watches::<Pod>(candidates::<DaemonSet>)
        .index::<BySelector<DaemonSet>>()
        .watches_by_key::<Node>(|_, caches| caches.keys::<DaemonSet>(None))
        .filter::<Node>(is_moved)
        .index::<Orphans<Pod>>()
        .replaces::<Pod>()
        .index::<Orphans<ControllerRevision>>()
        .replaces::<ControllerRevision>()
        .replaces::<DaemonSet>()
}

impl Selects for DaemonSet {
    fn selector(&self) -> Option<Selector> {
        Selector::new(self.spec.as_ref().map(|spec| &spec.selector)).filter(|selector| !selector.is_empty())
    }
}

struct DaemonSets {
    events: Events,
    backoffs: Backoffs,
}

impl Reconcile for DaemonSets {
    type Resource = DaemonSet;

    async fn reconcile(&self, set: &DaemonSet, cx: &Context<DaemonSet>) -> Result<Action> {
        let (Some(spec), Some(selector)) = (&set.spec, set.selector()) else { return Ok(Action::done()) };
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let history = revisions::sync(set, &selector, &spec.template, collisions.unwrap_or(0), HASH, cx).await?;
        let hash = history.update.labels().get(HASH).cloned().unwrap_or_else(|| history.update.name_any());
        let claimed = owners::claim(set, &selector, cx).await?;
        let mut daemon = Daemon { set, spec, hash, nodes: cx.list(None).await?, pods: BTreeMap::new(), now: cx.now() };
        let hashes: Vec<Option<String>> = claimed.iter().map(|pod: &Pod| pod.labels().get(HASH).cloned()).collect();
        daemon.add_pods(claimed);
        let result = self.manage(&mut daemon, cx).await;
        let used = |name: &str| {
            let revision = history.find(name);
            revision.is_some_and(|revision| hashes.contains(&revision.labels().get(HASH).cloned()))
        };
        let status = DaemonSetStatus {
            collision_count: Some(history.collisions).filter(|count| *count > 0).or(collisions),
            ..daemon.status()
        };
        if result.is_ok() {
            revisions::truncate(&history, spec.revision_history_limit, used, cx).await?;
        }
        if set.status.as_ref() != Some(&status) {
            owners::tolerate(cx.replace_status(&DaemonSet { status: Some(status), ..set.clone() }).await)?;
        }
        let failed = result?;
        let pods: Vec<Pod> = daemon.pods.into_values().flatten().collect();
        let available = pods::next_available(&pods, spec.min_ready_seconds, cx.now()).map(|wait| wait.unsigned_abs());
        let wait = [failed, available].into_iter().flatten().min();
        Ok(wait.map_or_else(Action::done, |wait| Action::requeue_after(wait.max(Duration::from_millis(1)))))
    }
}

impl DaemonSets {
    /// Creates and deletes pods until the daemon set is complete; returns the delay before failed pods may be retried.
    async fn manage(&self, daemon: &mut Daemon<'_>, cx: &Context<DaemonSet>) -> Result<Option<Duration>> {
        let (placement, wait) = self.placement(daemon, cx).await;
        daemon.execute(placement, &self.events, cx).await?;
        let is_on_delete = daemon.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
        if is_on_delete != Some("OnDelete") {
            daemon.execute(rolling::plan(daemon), &self.events, cx).await?;
        }
        Ok(wait)
    }
}

/// Pods to create, by node, and pods to delete.
#[derive(Debug, Default)]
struct Plan {
    create: Vec<String>,
    delete: Vec<Pod>,
}

/// A daemon set with its revisions, nodes and pods.
struct Daemon<'a> {
    set: &'a DaemonSet,
    spec: &'a DaemonSetSpec,
    hash: String,
    nodes: Vec<Node>,
    /// The pods by node, assigned or intended; on each node sorted by assigned before intended, then by age.
    pods: BTreeMap<String, Vec<Pod>>,
    now: Timestamp,
}

impl Daemon<'_> {
    fn decision(&self, node: &Node) -> NodeDecision {
        self.spec.template.spec.as_ref().map_or(NodeDecision::Leave, |spec| nodes::decide(spec, node))
    }

    /// Returns the maximum surge and the maximum of unavailable pods in an update on this number of nodes.
    fn bounds(&self, nodes: i32) -> (i32, i32) {
        let rolling = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref()).map_or(0, |most| scaled(most, nodes, true));
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let unavailable = unavailable.map_or(0, |most| scaled(most, nodes, true));
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
    }

    fn generation(&self) -> Option<&String> {
        self.set.annotations().get(GENERATION.0)
    }

    /// Returns true if a pod has the current template.
    fn is_updated(&self, pod: &Pod) -> bool {
        let of_generation = self.generation().is_some_and(|of| pod.labels().get(GENERATION.1) == Some(of));
        of_generation || pod.labels().get(HASH) == Some(&self.hash)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.spec.min_ready_seconds, self.now)
    }

    /// Adds pods, except for terminated ones that are being deleted.
    fn add_pods(&mut self, pods: Vec<Pod>) {
        for pod in pods.into_iter().filter(|pod| !(is_over(pod) && is_deleting(pod))) {
            if let Some(node) = target(&pod) {
                self.pods.entry(node).or_default().push(pod);
            }
        }
        for pods in self.pods.values_mut() {
            pods.sort_by_cached_key(|pod| (pods::node(pod).is_none(), pod.creation_timestamp(), pod.name_any()));
        }
    }

    async fn execute(&mut self, plan: Plan, events: &Events, cx: &Context<DaemonSet>) -> Result<()> {
        let pod = |at: usize| Cow::Owned(self.pod(&plan.create[at]));
        let (created, result) = pods::create(self.set, plan.create.len(), pod, events, cx).await;
        self.add_pods(created);
        result?;
        for pod in plan.delete.iter().take(pods::BURST) {
            pods::delete(self.set, pod, events, cx).await?;
            let deleted = self.pods.values_mut().flatten().find(|known| known.metadata.uid == pod.metadata.uid);
            if let Some(deleted) = deleted {
                deleted.metadata.deletion_timestamp = Some(time(self.now));
            }
        }
        Ok(())
    }

    fn pod(&self, node: &str) -> Pod {
        let mut pod = pods::from_template(&self.spec.template, self.set);
        pod.labels_mut().insert(HASH.into(), self.hash.clone());
        if let Some(generation) = self.generation() {
            pod.labels_mut().insert(GENERATION.1.into(), generation.clone());
        }
        nodes::tie(pod.spec.get_or_insert_default(), node);
        pod
    }

    fn status(&self) -> DaemonSetStatus {
        let mut status = DaemonSetStatus {
            observed_generation: self.set.metadata.generation,
            conditions: self.set.status.as_ref().and_then(|status| status.conditions.clone()),
            ..DaemonSetStatus::default()
        };
        let (mut available, mut updated) = (0, 0);
        for node in &self.nodes {
            let pod = self.pods.get(&node.name_any()).and_then(|pods| pods.first());
            if self.decision(node) != NodeDecision::Run {
                status.number_misscheduled += i32::from(pod.is_some());
                continue;
            }
            status.desired_number_scheduled += 1;
            if let Some(pod) = pod {
                status.current_number_scheduled += 1;
                status.number_ready += i32::from(is_ready(pod));
                available += i32::from(self.is_available(pod));
                updated += i32::from(self.is_updated(pod));
            }
        }
        let some = |count: i32| (count > 0).then_some(count);
        status.number_available = some(available);
        status.number_unavailable = some(status.desired_number_scheduled - available);
        status.updated_number_scheduled = some(updated);
        status
    }
}
