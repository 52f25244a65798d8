//! Registration of simulated nodes, like that of a kubelet: capacity, conditions and lease.
//!
//! See <https://kubernetes.io/docs/reference/node/node-status/>.

use super::{Addresses, is_down, is_simulated};
use crate::workload::owners::tolerate;
use crate::workload::time;
use flyball::{Action, Context, Controller, Reconcile, Result};
use flyball_core::time::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const NAMESPACE: &str = "kube-node-lease";
/// Interval of lease renewals. Real nodes renew every ten seconds; the longer interval makes a thousand nodes cheap.
const HEARTBEAT: Duration = Duration::from_mins(5);
/// Lease duration in seconds.
const LEASE_DURATION_SECONDS: i32 = 15 * 60;
/// Default capacity of a node.
const USUAL: [(&str, &str); 4] = [("cpu", "8"), ("memory", "32Gi"), ("ephemeral-storage", "100Gi"), ("pods", "110")];

/// Creates the controller.
pub(crate) fn registration() -> Controller<impl Reconcile> {
    Controller::new(Registration { addresses: Addresses::of_nodes() }).name("node").reads::<Lease>()
}

struct Registration {
    addresses: Addresses,
}

impl Reconcile for Registration {
    type Resource = Node;

    async fn reconcile(&self, node: &Node, cx: &Context<Node>) -> Result<Action> {
        if !is_simulated(node) {
            return Ok(Action::done());
        }
        let (api, name) = (Api::<Node>::all(cx.client().clone()), cx.key().name());
        let params = PatchParams { field_manager: Some(super::MANAGER.into()), ..PatchParams::default() };
        let labels: BTreeMap<&str, &str> =
            labels(name).into_iter().filter(|(key, _)| !node.labels().contains_key(*key)).collect();
        if !labels.is_empty() {
            let patch = json!({"metadata": {"uid": node.metadata.uid, "labels": labels}});
            let Some(written) = tolerate(api.patch(name, &params, &Patch::Merge(patch)).await.map_err(Into::into))?
            else {
                return Ok(Action::done());
            };
            cx.record_write(&written);
        }
        let status = self.status(node, cx)?;
        if node.status.as_ref() != Some(&status) {
            let patch = json!({"metadata": {"uid": node.metadata.uid}, "status": status});
            let written = api.patch_status(name, &params, &Patch::Strategic(patch)).await;
            let Some(written) = tolerate(written.map_err(Into::into))? else { return Ok(Action::done()) };
            cx.record_write(&written);
        }
        if is_down(node) {
            return Ok(Action::done());
        }
        let wait = renew_lease(node, cx).await?;
        Ok(Action::requeue_after(wait))
    }
}

impl Registration {
    /// Returns the status of the node.
    fn status(&self, node: &Node, cx: &Context<Node>) -> Result<NodeStatus> {
        let (name, now) = (node.name_any(), cx.now());
        let mut status = node.status.clone().unwrap_or_default();
        let capacity = status.capacity.get_or_insert_default();
        for (resource, amount) in USUAL {
            capacity.entry(resource.into()).or_insert_with(|| Quantity(amount.into()));
        }
        let capacity = capacity.clone();
        let allocatable = status.allocatable.get_or_insert_default();
        for (resource, amount) in capacity {
            allocatable.entry(resource).or_insert(amount);
        }
        if status.addresses.as_ref().is_none_or(Vec::is_empty) {
            let address = |type_: &str, address: String| NodeAddress { type_: type_.into(), address };
            let internal = self.addresses.next(cx.caches())?;
            status.addresses = Some(vec![address("InternalIP", internal), address("Hostname", name.clone())]);
        }
        status.daemon_endpoints = Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: 10250 }) });
        if status.node_info.as_ref().is_none_or(|info| info.kubelet_version.is_empty()) {
            status.node_info = Some(info(node));
        }
        put(
            &mut status,
            "MemoryPressure",
            false,
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
            now,
        );
        put(&mut status, "DiskPressure", false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure", now);
        put(&mut status, "PIDPressure", false, "KubeletHasSufficientPID", "kubelet has sufficient PID available", now);
        match is_down(node) {
            false => put(&mut status, "Ready", true, "KubeletReady", "kubelet is posting ready status", now),
            true => put(&mut status, "Ready", false, "KubeletNotReady", "the node simulates a failure", now),
        }
        Ok(status)
    }
}

/// The labels that every kubelet sets on its node.
fn labels(name: &str) -> [(&str, &str); 3] {
    [("kubernetes.io/arch", "amd64"), ("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux")]
}

fn info(node: &Node) -> NodeSystemInfo {
    let uid = node.uid().unwrap_or_default();
    NodeSystemInfo {
        architecture: "amd64".into(),
        boot_id: uid.clone(),
        container_runtime_version: "simulated://1".into(),
        kernel_version: "simulated".into(),
        kubelet_version: flyball_server::git_version(),
        machine_id: uid.replace('-', ""),
        operating_system: "linux".into(),
        os_image: "simulated".into(),
        system_uuid: uid,
        ..NodeSystemInfo::default()
    }
}

/// Sets a condition. The heartbeat time changes with the condition only, since the lease is the heartbeat.
fn put(status: &mut NodeStatus, type_: &str, holds: bool, reason: &str, message: &str, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    let holds = if holds { "True" } else { "False" };
    let condition = NodeCondition {
        type_: type_.into(),
        status: holds.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_heartbeat_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    };
    match conditions.iter_mut().find(|known| known.type_ == type_) {
        Some(known) if known.status == holds && known.reason.as_deref() == Some(reason) => {}
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// Renews the lease of the node if it is due; returns the delay before the next renewal.
async fn renew_lease(node: &Node, cx: &Context<Node>) -> Result<Duration> {
    let api = Api::<Lease>::namespaced(cx.client().clone(), NAMESPACE);
    let (name, now) = (cx.key().name(), cx.now());
    let spec = LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_DURATION_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    };
    match api.get_opt(name).await? {
        None => {
            let owner = OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.to_owned(),
                uid: node.uid().unwrap_or_default(),
                ..OwnerReference::default()
            };
            let owner_references = Some(vec![owner]);
            let metadata = ObjectMeta { name: Some(name.to_owned()), owner_references, ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(spec) };
            let params = PostParams { field_manager: Some(super::MANAGER.into()), ..PostParams::default() };
            api.create(&params, &lease).await?;
        }
        Some(lease) => {
            let renewed = lease.spec.and_then(|spec| spec.renew_time);
            let remaining = renewed.and_then(|at| HEARTBEAT.checked_sub(now.duration_since(at.0).unsigned_abs()));
            if let Some(remaining) = remaining.filter(|remaining| !remaining.is_zero()) {
                return Ok(remaining);
            }
            let params = PatchParams { field_manager: Some(super::MANAGER.into()), ..PatchParams::default() };
            api.patch(name, &params, &Patch::Merge(json!({"spec": spec}))).await?;
        }
    }
    Ok(HEARTBEAT)
}
