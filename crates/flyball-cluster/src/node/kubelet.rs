//! Runs the pods of simulated nodes.

use super::environment::ReferencedObjects;
use super::pod_sync::PodSync;
use super::program::Program;
use super::{addresses::Addresses, is_down, is_simulated};
use crate::workload::events::Events;
use crate::workload::owners::tolerate;
use crate::workload::pods::{self, is_deleting, is_over};
use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, PodStatus, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of waiting pods with a trigger; further ones are synced at intervals.
const MAX_WAITING_PODS: usize = 100_000;
/// Sync interval of waiting pods without a trigger.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);

/// The pods that wait for a missing object: a node, or an object of their namespace.
#[derive(Debug, Default)]
struct WaitingPods(Mutex<BTreeSet<(String, ObjectKey)>>);

impl WaitingPods {
    /// Requeues the pod when an object appears; returns the action until then.
    fn add(&self, what: String, pod: &ObjectKey) -> Action {
        let mut waiting = self.0.lock();
        if waiting.len() >= MAX_WAITING_PODS {
            return Action::requeue_after(RESYNC_INTERVAL);
        }
        waiting.insert((what, pod.clone()));
        Action::done()
    }

    fn drain(&self, what: &str) -> Vec<ObjectKey> {
        let mut waiting = self.0.lock();
        let from = (what.to_owned(), ObjectKey::new(None, ""));
        let found: Vec<_> = waiting.range(from..).take_while(|(known, _)| known == what).cloned().collect();
        for one in &found {
            waiting.remove(one);
        }
        found.into_iter().map(|(_, pod)| pod).collect()
    }
}

fn for_node(name: &str) -> String {
    format!("node/{name}")
}

fn in_namespace(name: &str) -> String {
    format!("namespace/{name}")
}

/// Replaces the kubelets of all simulated nodes.
pub(crate) struct Kubelet {
    program: Arc<dyn Program>,
    has_root_ca: bool,
    waiting: Arc<WaitingPods>,
    addresses: Addresses,
    events: Events,
}

impl Kubelet {
    /// Creates a kubelet whose containers run in `program`. Without a server certificate there is no
    /// `kube-root-ca.crt`, and pods must not wait for it.
    pub(crate) fn new(program: Arc<dyn Program>, has_root_ca: bool) -> Self {
        let events = Events::of_program(super::MANAGER);
        Self { program, has_root_ca, waiting: Arc::default(), addresses: Addresses::of_pods(), events }
    }

    pub(crate) fn controller(self) -> Controller<impl Reconcile> {
        let [nodes, secrets, config_maps, claims] = [(); 4].map(|()| self.waiting.clone());
        let beside = |key: &ObjectKey| in_namespace(key.namespace().unwrap_or_default());
        Controller::new(self)
            .watches_by_key::<Node>(move |node, _| Ok(nodes.drain(&for_node(node.name()))))
            .watches_by_key::<Secret>(move |secret, _| Ok(secrets.drain(&beside(secret))))
            .watches_by_key::<ConfigMap>(move |map, _| Ok(config_maps.drain(&beside(map))))
            .watches_by_key::<PersistentVolumeClaim>(move |claim, _| Ok(claims.drain(&beside(claim))))
            .while_deleting()
    }
}

impl Reconcile for Kubelet {
    type Resource = Pod;

    async fn reconcile(&self, pod: &Pod, cx: &Context<Pod>) -> Result<Action> {
        let Some(name) = pods::node(pod) else { return Ok(Action::done()) };
        if is_over(pod) && !is_deleting(pod) {
            return Ok(Action::done());
        }
        let node = cx.get::<Node>(&ObjectKey::new(None, name)).await?;
        let Some(node) = node.filter(|node| is_simulated(node) && !is_down(node)) else {
            return Ok(self.waiting.add(for_node(name), cx.key()));
        };
        let mut referenced = ReferencedObjects::gather(pod, cx).await?;
        if !self.has_root_ca {
            referenced.ignore_root_ca();
        }
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let host_ip = addresses.into_iter().find(|address| address.type_ == "InternalIP");
        let Some(host_ip) = host_ip.map(|address| address.address.clone()) else {
            // The node is not registered yet.
            return Ok(self.waiting.add(for_node(name), cx.key()));
        };
        let pod_ip = match pod.status.as_ref().and_then(|status| status.pod_ip.clone()) {
            Some(known) => known,
            None => self.addresses.next(cx.caches())?,
        };
        let program = &*self.program;
        let sync = PodSync { pod, program, referenced: &referenced, host_ip: &host_ip, pod_ip, now: cx.now() };
        let synced = sync.sync_pod();
        if synced.is_missing_object {
            self.waiting.add(in_namespace(cx.key().namespace().unwrap_or_default()), cx.key());
        }
        if pod.status.as_ref() != Some(&synced.status) {
            let api = Api::<Pod>::namespaced(cx.client().clone(), cx.key().namespace().unwrap_or_default());
            let params = PatchParams { field_manager: Some(super::MANAGER.into()), ..PatchParams::default() };
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": merged(&synced.status)});
            let written = api.patch_status(cx.key().name(), &params, &Patch::Strategic(patch)).await;
            match tolerate(written.map_err(Into::into))? {
                Some(written) => cx.record_write(&written),
                None => return Ok(Action::done()),
            }
        }
        for event in synced.events {
            let kind = if event.is_warning { "Warning" } else { "Normal" };
            self.events.publish(cx, Some(name), pod, (kind, event.reason.into(), event.text)).await;
        }
        if synced.has_stopped {
            remove(pod, cx).await?;
            return Ok(Action::done());
        }
        let wait = synced.due.map(|due| due.duration_since(cx.now()).unsigned_abs());
        Ok(wait.map_or_else(Action::done, |wait| Action::requeue_after(wait.max(Duration::from_millis(1)))))
    }
}

/// Adds null for removed fields of each condition, since conditions are merged with the existing ones.
fn merged(status: &PodStatus) -> Value {
    let mut status = json!(status);
    let conditions = status["conditions"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
    for condition in conditions {
        for field in ["message", "reason"] {
            condition.entry(field).or_insert(Value::Null);
        }
    }
    status
}

/// Deletes a terminated pod from the API server.
async fn remove(pod: &Pod, cx: &Context<Pod>) -> Result<()> {
    let api = Api::<Pod>::namespaced(cx.client().clone(), cx.key().namespace().unwrap_or_default());
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() }),
        ..DeleteParams::default()
    };
    tolerate(api.delete(cx.key().name(), &params).await.map_err(Into::into))?;
    Ok(())
}
