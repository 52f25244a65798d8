//! Finds nodes for pods, as kube-scheduler does.
//!
//! Watches update a view of the cluster, [`State`]; a loop takes one pod after the other from its queue, decides by
//! this view, and sends the binding to the API server. Bindings are assumed immediately, before the watches report
//! them. See <https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/>.
//!
//! Not implemented: preemption, extenders, profiles, dynamic resources. Without a ready node, pods get no condition: a
//! cluster without nodes behaves as one without a scheduler.

mod neighbors;
mod nodes;
mod pods;
mod queue;
mod state;
mod volumes;

use crate::workload::events::{Allowance, Note};
use crate::workload::time;
use flyball::{Resource, WatchEvent, watch_objects};
use flyball_core::{Clock, ObjectKey, Rng};
use futures_util::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::{
    Binding, Namespace, Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use parking_lot::{Mutex, MutexGuard};
use pods::PendingPod;
use serde_json::json;
use state::{Decision, State};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use volumes::SELECTED_NODE;

const MANAGER: &str = "kube-scheduler";
/// Number of watched kinds.
const KINDS: usize = 6;

/// Runs the scheduler.
pub(crate) async fn run(client: kube::Client, clock: Clock, rng: Rng) {
    let shared = Arc::new(SharedState::default());
    let watches: [BoxFuture<'static, ()>; KINDS] = [
        shared.follow::<Namespace>(&client, &rng, |state, key, namespace| {
            state.put_namespace(key.name().to_owned(), namespace.map(|namespace| namespace.labels().clone()));
        }),
        shared.follow::<Node>(&client, &rng, |state, key, node| match node {
            Some(node) => state.put_node(&node),
            None => state.remove_node(key.name()),
        }),
        shared.follow::<StorageClass>(&client, &rng, |state, key, class| {
            state.change_volumes(|volumes| volumes.put_class(key.name().to_owned(), class.as_deref()));
        }),
        shared.follow::<PersistentVolume>(&client, &rng, |state, key, volume| {
            state.change_volumes(|volumes| volumes.put_volume(key.name().to_owned(), volume.as_deref()));
        }),
        shared.follow::<PersistentVolumeClaim>(&client, &rng, |state, key, claim| {
            state.change_volumes(|volumes| volumes.put_claim(key, claim.as_deref()))
        }),
        shared.follow::<Pod>(&client, &rng, |state, key, pod| match pod {
            Some(pod) => state.put_pod(key, pod),
            None => state.remove_pod(&key),
        }),
    ];
    let scheduler = Scheduler { client, clock, rng, shared, allowance: Allowance::default() };
    tokio::select! {
        biased;
        _ = join_all(watches) => {}
        () = scheduler.run() => {}
    }
}

/// State shared by the watches and the loop.
#[derive(Default)]
struct SharedState {
    state: Mutex<State>,
    /// Kinds that have been listed.
    known: Mutex<Vec<String>>,
    /// Notified when the state changed.
    notify: Notify,
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn known(&self) -> MutexGuard<'_, Vec<String>> {
        self.known.lock()
    }

    /// Updates the state from a watch of a kind.
    fn follow<T: Resource>(
        self: &Arc<Self>,
        client: &kube::Client,
        rng: &Rng,
        put: impl Fn(&mut State, ObjectKey, Option<Box<T>>) + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let (shared, client, rng) = (self.clone(), client.clone(), rng.fork(&T::kind(&())));
        Box::pin(async move {
            let tell = move |seen| {
                match seen {
                    WatchEvent::Applied(key, object) => put(&mut shared.state(), key, Some(object)),
                    WatchEvent::Deleted { key, .. } => put(&mut shared.state(), key, None),
                    _ => {
                        let kind = T::kind(&()).into_owned();
                        let mut known = shared.known();
                        if !known.contains(&kind) {
                            known.push(kind);
                        }
                    }
                }
                shared.notify.notify_one();
            };
            watch_objects(client, &rng, tell).await;
        })
    }
}

struct Scheduler {
    client: kube::Client,
    clock: Clock,
    rng: Rng,
    shared: Arc<SharedState>,
    allowance: Allowance,
}

impl Scheduler {
    async fn run(&self) {
        while self.shared.known().len() < KINDS {
            self.shared.notify.notified().await;
        }
        loop {
            let decision = self.shared.state().next(Instant::now());
            match decision {
                Some(decision) => self.execute_decision(decision).await,
                None => {
                    let due = self.shared.state().next_due();
                    tokio::select! {
                        biased;
                        () = self.shared.notify.notified() => {}
                        () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                    }
                }
            }
            // Decisions without I/O would otherwise block the runtime.
            tokio::task::coop::consume_budget().await;
        }
    }

    async fn execute_decision(&self, decision: Decision) {
        match decision {
            Decision::Bind(pending, node) => {
                self.shared.state().assume(&pending, &node);
                match self.bind(&pending, &node).await {
                    Ok(()) => {
                        let note = format!("Successfully assigned {} to {node}", pending.key());
                        self.publish(&pending, Note::normal("Scheduled", note).action("Binding")).await;
                    }
                    Err(error) => {
                        tracing::debug!(pod = %pending.key(), %node, %error, "binding failed");
                        self.shared.state().forget(&pending, Instant::now());
                    }
                }
            }
            Decision::Choose(pending, node, claims) => {
                self.shared.state().unfit(&pending, Instant::now());
                for claim in claims {
                    let patch = json!({"metadata": {"annotations": {SELECTED_NODE: *node}}});
                    let api = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &pending.facts.namespace);
                    if let Err(error) = api.patch(claim.name(), &params(), &Patch::Merge(patch)).await {
                        tracing::debug!(%claim, %error, "cannot annotate a claim with its node");
                    }
                }
            }
            Decision::Unfit(pending, why) => {
                self.shared.state().unfit(&pending, Instant::now());
                if self.mark_unschedulable(&pending, &why).await {
                    self.publish(&pending, Note::warning("FailedScheduling", why).action("Scheduling")).await;
                }
            }
            Decision::Nothing => {}
        }
    }

    async fn bind(&self, pending: &PendingPod, node: &str) -> kube::Result<()> {
        let binding = Binding {
            metadata: ObjectMeta {
                name: pending.pod.metadata.name.clone(),
                namespace: pending.pod.metadata.namespace.clone(),
                uid: pending.pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".into()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let api = Api::<Pod>::namespaced(self.client.clone(), &pending.facts.namespace);
        let params = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
        let name = pending.pod.name_any();
        api.create_subresource::<Binding, serde_json::Value>("binding", &name, &params, &binding).await.map(drop)
    }

    /// Sets the condition that a pod is unschedulable; returns false if it was set before.
    async fn mark_unschedulable(&self, pending: &PendingPod, why: &str) -> bool {
        let conditions = pending.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let before = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
        let is_unschedulable =
            |known: &&PodCondition| known.status == "False" && known.reason.as_deref() == Some("Unschedulable");
        let existing = before.filter(is_unschedulable);
        if existing.is_some_and(|known| known.message.as_deref() == Some(why)) {
            return false;
        }
        let condition = PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: Some("Unschedulable".into()),
            message: Some(why.to_owned()),
            last_transition_time: before
                .filter(|known| known.status == "False")
                .and_then(|known| known.last_transition_time.clone())
                .or_else(|| Some(time(self.clock.now()))),
            observed_generation: pending.pod.metadata.generation,
            ..PodCondition::default()
        };
        let patch = json!({"metadata": {"uid": pending.facts.uid}, "status": {"conditions": [condition]}});
        let api = Api::<Pod>::namespaced(self.client.clone(), &pending.facts.namespace);
        let written = api.patch_status(&pending.pod.name_any(), &params(), &Patch::Strategic(patch)).await;
        if let Err(error) = &written {
            tracing::debug!(pod = %pending.key(), %error, "cannot write the condition");
        }
        written.is_ok()
    }

    async fn publish(&self, pending: &PendingPod, note: Note) {
        if self.allowance.try_acquire() {
            note.by(state::NAME).publish(&self.client, &*pending.pod, &self.clock, &self.rng).await;
        }
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}
