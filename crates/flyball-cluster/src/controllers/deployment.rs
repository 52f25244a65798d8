//! Rolls deployments out: one replica set per template, the new one growing while the old ones shrink.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/deployment/>.

mod history;
mod rolling;
mod status;

pub(super) use rolling::scaled;

use crate::workload::events::Events;
use crate::workload::owners::{self, Orphans, Selector};
use crate::workload::pods;
use crate::workload::selection::{BySelector, Selects, candidates};
use flyball::{Action, Context, Controller, Reconcile, Result};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use kube::ResourceExt;
use rolling::{Bounds, Size};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(Deployments(Events::new("deployment-controller")))
        .owns::<ReplicaSet>()
        .watches::<ReplicaSet>(candidates::<Deployment>)
        .index::<BySelector<Deployment>>()
        .index::<Orphans<ReplicaSet>>()
        .replaces::<ReplicaSet>()
        .replaces::<Deployment>()
        .while_deleting()
}

impl Selects for Deployment {
    fn selector(&self) -> Option<Selector> {
        let spec = self.spec.as_ref()?;
        Selector::new(Some(&spec.selector)).filter(|selector| !selector.is_empty())
    }
}

fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns true if a set has pods, or may have pods that are not in its status yet.
fn has_pods(set: &ReplicaSet) -> bool {
    set.status.as_ref().is_none_or(|status| {
        status.replicas > 0
            || status.terminating_replicas.unwrap_or(0) > 0
            || status.observed_generation < set.metadata.generation
    })
}

fn number<T: std::str::FromStr>(set: &ReplicaSet, annotation: &str) -> Option<T> {
    set.annotations().get(annotation)?.parse().ok()
}

fn revision(set: &ReplicaSet) -> i64 {
    number(set, REVISION).unwrap_or(0)
}

struct Deployments(Events);

impl Reconcile for Deployments {
    type Resource = Deployment;

    async fn reconcile(&self, deployment: &Deployment, cx: &Context<Deployment>) -> Result<Action> {
        let (Some(spec), Some(selector)) = (&deployment.spec, deployment.selector()) else { return Ok(Action::done()) };
        let sets = owners::claim(deployment, &selector, cx).await?;
        let (new, old) = history::split(deployment, sets);
        let mut rollout =
            Rollout { cx, events: &self.0, original: deployment, deployment: deployment.clone(), new, old };
        if pods::is_deleting(deployment) {
            rollout.count();
        } else {
            rollout.note_pause();
            if spec.paused == Some(true) || rollout.is_resized() {
                rollout.sync_revision(false).await?;
                rollout.resize().await?;
                rollout.count();
                if spec.paused == Some(true) {
                    rollout.clean_up().await?;
                }
            } else {
                if rollout.is_rolling() {
                    rollout.roll().await?
                } else {
                    rollout.recreate().await?
                }
                rollout.sync_rollout_status();
                if rollout.is_complete() {
                    rollout.clean_up().await?;
                }
            }
        }
        rollout.write_status().await?;
        Ok(rollout.wait().map_or_else(Action::done, Action::requeue_after))
    }
}

/// One reconcile of a deployment.
struct Rollout<'a> {
    cx: &'a Context<Deployment>,
    events: &'a Events,
    original: &'a Deployment,
    deployment: Deployment,
    /// The replica set of the current template.
    new: Option<ReplicaSet>,
    /// All others, oldest first.
    old: Vec<ReplicaSet>,
}

impl Rollout<'_> {
    fn spec(&self) -> &DeploymentSpec {
        self.deployment.spec.as_ref().expect("the deployment of a rollout has a spec")
    }

    fn desired(&self) -> i32 {
        self.spec().replicas.unwrap_or(1)
    }

    fn all(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.new.iter().chain(&self.old)
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.spec().strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate")
    }

    fn bounds(&self) -> Bounds {
        if !self.is_rolling() {
            return Bounds::default();
        }
        let rolling = self.spec().strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        Bounds::resolve(surge, unavailable, self.desired())
    }

    fn most_unavailable(&self) -> i32 {
        self.bounds().unavailable.min(self.desired())
    }

    /// Returns true if the desired number was changed since the replica sets were last scaled.
    fn is_resized(&self) -> bool {
        self.all()
            .any(|set| replicas(set) > 0 && number(set, DESIRED).is_some_and(|desired: i32| desired != self.desired()))
    }

    /// Returns the maximum size of the new replica set, given its current size.
    fn growth(&self, new: i32) -> i32 {
        match self.is_rolling() {
            true => rolling::grown(new, rolling::total(self.all().map(replicas)), self.desired(), self.bounds().surge),
            false => self.desired(),
        }
    }

    /// Executes the next step of a rolling update.
    async fn roll(&mut self) -> Result<()> {
        self.sync_revision(true).await?;
        let Some(new) = self.new.clone() else { return Ok(()) };
        let size = replicas(&new);
        if size != self.desired() {
            let next = if size > self.desired() { self.desired() } else { self.growth(size) };
            if next != size {
                self.new = Some(self.scale(&new, next).await?);
                return Ok(());
            }
        }
        let sizes: Vec<Size> = self.old.iter().map(sized).collect();
        let sizes = rolling::shrunk(&sizes, sized(&new), self.desired(), self.most_unavailable());
        self.scale_old(&sizes).await
    }

    /// Executes the next step of an update of type `Recreate`.
    async fn recreate(&mut self) -> Result<()> {
        self.sync_revision(false).await?;
        if self.old.iter().any(|set| replicas(set) > 0) {
            return self.scale_old(&vec![0; self.old.len()]).await;
        }
        if self.old.iter().any(has_pods) {
            return Ok(());
        }
        self.sync_revision(true).await?;
        if let Some(new) = self.new.clone().filter(|new| replicas(new) != self.desired()) {
            self.new = Some(self.scale(&new, self.desired()).await?);
        }
        Ok(())
    }

    /// Scales the replica sets proportionally after a change of the desired number.
    async fn resize(&mut self) -> Result<()> {
        let mut active: Vec<ReplicaSet> = self.all().filter(|set| replicas(set) > 0).cloned().collect();
        let only = match active.as_slice() {
            [] => self.new.as_ref().or(self.old.last()).cloned(),
            [only] => Some(only.clone()),
            _ => None,
        };
        let is_saturated = |set: &ReplicaSet| {
            let available = set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
            [replicas(set), number(set, DESIRED).unwrap_or(-1), available] == [self.desired(); 3]
        };
        if let Some(only) = only {
            if replicas(&only) != self.desired() {
                let scaled = self.scale(&only, self.desired()).await?;
                self.put(scaled);
            }
        } else if self.new.as_ref().is_some_and(is_saturated) {
            self.scale_old(&vec![0; self.old.len()]).await?;
        } else if self.is_rolling() {
            let most = self.desired().saturating_add(self.bounds().surge);
            let grows = most > rolling::total(active.iter().map(replicas));
            active.sort_by_key(|set| (set.creation_timestamp(), set.name_any()));
            if grows {
                active.reverse();
            }
            active.sort_by_key(|set| std::cmp::Reverse(replicas(set)));
            let sizes: Vec<Size> = active.iter().map(sized).collect();
            let before = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
            let sizes = rolling::spread(&sizes, self.desired(), self.bounds().surge, before);
            for (set, size) in active.iter().zip(sizes) {
                let scaled = self.scale(set, size).await?;
                self.put(scaled);
            }
        }
        Ok(())
    }

    async fn scale_old(&mut self, sizes: &[i32]) -> Result<()> {
        for (at, size) in sizes.iter().enumerate() {
            if replicas(&self.old[at]) != *size {
                self.old[at] = self.scale(&self.old[at].clone(), *size).await?;
            }
        }
        Ok(())
    }

    /// Replaces the stored state of a replica set.
    fn put(&mut self, set: ReplicaSet) {
        let known = self.new.iter_mut().chain(&mut self.old).find(|known| known.metadata.uid == set.metadata.uid);
        if let Some(known) = known {
            *known = set;
        }
    }

    async fn scale(&self, set: &ReplicaSet, size: i32) -> Result<ReplicaSet> {
        let (mut scaled, before) = (set.clone(), replicas(set));
        scaled.spec.get_or_insert_default().replicas = Some(size);
        self.annotate_sizes(scaled.annotations_mut());
        if scaled == *set {
            return Ok(scaled);
        }
        let scaled = self.cx.replace(&scaled).await?;
        if before != size {
            let way = if size > before { "up" } else { "down" };
            self.publish(format!("Scaled {way} replica set {} from {before} to {size}", set.name_any())).await;
        }
        Ok(scaled)
    }

    async fn publish(&self, message: String) {
        self.events.normal(self.cx, &self.deployment, "ScalingReplicaSet", message).await;
    }
}

fn sized(set: &ReplicaSet) -> Size {
    let available = set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    Size { replicas: replicas(set), available, max: number(set, MAX) }
}
